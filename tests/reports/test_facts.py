"""Facts: what is on record, where, and how it is shown."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.json_files import parsed
from sfumato.reports.facts import (
    NotOnRecord,
    Sources,
    at_least_text,
    at_most_text,
    delta_text,
    epsilon_text,
    number_text,
    per_cent_text,
    plain_text,
    pointer,
)

KNOWN = Sources({"r.json": {"a": [1, {"b/c": 2.5, "~": "x"}], "none": None, "0": "zero"}}, "run")


def test_places_are_json_pointers():
    assert KNOWN.raw("r.json") == KNOWN.raw("r.json#")
    assert KNOWN.raw("r.json#/a/0") == 1
    assert KNOWN.raw("r.json#/a/1/b~1c") == 2.5
    assert KNOWN.raw("r.json#/a/1/~0") == "x"
    assert KNOWN.raw("r.json#/0") == "zero"


@pytest.mark.parametrize(
    "place",
    ["x.json", "r.json#/b", "r.json#/a/2", "r.json#/a/-1", "r.json#/a/x", "r.json#/a/0/1",
     "r.json#/0/0", "r.json#/none/0"],
)  # fmt: skip
def test_what_is_not_there_is_not_on_record(place):
    with pytest.raises(NotOnRecord, match="run/" + place.replace(".", r"\.")):
        KNOWN.raw(place)
    with pytest.raises(NotOnRecord):
        KNOWN.computed(1, place)
    assert not KNOWN.has(place)


def test_null_is_not_on_record():
    assert not KNOWN.has("r.json#/none")
    with pytest.raises(NotOnRecord, match=r"run/r\.json#/none"):
        KNOWN.fact("r.json#/none")


def test_a_fact_knows_its_place():
    fact = KNOWN.fact("r.json#/a/1/b~1c", number_text)
    assert (fact.value, fact.text, fact.source) == (2.5, "2.5", "run/r.json#/a/1/b~1c")
    assert str(fact) == "2.5"
    assert KNOWN.computed(7, "r.json#/a").source == "computed from run/r.json#/a"


def test_what_cannot_be_read_is_not_on_record():
    with pytest.raises(NotOnRecord, match=r"r\.json#/0 .in a form that can be read"):
        KNOWN.fact("r.json#/0", epsilon_text)


@given(st.dictionaries(st.text(), st.integers()))
def test_every_key_has_a_pointer(record):
    sources = Sources({"r": record})
    for key, value in record.items():
        assert sources.raw(f"r#/{pointer(key)}") == value


def test_files_are_read_by_name_alone(tmp_path):
    (tmp_path / "a.json").write_text('{"x": 1}')
    (tmp_path / "b.json").write_text("broken")
    assert Sources.read(tmp_path, ("a.json", "absent.json")).names == ("a.json",)
    with pytest.raises(ValueError, match=r"b\.json must be JSON"):
        Sources.read(tmp_path, ("b.json",))


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{", "1 2"])
def test_json_is_strict(text):
    with pytest.raises(ValueError, match=r"no number in JSON|is no JSON"):
        parsed(text)


# --- rounding: a bound is never shown as less than it is ------------------------------------------


def _number(text):
    """The bound that words state."""
    if text == "never":
        return 0.0
    if text.startswith("one in "):
        return 1 / int(text.removeprefix("one in ").replace(",", ""))
    return float(text.removesuffix(" %")) / 100


@given(st.floats(1e-12, 1))
def test_a_chance_is_never_understated(value):
    stated = _number(at_most_text(value))
    assert stated >= value * (1 - 1e-9)
    assert stated <= max(1.02 * value, value + 0.001)


def test_chances_in_words():
    assert at_most_text(0) == "never"
    assert at_most_text(0.001) == "one in 1,000"
    assert at_most_text(0.0010001) == "one in 999"
    assert at_most_text(0.01) == "1.0 %"
    assert at_most_text(0.0540001) == "5.5 %"
    assert at_most_text(1) == "100.0 %"


@given(st.floats(1e-9, 1e6))
def test_epsilon_and_delta_are_never_understated(value):
    for shown in (epsilon_text, delta_text):
        assert value * (1 - 1e-9) <= float(shown(value)) <= 1.011 * value


@given(st.floats(1e-6, 1e6))
def test_a_lower_bound_is_never_overstated(value):
    assert 0.989 * value <= float(at_least_text(value)) <= value * (1 + 1e-9)


def test_infinite():
    assert epsilon_text("inf") == at_least_text("inf") == "infinite"
    assert epsilon_text(math.inf) == "infinite"
    assert at_least_text(0) == "0"


def test_plain_values():
    assert plain_text(True) == "yes"
    assert plain_text(False) == "no"
    assert plain_text(1234567) == "1,234,567"
    assert plain_text(0.123456) == "0.1235"
    assert plain_text(1e-7) == "1e-07"
    assert plain_text(["a", 1]) == "a, 1"
    assert per_cent_text(0.9) == "90.0 %"
    assert per_cent_text(0.01234) == "1.23 %"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 0, "a": 1}}]'])
def test_a_key_has_one_value(text, tmp_path):
    """Readers differ in which of two counts."""
    with pytest.raises(ValueError, match="the key 'a' is there more than once"):
        parsed(text)
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(ValueError, match=r"record.json must be JSON, .* the key 'a'"):
        Sources.read(tmp_path, ("record.json",))


@pytest.mark.parametrize("depth", [101, 100_000])
def test_what_is_nested_too_deeply_is_refused(depth):
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parsed("[" * depth + "]" * depth)
    assert parsed("[" * 100 + "]" * 100)
