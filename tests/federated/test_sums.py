"""How a sum may be made: what a masked sum declares is possible, and known to hide."""

import pytest

from sfumato.federated.sums import HiddenSum, MaskedSum, PlainSum


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("threshold", 1), ("threshold", 2.5), ("bits", 0), ("fraction_bits", 0), ("bound", 0.0),
        ("bound", -1.0), ("bound", float("inf")), ("bound", float("nan")),
    ],
)  # fmt: skip
def test_what_no_sum_can_be_made_with_is_refused(name, bad):
    """Numbers are cut to the bound: one of 0 would cut all of them away."""
    with pytest.raises(ValueError, match=name):
        MaskedSum(**{"threshold": 2} | {name: bad})
    MaskedSum(2)


def test_only_a_plain_sum_shows_contributions():
    assert [kind.hides for kind in (PlainSum, MaskedSum, HiddenSum)] == [False, True, True]
