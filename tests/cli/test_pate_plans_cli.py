"""Plans of PATE and the curator's look at votes, as people type them."""

import json
import shlex

import pytest

PNG = b"\x89PNG\r\n"
SMALL = (
    "train pate --data digits --teachers 6 --sigma 3 --answers 20 --test-rows 100 --student "
    "supervised --steps 20 --device cpu --no-progress --out a"
)


# --- what answers cost ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "epsilon"),
    [
        ("--sigma 40 --answers 286", 2.4354),
        ("--aggregator confident --sigma-check 150 --answers 286 --questions 640", 2.5426),
        ("--aggregator interactive --sigma-check 150 --answers 286 --questions 640", 2.5426),
        ("--aggregator lnmax --answers 100", 2.893),
        ("--answers 286 --accountant rdp", 2.6425),
    ],
)
def test_what_answers_cost(run, options, epsilon):
    code, out, _ = run(f"account pate {options} --json")
    found = json.loads(out)
    assert code == 0
    assert found["epsilon"] == pytest.approx(epsilon, abs=2e-3)
    assert {"delta", "neighbours", "unit", "event", "plan"} < set(found)
    assert found["accountants"]["basic"] > found["accountants"]["rdp"] > found["accountants"]["pld"]


def test_twice_as_many_questions_as_answers_where_it_is_not_said(run):
    _, out, _ = run("account pate --aggregator confident --answers 100 --json")
    plan = json.loads(out)["plan"]
    assert (plan["questions"], plan["aggregator"]["sigma_check"]) == (200, 160.0)


def test_every_accountant_for_people_and_a_plot(run, tmp_path):
    code, out, _ = run("account pate --answers 20 --plot costs.png")
    assert code == 0
    words = " ".join(out.split())
    assert "gnmax, sigma 40" in words
    assert "pld 0.5" in words
    assert "basic" in words
    assert (tmp_path / "costs.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--answers 0", "answers must be a whole number, 1 or above"),
        ("--answers 10 --aggregator median", "aggregator must be one of lnmax"),
        ("--answers 10 --sigma -1", "sigma must be"),
        ("--answers 10 --aggregator lnmax --gamma 0", "gamma must be"),
        ("--answers 10 --aggregator confident --questions 5", "questions must be"),
        ("--answers 10 --accountant best", "accountant must be"),
        ("--answers 10 --delta 2", "delta must be"),
    ],
)
def test_bad_costs_are_named(run, options, words):
    code, _, err = run(f"account pate {options}")
    assert code == 2
    assert words in " ".join(err.split())


# --- which choice ---------------------------------------------------------------------------------


def choices(run, options):
    code, out, _ = run(f"calibrate pate {options} --json")
    assert code == 0
    return json.loads(out)


def test_answers_given_the_surest_number_of_teachers_is_best(run):
    found = choices(run, "--epsilon 2 --answers 100 --teachers 25,250,1000 --aggregator gnmax")
    assert (found["epsilon"], found["unit"], found["agreement"]) == (2.0, "record", "mnist")
    rows = found["choices"]
    sigmas = [row["forecast"]["aggregator"]["sigma"] for row in rows]
    assert sigmas == pytest.approx([28.2] * 3, abs=0.01)  # the same noise, whatever their number
    assert [row["best"] for row in rows] == [False, True, False]
    right = [row["forecast"]["right"] for row in rows]
    assert right[0] < 0.5 < 0.94 < right[1]
    assert all(row["forecast"]["epsilon"] <= 2 for row in rows)


def test_a_best_for_each_number_of_answers(run):
    found = choices(run, "--epsilon 2 --answers 50,200 --teachers 50,250 --aggregator gnmax")
    assert [(row["forecast"]["answers"], row["best"]) for row in found["choices"]] == [
        (50, False), (200, False), (50, True), (200, True),
    ]  # fmt: skip


def test_noise_given_as_many_answers_as_fit(run):
    options = "--epsilon 2 --noise 40,80 --teachers 250 --aggregator gnmax --agreement 0.9,0.8"
    rows = choices(run, options)["choices"]
    assert [row["forecast"]["answers"] for row in rows] == [201, 804]
    assert [row["best"] for row in rows] == [True, False]  # the other is not right 95 % of the time
    assert rows[0]["forecast"]["right"] is None
    assert choices(run, f"{options} --sure 0.9")["choices"][1]["best"]


def test_with_neither_as_much_noise_as_answers_bear(run):
    found = choices(run, "--epsilon 2 --teachers 50,250 --agreement 0.9 --accountant rdp")
    assert found["accountant"] == "rdp"
    rows = found["choices"]
    assert all(0.95 <= row["forecast"]["plurality"] < 0.952 for row in rows)
    assert [row["best"] for row in rows].index(True) >= 2  # more teachers bear more noise


def test_agreement_from_a_file(run, tmp_path):
    shares = [[0.9, 0.1], [0.8, 0.2]]
    (tmp_path / "one.json").write_text(json.dumps(shares))
    (tmp_path / "by.json").write_text(json.dumps({"250": shares, "50": [[1.0, 0.0]]}))
    options = "--epsilon 2 --answers 200 --teachers 250 --aggregator gnmax"
    typed = choices(run, f"{options} --agreement 0.9,0.8")["choices"]
    assert choices(run, f"{options} --agreement one.json")["choices"] == typed
    assert choices(run, f"{options} --agreement by.json")["choices"] == typed
    code, _, err = run(f"calibrate pate {options} --agreement by.json --teachers 100")
    assert code == 2
    assert "one of those in by.json (250, 50)" in err


def test_the_table_marks_the_best_and_says_how_to_train_by_it(run):
    code, out, _ = run("calibrate pate --epsilon 2 --answers 100 --teachers 50,250 --unit person")
    assert code == 0
    words = " ".join(out.split())
    assert "best 250 confident" in words
    assert "add or remove one person" in words
    command = next(line for line in out.splitlines() if line.startswith("Best: sfumato "))
    command = command.removeprefix("Best: sfumato ").replace("--data ...", "--data mnist")
    assert "--teachers 250 --aggregator confident" in command
    code, out, _ = run(f"{command} --dry-run --json")
    assert code == 0
    plan = json.loads(out)
    assert 1.99 < plan["epsilon"] <= 2
    assert plan["plan"]["answers"] == 100
    assert shlex.split(command)[shlex.split(command).index("--questions") + 1] == str(
        plan["plan"]["questions"]
    )


def test_nothing_is_best_where_nothing_is_good_enough(run):
    code, out, _ = run("calibrate pate --epsilon 2 --teachers 25 --sure 0.999 --aggregator gnmax")
    assert code == 0
    assert "none" in out
    assert "None is right 99.9 % of the time" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--epsilon 0", "epsilon must be"),
        ("--epsilon 2 --answers 100 --noise 4", "--answers or --noise"),
        ("--epsilon 2 --answers many", "answers must be numbers with commas between"),
        ("--epsilon 2 --answers 1.5", "answers must be a whole number"),
        ("--epsilon 2 --noise=-4", "noise must be"),
        ("--epsilon 2 --teachers 1", "teachers must be a whole number, 2 or above"),
        ("--epsilon 2 --teachers 5000", "teachers must be at most 1000 for 60000 rows"),
        ("--epsilon 2 --aggregator interactive", "depends on the student"),
        ("--epsilon 2 --aggregator median", "aggregator must be among"),
        ("--epsilon 2 --agreement 0.3", "agreement must be"),
        ("--epsilon 2 --agreement no.json", "agreement must be mnist, shares"),
        ("--epsilon 2 --sure 1", "sure must be"),
    ],
)
def test_bad_plans_are_named(run, options, words):
    code, _, err = run(f"calibrate pate {options}")
    assert code == 2
    assert words in " ".join(err.split())


# --- the curator's look at votes ------------------------------------------------------------------


def test_votes_of_a_run_are_for_its_curator(run, tmp_path):
    assert run(f"{SMALL} --json")[0] == 0
    code, out, _ = run("train votes a --plot votes.png")
    assert code == 0
    assert out.count("FOR YOU ALONE") == 1
    for words in ("Share of 6 teachers", "gnmax (this run)", "lnmax", "confident", "about "):
        assert words in out
    assert (tmp_path / "votes.png").read_bytes().startswith(PNG)
    code, out, _ = run("train votes a --bins 5 --json")
    assert code == 0
    found = json.loads(out)
    assert found["curator_only"] is True
    assert list(found["views"]) == ["gnmax", "lnmax", "confident"]
    kept = json.loads((tmp_path / "a/curator/results.json").read_text())
    assert found["views"]["gnmax"]["curve"] == kept["curve"]
    assert sum(found["views"]["lnmax"]["agreement"]["counts"]) == 20
    public = (tmp_path / "a/record.json").read_text()
    assert "agreement" not in public
    assert "dependent" not in public


def test_no_votes_no_view(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = run("train votes empty")
    assert code == 2
    assert "must hold a run" in err
