"""``sfumato query`` and ``sfumato data`` as people type them."""

import json

import numpy as np
import pandas as pd
import pytest

from sfumato.cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pd.DataFrame(
        {
            "patient_id": rng.integers(0, 900, 2000),
            "age": rng.integers(0, 100, 2000),
            "city": rng.choice(["Rome", "Milan", "Bari"], 2000),
            "smoker": rng.random(2000) < 0.3,
        }
    ).to_parquet(tmp_path / "patients.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = (
    "query patients.parquet --unit patient_id --max-rows 3 --max-groups 2 "
    "--domain city=Rome,Milan,Bari --budget 20 --budget-delta 1e-5"
).split()


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def ask(capsys, *words):
    code, out, err = run(capsys, *TABLE, *words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize(
    "words",
    [
        "count --epsilon 0.5",
        "count --units --epsilon 0.5",
        "count --epsilon 0.5 --delta 1e-7",
        "sum age 0 100 --epsilon 0.5",
        "mean age 0 100 --epsilon 0.5 --by city",
        "variance age 0 100 --epsilon 0.5",
        "quantile age 0.9 0 100 --epsilon 0.5",
        "median age 0 100 --epsilon 0.5 --no-interval",
        "histogram age --edges 0,50,100 --epsilon 0.5",
        "histogram city --keys Rome,Milan --epsilon 0.5",
        "crosstab smoker city --epsilon 0.5",
        "count --by city --private-keys --epsilon 0.5 --delta 1e-7",
        "most-common city --epsilon 0.5 --winners 2",
        "arg-max city age 0 100 --epsilon 0.5",
    ],
)
def test_every_question_answers_in_json_with_its_price(folder, capsys, words):
    answer = ask(capsys, *words.split())
    assert answer["epsilon"] == 0.5
    assert answer["unit"] == "patient"
    assert answer["neighbours"] == "add-remove"
    assert answer["rows"]
    assert answer["left"] < 20


def test_people_read_one_line(folder, capsys):
    words = ["count", "--where", "age > 60", "--where", "smoker", "--epsilon", "0.1"]
    code, out, _ = run(capsys, *TABLE, *words)
    assert code == 0
    assert "rows +/- 90 (95%: a patient may hold 3), 19.9 of 20 left" in out


def test_options_of_the_table_may_come_before_the_source_too(folder, capsys):
    words = ["--unit", "patient_id", "--max-rows=3", "--budget", "1", "--same-data-ok"]
    code, _, _ = run(capsys, "query", *words, "patients.parquet", "count", "--epsilon", "0.1")
    assert code == 0


def test_a_preview_spends_nothing(folder, capsys):
    before = ask(capsys, "count", "--epsilon", "1")["left"]
    preview = ask(capsys, "count", "--epsilon", "1", "--preview")
    assert preview["passes"] is True
    assert ask(capsys, "count", "--epsilon", "1")["left"] == pytest.approx(before - 1)


def test_several_questions_from_a_file_and_the_same_key_again(folder, capsys):
    questions = [
        {"query": "count", "epsilon": 0.1, "where": "age > 60"},
        {"query": "most-common", "column": "city", "epsilon": 0.2},
        {
            "query": "group-by",
            "columns": ["city"],
            "of": {"query": "mean", "column": "age", "lower": 0, "upper": 100, "epsilon": 0.3},
        },
    ]
    (folder / "q.json").write_text(json.dumps(questions))
    assert run(capsys, *TABLE, "preview", "q.json")[0] == 0
    first = ask(capsys, "ask", "q.json", "--key", "monday")
    again = ask(capsys, "ask", "q.json", "--key", "monday")
    assert first == again
    assert first["answers"][0]["left"] == pytest.approx(20 - 0.6, abs=1e-9)


def test_plots_are_written(folder, capsys):
    assert run(capsys, *TABLE, *"crosstab smoker city --epsilon 1 --plot a.png".split())[0] == 0
    assert run(capsys, *TABLE, *"count --epsilon 1 --by city --plot b.svg".split())[0] == 0
    assert (folder / "a.png").stat().st_size > 10_000
    assert "<svg" in (folder / "b.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("count --epsilon -1", "epsilon must be"),
        ("count --epsilon 21", "refused by the dataset"),
        ("sum nope 0 1 --epsilon 0.1", "column must be one of"),
        ("sum age 5 1 --epsilon 0.1", "lower bound below"),
        ("sum city 0 1 --epsilon nope", "not a valid float"),
        ("count --where age>1;DROP --epsilon 0.1", "one condition"),
        ("histogram age --epsilon 0.1", "must be public"),
        ("ask missing.json", "missing.json: No such file"),
        ("nonsense", "No such command"),
    ],
)
def test_mistakes_are_one_line_and_cost_nothing(folder, capsys, words, said):
    ask(capsys, "count", "--epsilon", "0.5")
    code, out, err = run(capsys, *TABLE, *words.split())
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert ask(capsys, "count", "--epsilon", "0.5")["left"] == pytest.approx(19)


def test_the_second_time_the_budget_is_known(folder, capsys):
    ask(capsys, "count", "--epsilon", "0.5")
    short = ["query", "patients.parquet", "--unit", "patient_id", "--max-rows", "3"]
    assert run(capsys, *short, "count", "--epsilon", "0.1")[0] == 0
    code, _, err = run(capsys, *short, "--budget", "99", "count", "--epsilon", "0.1")
    assert code == 2
    assert "99" in err


def test_data_is_listed_and_written(folder, capsys):
    assert "labsup" in run(capsys, "data", "list")[1]
    assert run(capsys, "data", "get", "credit_ratings", "--out", "r.csv")[0] == 0
    assert len((folder / "r.csv").read_text().splitlines()) == 1714
    code, _, err = run(capsys, "data", "get", "nobody")
    assert code == 2
    assert "labsup" in err


def test_a_new_budget_is_announced_once(folder, capsys):
    words = [*TABLE, "count", "--epsilon", "0.1", "--preview"]
    assert "opened the budget of 'patients'" in run(capsys, *words)[2]
    assert "opened" not in run(capsys, *words)[2]


def test_bounds_may_be_negative_and_edges_must_be_numbers(folder, capsys):
    assert ask(capsys, *"sum age -10 100 --epsilon 0.5".split())["epsilon"] == 0.5
    code, _, err = run(capsys, *TABLE, *"histogram age --edges 0,a --epsilon 1".split())
    assert code == 2
    assert "--edges must be numbers" in err


def test_the_history_says_median(folder, capsys):
    """Not the quantile that it is as well."""
    answer = ask(capsys, *"median age 0 100 --candidates 10 --epsilon 0.5".split())
    assert answer["query"]["query"] == "Median"
    code, out, _ = run(capsys, "ledger", "history", "patients")
    assert code == 0
    assert "median of age" in out


def test_a_preview_that_does_not_pass_says_why(folder, capsys):
    ask(capsys, "count", "--epsilon", "0.5")
    code, out, _ = run(capsys, *TABLE, *"count --epsilon 99 --preview".split())
    assert code == 0
    assert "the cap is 20" in out


def test_questions_in_a_file_may_be_grouped(folder, capsys):
    question = {"query": "mean", "column": "age", "lower": 0, "upper": 100, "epsilon": 0.3}
    (folder / "q.json").write_text(json.dumps([question | {"by": "city", "keys": ["Rome"]}]))
    assert ask(capsys, "ask", "q.json")["rows"][0]["city"] == "Rome"
