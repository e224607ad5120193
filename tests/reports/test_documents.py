"""What a report consists of."""

import pytest
from matplotlib.figure import Figure

from sfumato.reports.documents import (
    Bullets,
    Code,
    Missing,
    Paragraph,
    Picture,
    Table,
    facts_of,
    pieces_of,
    recorded,
)
from sfumato.reports.facts import Fact, NotOnRecord

ONE, TWO = Fact(1, "1", "a#/x"), Fact(2, "2", "a#/y")


def test_pieces():
    assert pieces_of("a") == ("a",)
    assert pieces_of(ONE) == (ONE,)
    assert pieces_of(("a", ONE)) == ("a", ONE)


@pytest.mark.parametrize(
    "block",
    [
        Paragraph((ONE, " and ", TWO)),
        Bullets([ONE, ("x", TWO)]),
        Table(("a", "b"), [(ONE, "x"), ("y", (TWO, "z"))]),
        Picture(Figure(), "alt", "a", caption=(ONE, TWO)),
    ],
)
def test_every_fact_is_found(block):
    assert list(facts_of(block)) == [ONE, TWO]


def test_code_has_one_and_what_is_missing_none():
    assert list(facts_of(Code(ONE))) == [ONE]
    assert list(facts_of(Missing("a#/x"))) == []


def test_what_is_not_on_record_is_said_in_its_place():
    def make():
        raise NotOnRecord("a#/x")

    assert recorded(make, "do this") == [Missing("a#/x", "do this")]
    assert recorded(lambda: [Paragraph("a")]) == [Paragraph("a")]


def test_mistakes_are_not_taken_for_missing_records():
    with pytest.raises(ZeroDivisionError):
        recorded(lambda: [Paragraph(str(1 / 0))])
