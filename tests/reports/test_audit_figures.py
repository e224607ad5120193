"""Figures of audits: every claim has a line, also where no epsilon holds."""

import math

import pytest

from sfumato.reports.audit_figures import claims_figure, gauge_figure


def test_every_claim_has_its_line():
    lines = [("one", 1.0, 2.0, 1.0), ("two", 0.1, math.inf, 0.1), ("three", 10.0, 10.2, 10.0)]
    (axes,) = claims_figure(lines).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["three", "two", "one"]
    assert axes.get_xscale() == "log"
    drawn = [
        line for line in axes.lines if line.get_marker() in ("o", ">") and len(line.get_xdata())
    ]
    assert {float(line.get_xdata()[0]) for line in drawn} >= {1.0, 2.0, 0.1, 10.0, 10.2}
    (arrow,) = [line for line in axes.lines if line.get_marker() == ">"]
    assert float(arrow.get_xdata()[0]) > 10.2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "claimed", "found at least", "holds",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "claimed", "said"),
    [
        (2.9996, 3.0044, "at least 2.99 of 3.01"),
        (0.0, 1.0, "at least 0 of 1"),
        (math.inf, 3.0, "infinite of 3"),
        (math.inf, 0.0, "infinite of 0"),
    ],
)
def test_found_is_rounded_down_and_claimed_up(found, claimed, said):
    (axes,) = gauge_figure([("run", found, claimed)]).axes
    assert [text.get_text() for text in axes.texts] == [said]


def test_what_is_infinite_has_the_longest_bar_and_is_red():
    (axes,) = gauge_figure([("a", math.inf, 3.0), ("b", 5.0, 6.0)]).axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [6.0, 5.0, 12.0, 12.0]
    assert axes.patches[-1].get_facecolor() != axes.patches[1].get_facecolor()
    assert axes.get_xlim()[1] > 12.0
