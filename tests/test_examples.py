"""The examples run, at small size, and what they show holds."""

import csv
import json
import math
import re
import runpy
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import binom

import sfumato as sf
from sfumato.attacks.differencing import best_accuracy
from sfumato.core.events import event_from_dict
from sfumato.federated.views import message_event

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = (
    "federated_hospitals",
    "hospital_statistics",
    "local_survey",
    "private_images",
    "private_language_model",
    "red_team",
)


def loaded(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


def ran(name, folder, coins):
    """What an example returns, with its file's names and the folder it wrote to."""
    example, out = loaded(name), folder / "out"
    with coins(1):
        found = example["main"](out, small=True)
    return found | {"example": example, "out": out, "own": folder / "out-curator"}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def texts(folder):
    return "".join(path.read_text() for path in folder.iterdir() if path.suffix not in _BINARY)


_BINARY = (".png", ".safetensors")


@pytest.fixture(scope="module")
def hospital(tmp_path_factory, same_coins):
    return ran("hospital_statistics", tmp_path_factory.mktemp("hospital"), same_coins)


@pytest.fixture(scope="module")
def images(tmp_path_factory, same_coins):
    return ran("private_images", tmp_path_factory.mktemp("images"), same_coins)


@pytest.fixture(scope="module")
def notes(tmp_path_factory, same_coins):
    pytest.importorskip("peft")
    return ran("private_language_model", tmp_path_factory.mktemp("notes"), same_coins)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory, same_coins):
    return ran("federated_hospitals", tmp_path_factory.mktemp("hospitals"), same_coins)


@pytest.fixture(scope="module")
def team(tmp_path_factory, same_coins):
    return ran("red_team", tmp_path_factory.mktemp("team"), same_coins)


@pytest.fixture(scope="module")
def survey(tmp_path_factory, same_coins):
    return ran("local_survey", tmp_path_factory.mktemp("survey"), same_coins)


# --- all of them ----------------------------------------------------------------------------------


def test_all_examples_are_here_and_in_the_table():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(NAMES)
    table = (EXAMPLES / "README.md").read_text()
    assert all(f"{name}.py" in table for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_they_say_how_they_are_run(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--out FOLDER" in said
    assert "--small" in said


def test_a_budget_is_not_reset_by_running_again(hospital):
    with pytest.raises(SystemExit, match="never reset"):
        hospital["example"]["main"](hospital["out"], small=True)


# --- hospital_statistics --------------------------------------------------------------------------


def test_statistics_are_paid_for_exactly_and_no_further(hospital):
    status = hospital["people"].status
    assert (status.reading, status.left) == (2.0, 0.0)
    assert status.releases == 1 + 2 + hospital["asked_again"] == 5
    assert sum(answer.guarantee.epsilon for answer in hospital["answers"]) == pytest.approx(1.7)
    for answer in hospital["answers"]:
        assert answer.private
        assert (answer.guarantee.delta, answer.guarantee.unit) == (0.0, "patient")
    assert hospital["people"].ledger.verify("admissions").ok


def test_statistics_are_near_the_truth(hospital):
    patients, admissions, mean, median, long, wards, ages = hospital["answers"]
    table, most = hospital["table"], hospital["example"]["ROWS_A_PATIENT"]
    visits = table.groupby("patient_id").size().clip(upper=most)
    beyond = math.log(1e8)  # scales of Laplace noise, passed once in so many draws
    assert abs(patients.value - len(visits)) < beyond / 0.1
    assert abs(admissions.value - visits.sum()) < beyond * most / 0.2
    assert abs(mean.value - table["days"].clip(0, 60).mean()) < 3
    assert 3 < median.value < 8
    assert 9 < long.value < 20
    assert abs(sum(wards.values.values()) - visits.sum()) < 8 * beyond * most / 0.3
    assert abs(sum(ages.values.values()) - visits.sum()) < 0.03 * len(table) + (
        5 * beyond * most / 0.2
    )


def test_what_is_published_holds_statistics_alone(hospital):
    out, table = hospital["out"], hospital["table"]
    assert files(out) == ["age.png", "answers.json", "card.html", "statistics.csv", "wards.png"]
    assert mode(hospital["own"]) == 0o700
    published = texts(out)
    for column in ("patient_id", "district", "born", "depression"):
        assert column not in published
    for row in table.head(200).itertuples(index=False):
        assert ",".join(map(str, row)) not in published
    released = {c.value for answer in hospital["answers"] for c in answer.cells}
    with (out / "statistics.csv").open() as file:
        assert {float(row["value"]) for row in csv.DictReader(file)} == released


def test_differencing_finds_a_patient_in_exact_counts_and_not_in_private_ones(hospital):
    assert hospital["exact"].difference == 1
    guesses = hospital["guesses"]
    by_chance = 5.5 * 0.5 / math.sqrt(guesses.yes + guesses.no)
    assert guesses.accuracy < best_accuracy(0.2) + by_chance


# --- private_images -------------------------------------------------------------------------------


def test_the_private_model_keeps_its_promise_and_is_charged_once(images):
    how, guarantee = images["how"], images["record"].guarantee
    assert guarantee.epsilon <= how.epsilon
    assert guarantee.delta == how.delta
    status = images["ledger"].status(how.data)
    assert status.releases == 1
    assert guarantee.epsilon <= status.reading <= guarantee.epsilon + 1e-9
    # By theorem refuted with probability 0.05 at most. Of a finished model, whose scores are next
    # to nothing but noise, all of 64 guesses would have to be right.
    assert not images["finding"].refuted


def test_the_odd_are_learnt_by_heart_without_privacy_alone(images):
    (plain, _), (private, _) = images["reports"].values()
    assert plain.auc > 0.9
    assert private.auc < 0.8


def test_the_published_model_is_the_recorded_one(images):
    out, model = images["out"], images["example"]["network"](64)
    assert files(out) == ["card.html", "model.safetensors", "record.json"]
    model.load_state_dict(load_file(out / "model.safetensors"))
    record = json.loads((out / "record.json").read_text())
    right = images["example"]["accuracy"](model, *images["test"])
    assert record["facts"]["accuracy"] == right > 0.5
    assert record["private"] is True


def test_nothing_the_curator_saw_is_published(images):
    assert "AUC" not in re.sub("<svg.*?</svg>", "", texts(images["out"]), flags=re.DOTALL)
    assert "loss" not in json.loads((images["out"] / "record.json").read_text())["facts"]
    assert files(images["own"])[0] == "attacks.png"
    assert mode(images["own"]) == 0o700


# --- private_language_model -----------------------------------------------------------------------


def test_adapters_learn_what_patients_share_and_not_their_codes(notes):
    (before, _), (plain, told), (private, kept) = notes["found"].values()
    assert before < 0.25  # of eight drugs
    assert plain > 0.9
    assert private > 0.5
    assert np.median(told) < 0.15 < 0.25 < np.median(kept)


def test_a_patient_is_the_unit_and_is_charged_once(notes):
    guarantee, ledger = notes["trainer"].guarantee, notes["ledger"]
    assert (guarantee.unit, guarantee.epsilon <= notes["how"].epsilon) == ("patient", True)
    assert ledger.status("notes").releases == 1
    assert ledger.verify("notes").ok


def test_adapters_are_published_and_losses_are_not(notes):
    out = notes["out"]
    names = ["README.md", "adapter_config.json", "adapter_model.safetensors", "record.json"]
    assert files(out) == names
    assert "loss" not in (out / "record.json").read_text()
    assert (notes["own"] / "run" / "trainer_state.json").exists()
    assert mode(notes["own"]) == 0o700
    weights = load_file(out / "adapter_model.safetensors")
    assert all("lora" in name for name in weights)


# --- federated_hospitals --------------------------------------------------------------------------


def test_every_observer_has_a_guarantee_but_a_server_that_adds_the_noise(hospitals):
    epsilon = hospitals["epsilon"]
    shares, by_each, central = hospitals["ways"].values()
    for way in (shares, by_each, central):
        assert way.guarantee("released models").epsilon <= epsilon
    assert shares.guarantee("server").epsilon <= epsilon
    assert by_each.guarantee("server").epsilon <= epsilon
    assert central.guarantee("server").epsilon == math.inf
    assert hospitals["trained"].record.guarantee.epsilon <= epsilon


def test_one_drops_out_and_the_run_goes_on(hospitals):
    assert [facts.survivors for facts in hospitals["watched"]] == [5, 5, 5, 4, 4, 4]
    assert all(facts.used for facts in hospitals["watched"])


def test_each_hospital_is_charged_for_what_it_sent(hospitals):
    shares, by_each, _ = hospitals["ways"].values()
    rounds, gone = shares.rounds, hospitals["example"]["GONE"]
    for name, ledger in hospitals["ledgers"].items():
        events = [
            event_from_dict(entry.data["event"])
            for entry in ledger.history("scans")
            if entry.kind == "reserve"
        ]
        assert events.count(message_event(shares)) == (3 if name == gone else rounds)
        assert events.count(message_event(by_each)) == rounds
        assert len(events) - events.count(message_event(shares)) - rounds == 1  # by itself
        assert ledger.status("scans").reading <= hospitals["example"]["BUDGET"].epsilon
        assert ledger.verify("scans").ok


def test_hospitals_publish_a_model_and_no_names(hospitals):
    out = hospitals["out"]
    assert files(out) == ["card.html", "model.safetensors", "record.json"]
    assert not any(name in texts(out) for name in hospitals["hospitals"])
    weights = load_file(out / "model.safetensors")
    assert sorted(value.numel() for value in weights.values()) == [10, 640]
    assert torch.cat([value.flatten() for value in weights.values()]).isfinite().all()


# --- red_team -------------------------------------------------------------------------------------


def right(finding):
    """The share of guesses about coins that were right."""
    return finding.facts["right"] / finding.facts["guesses"]


def test_the_honest_vendor_is_not_accused(team):
    """By theorem accused with probability 0.01 at most: that of 160 right among 200 coins, here."""
    finding = team["results"]["vendor-a"]["audit"]
    assert not finding.refuted
    assert finding.epsilon <= 1.0
    assert right(finding) < 0.75


def test_the_other_vendor_is_caught(team):
    found = team["results"]["vendor-b"]
    assert found["audit"].refuted
    assert found["audit"].epsilon > 1.0
    assert right(found["audit"]) > 0.9
    assert min(report.auc for report in found["members"].values()) > 0.75
    assert found["members"]["LiRA, own shadows"].exceeds(1.0, 1e-5)


def test_the_red_team_keeps_its_report_to_itself(team):
    out = team["out"]
    assert files(out) == ["report.html", "vendor-a", "vendor-b"]
    assert (mode(out), mode(out / "report.html")) == (0o700, 0o600)
    page = (out / "report.html").read_text()
    assert "For the curator only" in page
    assert "refuted" in page
    for vendor, found in team["results"].items():
        kept = json.loads((out / vendor / "curator" / "audit.json").read_text())
        assert kept["verdict"] == found["audit"].verdict.value


# --- local_survey ---------------------------------------------------------------------------------


def test_two_questions_cost_both_epsilons(survey):
    assert (survey["both"].epsilon, survey["both"].delta) == (2.0, 0.0)
    status = survey["ledger"].status("mothers")
    assert (status.reading, status.left, status.releases) == (2.0, 0.0, 2)


def test_estimates_are_near_the_truth_and_a_curator_s_are_nearer(survey):
    people, (young, earned) = survey["people"], survey["truths"]
    response = math.sqrt(people * math.e) / (math.e - 1)
    assert abs(survey["local"][0].value - young) < 6 * response
    assert abs(survey["local"][1].value - earned) < 6 * 60 * math.sqrt(2 / people)
    (count, _), (mean, _) = survey["central"]
    assert abs(count - young) < 20
    assert abs(mean - earned) < 20 * 60 / people + 0.001


def test_intervals_hold_as_often_as_they_say(survey):
    least = binom.ppf(1e-7, survey["times"], 0.94)
    assert all(held >= least for held in survey["held"])


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
def test_so_many_people_are_enough_and_fewer_are_not(survey, epsilon):
    widths, needed = (survey["example"][name] for name in ("half_widths", "people_needed"))
    for way, people in needed(epsilon, 0.01).items():
        assert widths(epsilon, people)[way] <= 0.01
        assert widths(epsilon, people - 1)[way] > 0.01


def test_half_widths_are_the_mechanisms_own(survey):
    """Of a million made-up people; textbook intervals and the package's agree there."""
    people, widths = 1_000_000, survey["example"]["half_widths"](1.0, 1_000_000)
    ours = sf.LocalCount(1.0).estimate(np.arange(people) % 2).interval
    assert (ours[1] - ours[0]) / 2 / people == pytest.approx(
        widths["randomised response"], rel=0.01
    )
    ours = sf.LocalMean(0, 1, 1.0).estimate(np.full(people, 0.5)).interval
    assert (ours[1] - ours[0]) / 2 == pytest.approx(widths["local Laplace"], rel=0.01)


def test_a_survey_publishes_estimates_alone(survey):
    assert files(survey["out"]) == ["errors.png", "survey.csv"]
    with (survey["out"] / "survey.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert float(rows[0]["value"]) == survey["local"][0].value
    assert all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in rows)
