"""Reports of runs of PATE: what is promised, who vouches, and what stays with the curator."""

import contextlib
import copy
import io
import json
import shlex
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.cli.main import main
from sfumato.core.events import event_from_dict
from sfumato.data import load_dataset
from sfumato.reports import method_facts, pate_facts
from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.facts import Sources
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown

OWN = (
    "train pate --data digits --test-rows 100 --student supervised --steps 5 --device cpu "
    "--teacher-labels {0}/labels.npy --no-progress --out {0}"
)
RUNS = {
    "taught": (
        "train pate --data digits --test-rows 100 --student supervised --steps 5 --device cpu "
        "--teachers 6 --sigma 4 --answers 20 --publish-cost --tuned-on elsewhere --no-progress "
        "--out {0}/taught"
    ),
    "laplace": OWN + "/laplace --aggregator lnmax --gamma 0.3 --answers 20",
    "confident": OWN + "/confident --aggregator confident --sigma 4 --answers 20 --unit hospital",
    "interactive": (
        OWN + "/interactive --aggregator interactive --sigma 4 --sigma-check 2 --threshold 1 "
        "--answers 20 --rounds 2"
    ),
}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A folder of runs, one for each aggregator; all but the first with teachers of their own."""
    import torch

    folder = tmp_path_factory.mktemp("taught")
    labels = load_dataset("digits").test.labels[:260, None]
    own = (labels + (np.arange(9) > 5)) % 10  # three of nine are wrong
    np.save(folder / "labels.npy", own)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for text in RUNS.values():
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, pytest.raises(SystemExit) as ended:
            main(shlex.split(text.format(folder)))
        assert not ended.value.code, text
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def record(taught):
    """The record of a run, by its name; a copy."""
    return lambda name: json.loads((taught / name / "record.json").read_text())


def card_of(record, name="a"):
    return privacy_card([PublicRun(name, Sources({"record.json": record}, name), {})])


def missing_in(document):
    return [place for section in to_json(document)["sections"] for place in section["missing"]]


def rows_of(record):
    (table, *_) = method_facts.method(Sources({"record.json": record}))
    return {label: str(fact) for label, fact in table.rows}


# --- the card -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_the_card_is_on_record(taught, name, read_html, at_place):
    document = privacy_card([PublicRun.read(taught / name)])
    assert missing_in(document) == []
    files = {f"{name}/record.json": json.loads((taught / name / "record.json").read_text())}
    page = read_html(to_html(document))
    assert not any(letter.isdigit() for letter in page.loose), page.loose
    assert len(page.data) > 40
    for value, source, text in page.data:
        if source.startswith("computed from "):
            at_place(files, source.removeprefix("computed from "))
            continue
        recorded = at_place(files, source)
        known = text if value is None else value
        assert known == (recorded if isinstance(recorded, str) else json.dumps(recorded)), source


def test_how_a_student_was_made(record):
    rows = rows_of(record("taught"))
    assert rows["whom it protects"] == "one record"
    assert rows["what is compared"].startswith("add-remove")
    assert rows["the observer"].startswith("sees every answer and the student")
    assert (rows["teachers"], rows["noise of answers, standard deviation"]) == ("6", "4")
    assert rows["aggregator"].startswith("GNMax")
    assert (rows["answers planned, at most"], rows["answers given by the teachers"]) == ("20", "20")
    assert rows["public inputs without labels"] == "260"
    assert rows["where they come from"].startswith("the public test set")
    assert rows["student"].startswith("supervised")
    assert rows["hyper-parameters"] == "elsewhere"
    assert rows["test set"] == "public"
    made = "who kept the teachers' parts disjoint"
    assert rows[made].startswith("here: each record goes to one teacher")
    assert not any("check" in label for label in rows)


def test_what_each_aggregator_adds(record):
    laplace = rows_of(record("laplace"))
    assert laplace["noise of answers, inverse scale"] == "0.3"
    assert "noise of answers, standard deviation" not in laplace
    confident = rows_of(record("confident"))
    assert confident["noise of checks, standard deviation"] == "16"
    assert confident["votes to pass a check"] == "5.4"
    assert confident["the observer"].endswith("which questions were not answered")
    assert confident["questions planned, at most"] == "40"
    assert "answers of the student that were confirmed" not in confident
    interactive = rows_of(record("interactive"))
    confirmed = record("interactive")["facts"]["confirmed"]
    assert interactive["answers of the student that were confirmed"] == str(confirmed)


@pytest.mark.parametrize("name", RUNS)
def test_epsilon_is_computed_again_from_the_event(record, name):
    made = record(name)
    label = "epsilon, computed again from the event"
    sources = Sources({"record.json": made})
    (table, *_) = method_facts.method(sources)
    (fact,) = [cell for row_label, cell in table.rows if row_label == label]
    event, delta = event_from_dict(made["event"]), made["guarantee"]["delta"]
    assert fact.value == account(event, delta).epsilon
    assert fact.value == pytest.approx(made["guarantee"]["epsilon"])


def test_a_forged_epsilon_is_found_out(record):
    made = record("confident")
    made["guarantee"]["epsilon"] *= 0.9
    document = card_of(made)
    assert [section.heading for section in document.sections] == ["The guarantee"]
    assert "does not follow from the event on record" in to_markdown(document)


def test_the_published_cost_with_its_confidence_and_whose_it_is(record):
    made = record("taught")
    text = to_markdown(card_of(made))
    assert "## What it cost for these data" in text
    assert "with a confidence of 99.9 %" in text
    assert "the cost of telling this number included" in text
    assert "a reading of this run" not in text
    checked = made["facts"]["data_dependent"] | {"checked": True}
    read = {**made, "facts": made["facts"] | {"data_dependent": checked}}
    assert "a reading of this run" in to_markdown(card_of(read))
    cost = made["facts"]["data_dependent"]["epsilon"]
    (section,) = [
        section
        for section in to_json(card_of(made))["sections"]
        if section["heading"] == "What it cost for these data"
    ]
    shown = {fact["from"].rpartition("/")[2]: fact for fact in section["facts"]}
    assert shown["epsilon"]["value"] == cost
    assert cost <= float(shown["epsilon"]["text"]) <= 1.01 * cost
    assert "What it cost for these data" not in to_markdown(card_of(record("confident")))
    made["facts"]["data_dependent"]["private"] = False
    assert any("data_dependent/private" in place for place in missing_in(card_of(made)))


@pytest.mark.parametrize(
    ("confidence", "text"), [(0.999, "99.9 %"), (0.99999, "99.99 %"), (0.5, "50 %")]
)
def test_a_confidence_is_never_rounded_up(confidence, text):
    assert pate_facts._confidence_text(confidence) == text


def test_whoever_brought_teachers_is_named_as_the_one_who_vouches(record):
    own, here = (to_markdown(card_of(record(name))) for name in ("confident", "taught"))
    promise = "that one hospital more or less changes one teacher only"
    assert promise in own
    assert "vouches for it" not in here
    assert "whoever brought the teachers" in own


@pytest.mark.parametrize(
    "path",
    [
        "facts/teachers", "facts/answers", "facts/questions", "facts/public_inputs",
        "facts/tuning", "facts/parts_made_disjoint_by", "parameters/plan/aggregator/kind",
        "parameters/recipe/student/kind", "parameters/recipe/kind", "facts/accuracy",
        "guarantee/neighbours", "event",
    ],
)  # fmt: skip
def test_it_says_what_is_not_on_record(record, path):
    made = record("taught")
    *above, last = path.split("/")
    place = made
    for key in above:
        place = place[key]
    del place[last]
    found = missing_in(card_of(made))
    assert any(one.startswith(f"a/record.json#/{path}") for one in found), found


def paths_in(value, so_far=()):
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in list(inside)[:8]:
        yield (*so_far, key)
        if isinstance(below, dict | list):
            yield from paths_in(below, (*so_far, key))


@settings(max_examples=15)
@given(st.data())
def test_whatever_is_damaged_is_not_invented(taught, data):
    made = json.loads((taught / "confident" / "record.json").read_text())
    path = data.draw(st.sampled_from(list(paths_in(made))))
    junk = data.draw(st.sampled_from([None, "x", -1, 1e300, [], {}, [None], True]))
    place = made
    for key in path[:-1]:
        place = place[key]
    if junk is None:
        del place[path[-1]]
    else:
        place[path[-1]] = junk
    document, look = card_of(made), Sources({"record.json": made}, "a")
    for section in to_json(document)["sections"]:
        for fact in section["facts"]:
            at = fact["from"].removeprefix("computed from ").removeprefix("a/")
            assert look.has(at)
    to_markdown(document)


def test_the_command_teaches_by_the_same_recipe(taught, record, tmp_path, monkeypatch):
    for name, extra in (("taught", False), ("confident", True)):
        found = to_json(card_of(record(name)))["sections"]
        facts = [fact["value"] for section in found for fact in section["facts"]]
        (command,) = [one for one in facts if str(one).startswith("sfumato train pate")]
        assert ("--teacher-labels labels.npy" in command) == extra
        shutil.copy(taught / name / "record.json", tmp_path / "record.json")
        shutil.copy(taught / "labels.npy", tmp_path)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(command)[1:], "--dry-run", "--json"])
        assert not ended.value.code


def test_public_inputs_that_were_given_are_asked_for_again(record):
    made = record("taught")
    made["facts"]["public_inputs_are"] = "given as public, by whoever holds the data"
    assert "--unlabelled inputs.npy" in to_markdown(card_of(made))


# --- the curator's --------------------------------------------------------------------------------

SENTINEL = 8461937


def poison(value):
    if isinstance(value, dict):
        return {key: poison(below) for key, below in value.items()}
    if isinstance(value, list):
        return [poison(below) for below in value]
    return "SENTINEL" if isinstance(value, str) else SENTINEL


def test_nothing_of_the_curator_is_on_the_card(taught, tmp_path):
    shutil.copytree(taught / "taught", tmp_path / "taught")
    formats = (to_html, to_markdown, lambda document: json.dumps(to_json(document)))
    for path in (tmp_path / "taught" / "curator").glob("*.json"):
        path.write_text(json.dumps(poison(json.loads(path.read_text()))))
    before = [make(privacy_card([PublicRun.read(tmp_path / "taught")])) for make in formats]
    for text in before:
        assert "SENTINEL" not in text
        assert str(SENTINEL) not in text.replace(",", "")
    shutil.rmtree(tmp_path / "taught" / "curator")
    after = [make(privacy_card([PublicRun.read(tmp_path / "taught")])) for make in formats]
    assert before == after


def agreed(document):
    (section,) = [one for one in document.sections if one.heading == "Did the teachers agree?"]
    return section.blocks


def test_agreement_and_costs_are_the_curator_s(taught, read_html, at_place, places_in):
    both = [CuratorRun.read(taught / name) for name in ("taught", "confident")]
    document = curator_report(both)
    warning, table, *pictures = agreed(document)
    assert warning.kind == "warning"
    assert "For the curator alone" in warning.text
    files = {
        f"{name}/{file}": json.loads((taught / name / file).read_text())
        for name in ("taught", "confident")
        for file in ("record.json", "curator/results.json")
    }
    for (name, *cells), run in zip(table.rows, ("taught", "confident"), strict=True):
        assert name == run
        curve = files[f"{run}/curator/results.json"]["curve"]
        parts = ("questions", "answers", "independent", "dependent")
        assert [cell.value for cell in cells] == [curve[part][-1] for part in parts]
        assert float(str(cells[3])) >= curve["dependent"][-1]
    assert len(pictures) == 4
    histogram, costs = pictures[2].figure.axes[0], pictures[3].figure.axes[0]
    kept = files["confident/curator/results.json"]
    assert [bar.get_height() for bar in histogram.patches] == kept["agreement"]["counts"]
    assert list(costs.lines[1].get_ydata()) == kept["curve"]["dependent"]
    page = read_html(to_html(document))
    assert not any(letter.isdigit() for letter in page.loose), page.loose
    for source in page.figures:
        for place in places_in(source):
            at_place(files, place)


def test_results_that_are_missing_or_damaged(taught, tmp_path):
    shutil.copytree(taught / "confident", tmp_path / "a")
    file = tmp_path / "a/curator/results.json"
    kept = json.loads(file.read_text())
    for change in (
        lambda seen: seen.pop("agreement"),
        lambda seen: seen["agreement"]["counts"].pop(),
        lambda seen: seen["curve"].pop("dependent"),
        lambda seen: seen["curve"].update(questions=[]),
        lambda seen: seen["curve"].update(delta="x"),
        lambda seen: seen["curve"].update(independent=[None]),
    ):
        seen = copy.deepcopy(kept)
        change(seen)
        file.write_text(json.dumps(seen))
        document = curator_report([CuratorRun.read(tmp_path / "a")])
        assert any("curator/results.json#/" in place for place in missing_in(document))
        to_markdown(document)
    file.unlink()
    document = curator_report([CuratorRun.read(tmp_path / "a")])
    assert "a/curator/results.json" in missing_in(document)


# --- beside others --------------------------------------------------------------------------------


def test_beside_a_run_of_dp_sgd(taught, runs):
    public = [PublicRun.read(taught / "taught"), PublicRun.read(runs / "private")]
    card = privacy_card(public)
    (table,) = card.sections[0].blocks
    assert [row[0] for row in table.rows] == ["taught", "private"]
    assert [row[1].value for row in table.rows] == [
        run.sources.raw("record.json#/guarantee/epsilon") for run in public
    ]
    text = to_markdown(card)
    assert "private: how it was made" in text
    assert "taught: what it cost for these data" in text
    paths = (taught / "taught", runs / "private", runs / "plain")
    document = curator_report([CuratorRun.read(path) for path in paths])
    assert len(agreed(document)) == 4
    assert "taught: the guarantee" in [section.heading for section in document.sections]
    to_html(document)


def test_without_such_a_run_teachers_are_not_spoken_of(runs):
    document = curator_report([CuratorRun.read(runs / "private")])
    assert "Did the teachers agree?" not in [section.heading for section in document.sections]


def test_accuracy_against_epsilon_has_its_own_line(taught):
    both = [CuratorRun.read(taught / name) for name in ("taught", "laplace")]
    (section,) = [
        one for one in curator_report(both).sections if one.heading == "What privacy costs"
    ]
    figure = section.blocks[0].figure
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["teachers, and supervised"]
