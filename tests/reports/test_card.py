"""The publishable card: everything traced, nothing invented, nothing of the curator's."""

import copy
import json
import shutil
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.records import NOT_PRIVATE
from sfumato.reports import method_facts
from sfumato.reports.card import PublicRun, card_sections, privacy_card
from sfumato.reports.facts import Sources
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown

FORMATS = (to_html, to_markdown, lambda document: json.dumps(to_json(document)))
SENTINEL = "SENTINEL-of-the-curator-8461937"


def card_of(record, name="private"):
    return privacy_card([PublicRun(name, Sources({"record.json": record}, name), {})])


def facts_in(document):
    return [fact for section in to_json(document)["sections"] for fact in section["facts"]]


def missing_in(document):
    return [place for section in to_json(document)["sections"] for place in section["missing"]]


# --- every number has a place ---------------------------------------------------------------------


def test_every_number_of_the_page_is_on_record(runs, files, read_html, at_place):
    page = read_html(to_html(privacy_card([PublicRun.read(runs / "private")])))
    assert not any(letter.isdigit() for letter in page.loose), page.loose
    assert len(page.data) > 30
    for value, source, text in page.data:
        if source.startswith("computed from "):
            at_place(files, source.removeprefix("computed from "))
            continue
        recorded = at_place(files, source)
        known = text if value is None else value  # what is long stands there once
        assert known == (recorded if isinstance(recorded, str) else json.dumps(recorded)), source
        assert text
    for source in page.figures:
        at_place(files, source.removeprefix("computed from "))


def test_every_fact_in_json_is_on_record(runs, files, at_place):
    found = facts_in(privacy_card([PublicRun.read(runs / "private")]))
    plain = [fact for fact in found if not fact["from"].startswith("computed from ")]
    assert len(plain) > 20
    for fact in plain:
        assert at_place(files, fact["from"]) == fact["value"]
    for fact in found:
        at_place(files, fact["from"].removeprefix("computed from "))


def test_all_three_editions_have_the_same_sections(runs):
    document = privacy_card([PublicRun.read(runs / "private")])
    headings = [section.heading for section in document.sections]
    assert headings == [
        "The guarantee", "What it promises to somebody in the data", "What it does not promise",
        "The whole guarantee", "Could your record be reconstructed?", "How well it works",
        "How it was made", "How to make another",
    ]  # fmt: skip
    for make in FORMATS:
        text = make(document)
        for heading in headings:
            assert heading in text
    assert missing_in(document) == []


def test_it_names_what_it_was_made_from(runs):
    import hashlib

    document = privacy_card([PublicRun.read(runs / "private")])
    digest = hashlib.sha256((runs / "private/record.json").read_bytes()).hexdigest()
    assert document.sources == {"private/record.json": digest[:16]}
    for make in FORMATS:
        assert digest[:16] in make(document)


def test_the_command_trains_by_the_same_recipe(runs, tmp_path, monkeypatch):
    import shlex

    from sfumato.cli.main import main

    found = facts_in(privacy_card([PublicRun.read(runs / "private")]))
    (command,) = [f["value"] for f in found if str(f["value"]).startswith("sfumato train")]
    shutil.copy(runs / "private/record.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(command)[1:], "--dry-run", "--json"])
    assert not ended.value.code


# --- what is not on record ------------------------------------------------------------------------


def paths_in(value, so_far=()):
    """Every path in a record, in order."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in inside:
        yield (*so_far, key)
        if isinstance(below, dict | list):
            yield from paths_in(below, (*so_far, key))


def without(record, path, put=None):
    """A copy, with ``put`` there (or nothing)."""
    changed = copy.deepcopy(record)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if put is None:
        del place[path[-1]]
    else:
        place[path[-1]] = put
    return changed


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_deleted_is_not_invented(runs, data):
    at = json.loads((runs / "private/record.json").read_text())
    path = data.draw(st.sampled_from(list(paths_in(at))))
    changed = without(at, path)
    document = card_of(changed)
    for fact in facts_in(document):
        look = Sources({"record.json": changed}, "private")
        place = fact["from"].removeprefix("computed from ").removeprefix("private/")
        assert look.has(place)
        if not fact["from"].startswith("computed from "):
            assert look.raw(place) == fact["value"]
    to_markdown(document)


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_damaged_does_not_break_it(runs, data):
    at = json.loads((runs / "private/record.json").read_text())
    path = data.draw(st.sampled_from(list(paths_in(at))))
    junk = data.draw(st.sampled_from(["x", -1, 0, 1e300, [], {}, [None], {"kind": "x"}, True]))
    to_markdown(card_of(without(at, path, junk)))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("guarantee", "guarantee/epsilon"),
        ("guarantee/epsilon", "guarantee/epsilon"),
        ("guarantee/delta", "guarantee/delta"),
        ("guarantee/neighbours", "guarantee/neighbours"),
        ("guarantee/unit", "guarantee/unit"),
        ("event", "event"),
        ("event/count", "event"),
        ("private", "private"),
        ("facts/accuracy", "facts/accuracy"),
        ("facts/curve", "facts/curve"),
        ("facts/test_set", "facts/test_set"),
        ("facts/data/name", "facts/data/name"),
        ("facts/tuning", "facts/tuning"),
        ("parameters/plan/steps", "parameters/plan/steps"),
        ("parameters/plan/noise_multiplier", "parameters/plan/noise_multiplier"),
        ("parameters/recipe", "parameters/recipe"),
        ("software", "software"),
        ("method", "method"),
    ],
)
def test_it_says_what_is_not_on_record(files, path, place):
    record = without(files["private/record.json"], tuple(path.split("/")))
    document = card_of(record)
    found = missing_in(document)
    assert any(one.startswith(f"private/record.json#/{place}") for one in found), found
    assert "Not on record" in to_markdown(document)


def test_without_a_record_nothing_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    document = privacy_card([PublicRun.read(tmp_path / "empty")])
    assert missing_in(document) == ["empty/record.json"]
    assert facts_in(document) == []


def test_of_a_run_that_does_not_say_what_it_promises_nothing_is_told(files):
    """It may be one without privacy, of which everything is the curator's."""
    record = files["plain/record.json"]
    del record["guarantee"]["epsilon"]
    del record["event"]
    record["method"] = record["facts"]["data"]["name"] = SENTINEL
    document = card_of(record, "plain")
    assert missing_in(document) == ["plain/record.json#/guarantee/epsilon"]
    for make in FORMATS:
        assert SENTINEL not in make(document)


def test_damaged_json_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "record.json").write_text('{"guarantee": ')
    with pytest.raises(ValueError, match=r"record\.json must be JSON"):
        PublicRun.read(tmp_path)


@pytest.mark.parametrize("content", ["[]", "3", '"x"', "null", "{}"])
def test_json_that_is_no_record_says_nothing(tmp_path, content):
    (tmp_path / "record.json").write_text(content)
    document = privacy_card([PublicRun.read(tmp_path, "odd")])
    assert len(missing_in(document)) == 1
    assert facts_in(document) == []


# --- nothing of the curator's ---------------------------------------------------------------------


def poison(value):
    """Sentinels for all words, and a number to be found for all numbers."""
    if isinstance(value, dict):
        return {key: poison(below) for key, below in value.items()}
    if isinstance(value, list):
        return [poison(below) for below in value]
    return SENTINEL if isinstance(value, str) else 8461937


@pytest.fixture
def poisoned(runs, tmp_path):
    """The runs, with sentinels in all that is the curator's."""
    for name in ("private", "plain"):
        shutil.copytree(runs / name, tmp_path / name)
    for path in [*tmp_path.glob("*/curator/*.json"), tmp_path / "plain/record.json"]:
        kept = json.loads(path.read_text())
        changed = poison(kept)
        if path.name == "record.json":
            changed["guarantee"]["epsilon"] = "inf"
        path.write_text(json.dumps(changed))
    (tmp_path / "private/curator/notes.json").write_text(f'"{SENTINEL}"')
    return tmp_path


def test_nothing_of_the_curator_is_published(poisoned):
    reading = [PublicRun.read(poisoned / name) for name in ("plain", "private")]
    document = privacy_card(reading)
    for make in FORMATS:
        text = make(document)
        assert "SENTINEL" not in text
        assert "8461937" not in text
        assert "8,461,937" not in text
        assert "plain" not in text.replace("plain_text", "")


def test_the_same_bytes_without_the_curator_s_folder(poisoned):
    before = [make(privacy_card([PublicRun.read(poisoned / "private")])) for make in FORMATS]
    shutil.rmtree(poisoned / "private/curator")
    after = [make(privacy_card([PublicRun.read(poisoned / "private")])) for make in FORMATS]
    assert before == after


_OPENED = None


def _watch(event, args):
    if _OPENED is not None and event in ("open", "os.listdir", "os.scandir"):
        _OPENED.append(str(args[0]))


sys.addaudithook(_watch)


def test_no_other_file_of_a_run_is_opened(poisoned):
    global _OPENED
    _OPENED = []
    try:
        document = privacy_card([PublicRun.read(poisoned / n) for n in ("private", "plain")])
        for make in FORMATS:
            make(document)
        opened = [name for name in _OPENED if name.startswith(str(poisoned))]
    finally:
        _OPENED = None
    assert set(opened) == {str(poisoned / name / "record.json") for name in ("private", "plain")}


def test_a_run_that_promises_nothing_is_left_out_and_that_is_said(runs):
    document = privacy_card([PublicRun.read(runs / name) for name in ("plain", "private")])
    alone = privacy_card([PublicRun.read(runs / "private")])
    assert document.sources == alone.sources
    assert document.sections[0].blocks[0].text.startswith("Runs that promise nothing are left out")
    rest = [make(privacy_card([PublicRun.read(runs / "private")])) for make in FORMATS]
    for make, text in zip(FORMATS, rest, strict=True):
        assert len(make(document)) - len(text) < 300
    nothing = privacy_card([PublicRun.read(runs / "plain")])
    assert len(nothing.sections) == 1
    assert nothing.sources == {}


# --- several runs, stamps, names ------------------------------------------------------------------


def test_several_runs_in_order(gaussian_record):
    records = [gaussian_record(sigma) for sigma in (4.0, 1.0, 2.0)]
    named = [
        PublicRun(name, Sources({"record.json": record}, name), {})
        for name, record in zip(("zeta", "alpha", "beta"), records, strict=True)
    ]
    named.insert(1, PublicRun("lost", Sources({}, "lost"), {}))
    document = privacy_card(named)
    (table,) = document.sections[0].blocks
    assert [row[0] for row in table.rows] == ["zeta", "lost", "alpha", "beta"]
    assert [getattr(row[1], "value", row[1]) for row in table.rows] == [
        records[0]["guarantee"]["epsilon"], "not on record", records[1]["guarantee"]["epsilon"],
        records[2]["guarantee"]["epsilon"],
    ]  # fmt: skip
    assert missing_in(document).count("lost/record.json") == 1
    assert "zeta: the guarantee" in [section.heading for section in document.sections]


@pytest.mark.parametrize("count", [1, 2])
def test_seeded_records_are_left_out_and_that_is_said(gaussian_record, count):
    seeded = gaussian_record(private=False)
    seeded["facts"] |= {"accuracy": 0.123456, "test_set": "public", "data": {"name": SENTINEL}}
    named = [
        PublicRun(name, Sources({"record.json": record}, name), {})
        for name, record in (("seeded", seeded), ("secret", gaussian_record()))[:count]
    ]
    document = privacy_card(named)
    for make in FORMATS:
        text = make(document)
        assert "Runs with seeded test coins are left out" in text
        assert "12.3 %" not in text
        assert SENTINEL not in text
        assert "seeded/" not in text
    assert sum("promises to" in section.heading.lower() for section in document.sections) == (
        count - 1
    )


def test_a_stamped_card_is_the_curator_s(gaussian_record):
    seeded = gaussian_record(private=False)
    seeded["facts"] |= {"accuracy": 0.123456, "test_set": "public"}
    sections = card_sections(Sources({"record.json": seeded}))
    assert sections[0].blocks[0].text == NOT_PRIVATE
    assert [section.heading for section in sections][:2] == ["The guarantee", "How well it works"]
    assert "No accuracy may be told in public" in str(sections[1].blocks[0].text)


FORGERIES = {
    "epsilon": lambda record: record["guarantee"].update(epsilon=0.1),
    "delta": lambda record: record["guarantee"].update(delta=1e-30),
    "unit": lambda record: record["guarantee"].update(unit="person"),
    "relation": lambda record: record["guarantee"].update(neighbours="replace-one"),
    "no event": lambda record: record.pop("event"),
    "no readable event": lambda record: record.update(event={"kind": "x"}),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_nothing_is_derived_from_a_guarantee_that_does_not_follow(files, gaussian_record, forge):
    record = files["private/record.json"]
    forge(record)
    document = card_of(record)
    assert [section.heading for section in document.sections] == ["The guarantee"]
    text = to_markdown(document)
    assert "Do not rely on it" in text or "Not on record" in text
    named = [
        PublicRun(name, Sources({"record.json": one}, name), {})
        for name, one in (("forged", record), ("honest", gaussian_record()))
    ]
    (table,) = privacy_card(named).sections[0].blocks
    assert table.rows[0] == ("forged", "does not follow from its event", "", "", "")
    assert table.rows[1][1].value == gaussian_record()["guarantee"]["epsilon"]


def test_a_forged_epsilon_is_warned_of_in_every_format(files):
    record = files["private/record.json"]
    record["guarantee"]["epsilon"] *= 0.5
    for make in FORMATS:
        assert "does not follow from the event on record" in make(card_of(record))


NAMES = ["<script>alert(1)</script>", 'a" onclick="x', "a|b\n\n# c", "`x` $y$ *z* \\", "_a"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_words_and_no_markup(files, read_html, name):
    record = files["private/record.json"]
    record["facts"]["data"]["name"] = record["method"] = name
    record["software"] = {name: name}
    run = Sources({"record.json": record}, name)
    document = privacy_card([PublicRun(name, run, {name: name})] * 2, title=name)
    html, markdown = to_html(document), to_markdown(document)
    page = read_html(html)
    assert not any(tag == "script" or "onclick" in attrs for tag, attrs in page.tags)
    assert name in [text for _, _, text in page.data]
    assert (
        "<script" not in markdown.replace("\\<script", "").replace("`<script", "`").split("```")[0]
    )
    assert "\n# c" not in markdown.replace("```sh", "```").split("```")[0]
    json.loads(json.dumps(to_json(document)))


def test_an_accuracy_that_may_not_be_told(gaussian_record):
    record = gaussian_record()
    text = to_markdown(card_of(record))
    assert "No accuracy may be told in public. Test set: none." in text


@pytest.mark.parametrize(("test_set", "told"), [("public", True), ("none that is public", False)])
def test_an_accuracy_is_told_where_the_test_set_is_public(files, gaussian_record, test_set, told):
    record = files["private/record.json"]
    record["facts"] |= {"accuracy": 0.123456, "test_set": test_set}
    named = [
        PublicRun(name, Sources({"record.json": one}, name), {})
        for name, one in (("first", record), ("second", gaussian_record()))
    ]
    document = privacy_card(named)
    assert ("12.3 %" in to_markdown(document)) == told
    assert ("facts/curve" in to_html(document)) == told
    (table,) = document.sections[0].blocks
    assert str(table.rows[0][4]) == ("12.3 %" if told else "not told")


def test_a_loaded_run_says_where_its_test_set_is_public(runs):
    from sfumato.learning.recipes.loading import load_run

    loaded = load_run(runs / "private")
    assert "(public test set)" in loaded._repr_html_()
    loaded.record.facts["test_set"] = "none that is public"
    shown = loaded._repr_html_()
    assert "accuracy" in shown
    assert "(public test set)" not in shown


# --- how it was made ------------------------------------------------------------------------------


def method_of(record):
    (table, *_) = method_facts.method(Sources({"record.json": record}))
    return {label: str(fact) for label, fact in table.rows}


def test_owners_that_are_sampled_whole(files):
    record = files["private/record.json"]
    record["guarantee"]["unit"] = record["parameters"]["plan"]["unit"] = "patient"
    record["parameters"]["recipe"]["rows_per_owner"] = 20
    rows = method_of(record)
    assert rows["rows of each in a lot, at most"] == "20"
    assert rows["lots"].startswith("Poisson: every patient by a coin of its own")
    assert rows["the observer"].endswith("not which patients a step used")
    assert "patients in a lot, expected" in rows
    assert not any("record" in label for label in rows)


def test_owners_of_records_that_are_sampled(files):
    record = files["private/record.json"]
    record["guarantee"]["unit"] = record["parameters"]["plan"]["group_unit"] = "person"
    record["parameters"]["plan"]["records_per_unit"] = 3
    rows = method_of(record)
    assert rows["records of each, at most"] == "3"
    assert rows["lots"].startswith("Poisson: every record by a coin of its own")


def test_records_alone_have_no_owners(files):
    rows = method_of(files["private/record.json"])
    assert not any("of each" in label for label in rows)
    assert "records in a lot, expected" in rows
