"""The curator's edition: everything traced, whatever is missing said."""

import copy
import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.reports import curator, findings
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.facts import Fact, Sources
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown

FILES = (
    "record.json", "curator/results.json", findings.MEMBERSHIP, findings.INVERSION, findings.AUDIT,
)  # fmt: skip


def run_of(files, name="private"):
    kept = {file: files[f"{name}/{file}"] for file in FILES if f"{name}/{file}" in files}
    return CuratorRun(name, Sources(kept, name), {})


def missing_in(document):
    return {place for section in to_json(document)["sections"] for place in section["missing"]}


def text_of(cell):
    return cell.text if isinstance(cell, Fact) else cell


# --- every number has a place ---------------------------------------------------------------------


def test_every_number_of_the_page_is_on_record(runs, files, read_html, at_place, places_in):
    both = [CuratorRun.read(runs / name) for name in ("private", "plain")]
    page = read_html(to_html(curator_report(both)))
    assert not any(letter.isdigit() for letter in page.loose), page.loose
    assert len(page.data) > 90
    for value, source, text in page.data:
        if source.startswith("computed from "):
            at_place(files, source.removeprefix("computed from "))
            continue
        recorded = at_place(files, source)
        known = text if value is None else value
        assert known == (recorded if isinstance(recorded, str) else json.dumps(recorded)), source
    assert len(page.figures) >= 5
    for source in page.figures:
        for place in places_in(source):
            at_place(files, place)


def test_every_fact_in_json_is_on_record(runs, files, at_place):
    document = curator_report([CuratorRun.read(runs / name) for name in ("private", "plain")])
    found = [fact for section in to_json(document)["sections"] for fact in section["facts"]]
    for fact in found:
        value = at_place(files, fact["from"].removeprefix("computed from "))
        if not fact["from"].startswith("computed from "):
            assert value == fact["value"]


def test_it_names_every_file_it_was_made_from(runs):
    document = curator_report([CuratorRun.read(runs / name) for name in ("private", "plain")])
    assert set(document.sources) == {
        *(f"private/{name}" for name in FILES), "plain/record.json", "plain/curator/results.json",
        f"plain/{findings.MEMBERSHIP}",
    }  # fmt: skip


# --- at a glance ----------------------------------------------------------------------------------


def test_runs_are_side_by_side_in_order(files):
    document = curator_report([run_of(files, "plain"), run_of(files, "private")])
    table = document.sections[0].blocks[0]
    plain, private = ([text_of(cell) for cell in row] for row in table.rows)
    assert plain[:2] == ["plain", "none"]
    assert plain[-1] == "nothing is claimed"
    assert private[0] == "private"
    epsilon = files["private/record.json"]["guarantee"]["epsilon"]
    assert epsilon <= float(private[1]) <= 1.01 * epsilon
    accuracy = files["plain/curator/results.json"]["accuracy"]
    assert table.rows[0][2].value == accuracy


def test_a_plain_run_has_no_card_and_a_private_one_has(files):
    document = curator_report([run_of(files, "plain"), run_of(files, "private")])
    headings = [section.heading for section in document.sections]
    assert "private: the guarantee" in headings
    assert not any(heading.startswith("plain: ") for heading in headings)


def test_what_privacy_costs(files):
    def cost(*named):
        (section,) = [
            section
            for section in curator_report(list(named)).sections
            if section.heading == "What privacy costs"
        ]
        return section.blocks[0]

    private, plain = run_of(files), run_of(files, "plain")
    assert "One run alone" in cost(private).text
    assert "No run with a guarantee" in cost(plain).text
    assert "different data" in cost(private, plain).text  # the plain one had the first rows alone
    del files["plain/record.json"]["facts"]["data"]["rows"]
    picture = cost(private, run_of(files, "plain"))
    assert picture.source == (
        "private/record.json#/facts/accuracy, plain/curator/results.json#/accuracy"
    )


def test_seeded_runs_are_stamped(files):
    files["private/record.json"] |= {"private": False, "warning": "x"}
    document = curator_report([run_of(files)])
    for text in (to_markdown(document), json.dumps(to_json(document))):
        assert text.count("NOT PRIVATE") >= 2


def test_an_epsilon_that_does_not_follow_is_not_shown(files):
    del files["plain/record.json"]["facts"]["data"]["rows"]
    files["private/record.json"]["guarantee"]["epsilon"] *= 0.5
    document = curator_report([run_of(files), run_of(files, "plain")])
    assert document.sections[0].blocks[0].rows[0][1] == "does not follow from its event"
    assert "No run with a guarantee" in document.sections[1].blocks[0].text
    cards = [one.heading for one in document.sections if one.heading.startswith("private: ")]
    assert cards == ["private: the guarantee"]
    assert findings._claim(run_of(files).sources) is None


# --- what is not on record ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_file_may_be_missing(runs, tmp_path, name):
    shutil.copytree(runs / "private", tmp_path / "private")
    (tmp_path / "private" / name).unlink()
    document = curator_report([CuratorRun.read(tmp_path / "private")])
    if name != "curator/results.json":  # used where the public record has no accuracy
        assert f"private/{name}" in missing_in(document)
        assert "Not on record" in to_markdown(document)
    assert f"private/{name}" not in document.sources


def test_without_results_a_plain_run_has_no_accuracy(files):
    del files["plain/curator/results.json"]
    document = curator_report([run_of(files, "plain")])
    assert text_of(document.sections[0].blocks[0].rows[0][2]) == "not on record"


def test_a_run_without_any_record(tmp_path, files):
    (tmp_path / "lost").mkdir()
    document = curator_report([CuratorRun.read(tmp_path / "lost"), run_of(files)])
    assert {
        "lost/record.json", f"lost/{findings.MEMBERSHIP}", f"lost/{findings.INVERSION}",
        f"lost/{findings.AUDIT}",
    } <= missing_in(document)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_damaged_json_is_an_error_that_names_the_file(runs, tmp_path, name):
    shutil.copytree(runs / "private", tmp_path / "private")
    (tmp_path / "private" / name).write_text("{ not json")
    with pytest.raises(ValueError, match=f"{name} must be JSON"):
        CuratorRun.read(tmp_path / "private")


def paths_in(value, so_far=()):
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in list(inside)[:12]:  # long lists are of a kind
        yield (*so_far, key)
        if isinstance(below, dict | list):
            yield from paths_in(below, (*so_far, key))


JUNK = [None, "x", -1, 1e300, 10**400, [], {}, [None], True]


@settings(max_examples=8)
@given(st.data())
@pytest.mark.slow
def test_whatever_is_deleted_or_damaged_is_not_invented(runs, data):
    deleted_or_damaged(runs, data, to_markdown)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_whatever_is_deleted_or_damaged_can_be_drawn(runs, data):
    deleted_or_damaged(runs, data, to_html)


def deleted_or_damaged(runs, data, make):
    name = data.draw(st.sampled_from(FILES))
    known = {file: json.loads((runs / "private" / file).read_text()) for file in FILES}
    path = data.draw(st.sampled_from(list(paths_in(known[name]))))
    changed = copy.deepcopy(known)
    place = changed[name]
    for key in path[:-1]:
        place = place[key]
    junk = data.draw(st.sampled_from(JUNK))
    if junk is None:
        del place[path[-1]]
    else:
        place[path[-1]] = junk
    document = curator_report([CuratorRun("private", Sources(changed, "private"), {})])
    look = Sources(changed, "private")
    for section in to_json(document)["sections"]:
        for fact in section["facts"]:
            at = fact["from"].removeprefix("computed from ").removeprefix("private/")
            assert look.has(at)
            if not fact["from"].startswith("computed from "):
                assert look.raw(at) == fact["value"]
    make(document)


def test_accuracy_is_looked_for_in_three_places():
    def accuracy(**records):
        names = {"public": "record.json", "own": "curator/results.json"}
        return curator._accuracy(Sources({names[key]: value for key, value in records.items()}))

    points = {"curve": [{"accuracy": 0.1}, {"accuracy": 0.4}]}
    assert accuracy(public={"facts": {"accuracy": 0.9}}, own={"accuracy": 0.8}).value == 0.9
    assert accuracy(own={"accuracy": 0.8} | points).value == 0.8
    assert accuracy(own=points).source == "curator/results.json#/curve/1/accuracy"
    assert accuracy(own={"curve": []}) == "not on record"
