"""Figures of audits: every claim has a line, also where no epsilon holds."""

import math

from sfumato.reports.audit_figures import claims_figure


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
