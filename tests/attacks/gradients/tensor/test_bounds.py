from pathlib import Path

import pytest

from sfumato.attacks.gradients import tensor
from sfumato.attacks.gradients.tensor import bounds

SIZES = (3, 50, 40_000)


def test_formulas():
    root = (50 / 40_000) ** 0.5
    assert bounds.no_defence(*SIZES) == pytest.approx(3 * root)
    assert bounds.gradient_noise(*SIZES, deviation=2.0) == pytest.approx(5 * root)
    assert bounds.dropout(*SIZES, share=0.75) == pytest.approx(2 * 3 * root)
    assert bounds.lower_bound(50, 40_000, deviation=2.0) == pytest.approx(2 * root)
    assert bounds.lower_bound(50, 40_000, deviation=2.0, pruned=0.75) == pytest.approx(4 * root)
    grown = bounds.dp_sgd(*SIZES, deviation=2.0, gradient_norm=10.0, norm=5.0)
    assert grown == pytest.approx((3 + 4) * root)


def test_defences_that_do_nothing_leave_the_bound():
    plain = bounds.no_defence(*SIZES)
    assert bounds.clipping(*SIZES, norm=1e-3) == plain
    assert bounds.local_steps(*SIZES, steps=7) == plain
    assert bounds.dropout(*SIZES, share=0.0) == plain
    assert bounds.gradient_noise(*SIZES, deviation=0.0) == plain
    loose = bounds.dp_sgd(*SIZES, deviation=0.5, gradient_norm=1.0, norm=9.0)
    assert loose == bounds.gradient_noise(*SIZES, deviation=0.5)


def test_the_lecture_has_k_times_as_much_for_local_steps():
    assert bounds.local_steps_as_lectured(*SIZES, steps=7) == 7 * bounds.local_steps(
        *SIZES, steps=7
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: bounds.no_defence(0, 1, 1), r"batch must be .* got 0"),
        (lambda: bounds.no_defence(1, 0, 1), r"dimension must be .* got 0"),
        (lambda: bounds.no_defence(1, 1, 0), r"width must be .* got 0"),
        (lambda: bounds.local_steps(*SIZES, steps=0), r"steps must be .* got 0"),
        (lambda: bounds.clipping(*SIZES, norm=0), r"norm must be .* got 0"),
        (lambda: bounds.gradient_noise(*SIZES, deviation=-1), r"deviation must be .* got -1"),
        (lambda: bounds.dropout(*SIZES, share=1), r"share must be .* got 1"),
        (lambda: bounds.lower_bound(1, 1, deviation=1, pruned=1), r"pruned must be .* got 1"),
        (
            lambda: bounds.dp_sgd(*SIZES, deviation=1, gradient_norm=0, norm=1),
            r"gradient_norm must be .* got 0",
        ),
    ],
)
def test_bad_parameters_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_every_module_is_in_the_table_of_the_package():
    folder = Path(tensor.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    table = tensor.__doc__ or ""
    assert {name for name in modules if f"\n``{name}``" not in table} == set()
