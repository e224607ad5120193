"""Budgets and released statistics: rounded outwards, with their relation, and private alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.records import NOT_PRIVATE
from sfumato.reports import budgets
from sfumato.reports.card import privacy_card
from sfumato.reports.documents import Paragraph, Table
from sfumato.reports.facts import Sources, interval_texts

NUMBERS = st.floats(-1e12, 1e12)


def answer(**changes):
    known = {
        "query": {"query": "Count"}, "keys": [], "confidence": 0.95, "private": True,
        "rows": [{"value": 134012, "low": 133988.4, "high": 134035.6}],
        "epsilon": 0.5, "delta": 0.0, "neighbours": "add-remove", "unit": "person",
    }  # fmt: skip
    return known | changes


def sources(content, name="count.json"):
    return Sources({name: content}, marks={name: "0123"})


def first_row(blocks):
    (table,) = [block for block in blocks if isinstance(block, Table)]
    return dict(zip(table.headings, table.rows[0], strict=True))


# --- intervals ------------------------------------------------------------------------------------


def test_an_interval_holds_its_answer():
    row = first_row(budgets.statistics([sources(answer())], public=True))
    assert str(row["answer"]) == "134,012"
    assert "".join(str(piece) for piece in row["interval"]) == "133,988 to 134,036"
    assert row["what is compared"].text == "add or remove one person"
    assert row["protects"].text == "one person"


@given(NUMBERS, st.floats(1e-2, 1e9), st.floats(0, 1))
def test_limits_are_rounded_outwards_by_little(low, width, part):
    high = low + width
    value = min(max(low + part * width, low), high)
    texts = interval_texts(value, low, high)
    middle, below, above = (float(text.replace(",", "")) for text in texts)
    assert below <= low
    assert high <= above
    assert below <= middle <= above
    slack = 0.11 * (high - low)  # two digits of the width
    assert low - below <= slack
    assert above - high <= slack


@pytest.mark.parametrize(
    ("interval", "texts"),
    [
        ((3, 3, 3), ("3", "3", "3")),
        ((0.25, 0.25, 0.25), ("0.25", "0.25", "0.25")),
        ((-0.4, -12.0, -0.01), ("0", "-12", "0")),
        ((2.5e20, 2.0e20, 3.0e20), ("2.5e+20", "2e+20", "3e+20")),
        ((3.0, 1.0, math.inf), ("3.0", "1.0", "infinite")),
    ],
)
def test_intervals_at_the_edge(interval, texts):
    assert interval_texts(*interval) == texts


# --- what is not private --------------------------------------------------------------------------


def test_answers_that_are_not_private_are_left_out_in_public():
    asked = [sources(answer(private=False), "seeded.json"), sources(answer(), "secret.json")]
    blocks = budgets.statistics(asked, public=True)
    (table,) = [block for block in blocks if isinstance(block, Table)]
    assert len(table.rows) == 1
    notes = [str(block.text) for block in blocks if isinstance(block, Paragraph)]
    assert any(note.startswith("Answers with seeded test coins are left out") for note in notes)
    assert privacy_card([], answers=asked).sources == {"secret.json": "0123"}


def test_one_of_several_in_a_file_is_left_out():
    asked = sources({"answers": [answer(), answer(private=False), answer()]})
    blocks = budgets.statistics([asked], public=True)
    assert len(blocks[0].rows) == 2
    assert not budgets.all_private(asked)


def test_the_curator_sees_them_stamped():
    blocks = budgets.statistics([sources(answer(private=False))], public=False)
    assert len(blocks[0].rows) == 1
    assert [block.text[0] for block in blocks if getattr(block, "kind", "") == "warning"] == [
        NOT_PRIVATE
    ]


def test_all_private_answers_are_shown_without_a_note():
    blocks = budgets.statistics([sources(answer())], public=True)
    assert len(blocks) == 3
    assert "left out" not in str([block.text for block in blocks[1:]])


# --- what statistics promise ----------------------------------------------------------------------


def said(block):
    items = block.items if hasattr(block, "items") else [block.text]
    return " ".join("".join(map(str, item)) if isinstance(item, tuple) else item for item in items)


def test_statistics_promise_in_plain_words_what_they_cost_together():
    """Randomised response of epsilon 1 reaches both limits, so no smaller ones would be true."""
    both = [sources(answer(epsilon=0.4)), sources(answer(epsilon=0.6), "mean.json")]
    lead, bullets = budgets.promised(both)
    assert said(lead).startswith("All of these statistics together: epsilon 1 at delta 0 (add or")
    numbers = [piece.value for item in bullets.items for piece in item if hasattr(piece, "value")]
    assert numbers == pytest.approx([math.e / (1 + math.e), 0.01 * math.e])
    assert "everything of yours" in said(bullets)
    assert "a record" not in said(bullets)
    sources_of = {
        piece.source for item in bullets.items for piece in item if hasattr(piece, "source")
    }
    assert sources_of == {
        "computed from count.json#/epsilon, count.json#/delta, mean.json#/epsilon, mean.json#/delta"
    }


def test_statistics_about_other_units_or_relations_are_not_added_up():
    answers = [answer(), answer(unit="visit"), answer(neighbours="replace-one", delta=0.5)]
    blocks = budgets.promised([sources(one) for one in answers])
    assert len(blocks) == 6
    assert "That there is such a place" in said(blocks[5])
    (_, coin), (_, found) = [
        [piece.value for item in block.items[:2] for piece in item if hasattr(piece, "value")]
        for block in (blocks[1], blocks[5])
    ]
    factor = math.exp(0.5)
    assert coin == pytest.approx(0.01 * factor)
    assert found == pytest.approx(min(0.01 * factor + 0.5, 1 - 0.49 / factor))


def test_statistics_with_known_noise_promise_nothing():
    assert budgets.promised([sources(answer(private=False))]) == []
    assert "What these statistics promise" not in [
        section.heading
        for section in privacy_card([], answers=[sources(answer(private=False))]).sections
    ]
    headings = [
        section.heading for section in privacy_card([], answers=[sources(answer())]).sections
    ]
    assert headings == ["Statistics that were released", "What these statistics promise"]


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_says_its_relation_and_what_is_left():
    status = {
        "dataset": "people", "unit": "person", "neighbours": "replace-one", "epsilon": 3.0,
        "delta": 1e-6, "reading": 1.0, "left": 1.9, "releases": 2,
    }  # fmt: skip
    table, note = budgets.budgets([Sources({budgets.STATUS: status})])
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["what is compared"].text == "replace one person"
    assert "one more pure release (delta zero)" in note.text
