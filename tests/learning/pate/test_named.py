import math

import pytest

from sfumato.learning.pate.aggregators import ConfidentMax, InteractiveMax, LaplaceMax
from sfumato.learning.pate.named import AGGREGATORS, aggregator_called, of_equal_noise, spread


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_name_has_its_aggregator(name) -> None:
    assert aggregator_called(name, 20.0, 250).kind == name


def test_what_is_not_said_is_usual_and_what_is_said_holds() -> None:
    assert aggregator_called("lnmax", 20.0, 250) == LaplaceMax(0.05)
    assert aggregator_called("confident", 40.0, 250) == ConfidentMax(40.0, 150.0, 160.0)
    said = aggregator_called("interactive", 40.0, 250, threshold=90.0, sigma_check=70.0)
    assert said == InteractiveMax(40.0, 90.0, 70.0, 250)


def test_equal_noise_is_of_one_standard_deviation() -> None:
    several = of_equal_noise(40.0, 250)
    assert [one.kind for one in several] == ["lnmax", "gnmax", "confident"]
    assert [spread(one) for one in several] == pytest.approx([40.0] * 3)
    laplace = several[0]
    assert isinstance(laplace, LaplaceMax)
    assert 2 / laplace.gamma**2 == pytest.approx(40.0**2)  # the variance of Lap(1 / gamma)
    assert spread(InteractiveMax(7.0, 1.0, 2.0, 5)) == 7.0


@pytest.mark.parametrize(("name", "noise"), [("median", 1.0), ("lnmax", 0.0), ("gnmax", math.nan)])
def test_mistakes_are_named(name, noise) -> None:
    with pytest.raises(ValueError, match="must be"):
        aggregator_called(name, noise, 10)
