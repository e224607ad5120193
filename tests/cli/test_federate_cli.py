"""``sfumato federate``: plan, account, simulate."""

import json

import pytest

from sfumato.cli.main import main
from sfumato.federated.federation import Federation
from sfumato.federated.watching import RoundFacts, RoundLog


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["federate", *map(str, arguments)])
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def as_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


FEW = ("--data", "digits", "--participants", 6, "--rounds", 4)
LOCAL = (*FEW, "--steps", 5, "--rate", 0.5)
SMALL = (*LOCAL, "--noise-multiplier", 0.2)
PATIENTS = """
label = "ill"
classes = ["no", "yes"]
columns.age = { lower = 0, upper = 100 }
columns.city = { categories = ["Rome", "Milan"] }
"""


def test_account_says_every_observer(capsys):
    found = as_json(capsys, "account")
    by_observer = {view["observer"]: view["epsilon"] for view in found["views"]}
    assert by_observer["released models"] == pytest.approx(1.83, abs=0.005)
    assert by_observer["released models and who took part"] == pytest.approx(634, abs=1)
    assert by_observer["server"] == "inf" or by_observer["server"] is None
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(found)


def test_account_for_people(capsys):
    code, out, _ = run(capsys, "account", "--rounds", "10")
    assert code == 0
    assert "released models" in out
    assert "nobody" in out
    assert "given that another participant is there and answers" in " ".join(out.split())


def test_what_has_to_be_so_is_told_with_what_is_promised(capsys, tmp_path):
    condition = "given that another participant is there and answers"
    assert condition in as_json(capsys, "account")["note"]
    more = ("--rounds", 1, "--noise-multiplier", 2, "--steps", 1, "--no-progress")
    for number, relation in ((2, "add-remove"), (1, "zero-out")):
        folder = tmp_path / str(number)
        code, out, _ = run(
            capsys, "simulate", "--data", "digits", "--participants", number, *more, "--out", folder
        )
        assert code == 0
        promised = json.loads((folder / "record.json").read_text())["guarantee"]
        assert promised["neighbours"] == relation
        assert (condition in promised.get("note", "")) == (number > 1)
        assert (condition in " ".join(out.split())) == (number > 1)


def test_plan_writes_a_file_that_account_reads(capsys, tmp_path):
    file = tmp_path / "plan.json"
    planned = as_json(
        capsys, "plan", file, "--data", "digits", "--participants", 3, "--rounds", 5,
        "--work", "gradients", "--noise", "local", "--epsilon", 3,
    )  # fmt: skip
    views = {view["observer"]: view["epsilon"] for view in planned["views"]}
    assert 2.9 < views["server"] <= 3.0
    assert planned["least_survivors"] == 2
    assert as_json(capsys, "account", file)["views"] == planned["views"]
    assert Federation.read(file).digest == planned["digest"]
    code, _, err = run(capsys, "plan", file, "--noise-multiplier", 1, "--data", "digits")
    assert code == 2
    assert "is there" in err


@pytest.mark.parametrize(
    "arguments",
    [
        SMALL,
        (*SMALL, "--noise", "local"),
        (*FEW, "--work", "gradients", "--server-rate", 2, "--noise-multiplier", 0.2),
        (*SMALL, "--noise", "shared", "--participants", 4, "--rounds", 2),
        (*LOCAL, "--sum", "masked", "--noise", "none", "--participants", 4, "--rounds", 2),
        (*SMALL, "--sum", "hidden", "--noise", "local", "--rounds", 2),
        (*LOCAL, "--work", "selected", "--epsilon", 400, "--clip", 0.1),
        (*LOCAL, "--quantile", 0.5, "--noise-multiplier", 0.1),
    ],
)
def test_simulate(capsys, arguments):
    found = as_json(capsys, "simulate", *arguments)
    assert found["record"]["facts"]["rounds_sent"] in (2, 4)
    assert found["accuracy"] is None or found["accuracy"] > 0.05


def test_a_simulation_keeps_its_run_and_charges_round_by_round(capsys, tmp_path):
    ledger = tmp_path / "privacy.db"
    with pytest.raises(SystemExit):
        main(
            ["ledger", "create", "people", "--url", str(ledger), "--epsilon", "900", "--delta",
             "1e-5", "--unit", "client"]
        )  # fmt: skip
    capsys.readouterr()
    out = tmp_path / "run"
    code, said, err = run(
        capsys, "simulate", *SMALL, "--out", out, "--ledger", ledger, "--dataset", "people",
        "--progress",
    )  # fmt: skip
    assert code == 0, err
    assert "Kept in" in said
    assert "round 4 of 4: 6 of 6" in err
    assert json.loads((out / "record.json").read_text())["method"] == "federated"
    assert (out / "model.safetensors").exists()
    from sfumato.ledger import Ledger

    kinds = [entry.kind for entry in Ledger(ledger).history("people")]
    assert kinds.count("reserve") == 4


def told(capsys, *arguments):
    """The one line that a bad parameter is, and nothing else."""
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert not out
    assert err.startswith("sfumato: ")
    assert len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "--data", "digits"), "--epsilon or --noise-multiplier"),
        (("simulate", *FEW, "--noise", "loud"), "--noise must be"),
        (("simulate", *FEW, "--sum", "secret"), "--sum must be"),
        (("simulate", *FEW, "--work", "none"), "--work must be"),
        (("simulate", *SMALL, "--engine", "horse"), "engine must be"),
        (("simulate", *SMALL, "--partition", "fair"), "partition must be"),
        (("simulate", *SMALL, "--ledger", "no.db", "--dataset", "a"), "there is no ledger"),
        (("simulate", *FEW, "--rounds", 0), "rounds must be"),
        (("simulate", *FEW, "--participation", "nan"), "participation must be"),
        (("simulate", *SMALL, "--participants", 2000), "at most 718 for 2 shards"),
        (("simulate", "--data", "mine.csv", "--epsilon", 3), "federate plan FILE"),
        (("account", "nothing.json"), "nothing.json"),
        (("plan", "x.json", "--data", "digits", "--noise", "central", "--epsilon", "1",
          "--observer", "server"), "protects against 'server'"),
        (("plan", "x.json", *FEW, "--work", "selected", "--epsilon", 1, "--observer", "me"),
         "observer must be"),
        (("plan", "x.json", "--data", "mine.csv", "--epsilon", 3), "--declared FILE"),
        (("plan", "x.json", *FEW, "--noise-multiplier", 0), "--noise-multiplier"),
        (("plan", "x.json", *FEW, "--work", "gradients", "--records", 0, "--epsilon", 1),
         "records must be a whole number, 1 or above, got 0"),
        (("plan", "x.json", *FEW, "--noise", "local", "--least", 0, "--epsilon", 1),
         "least must be a whole number, 1 or above, got 0"),
        (("plan", "x.json", *FEW, "--sum", "masked", "--threshold", 0, "--epsilon", 1),
         "threshold must be a whole number, 2 or above, got 0"),
        (("plan", "x.json", *FEW, "--noise", "shared", "--threshold", 9, "--epsilon", 1),
         "threshold must be at most the 6 participants, or no sum would ever open, got 9"),
        (("plan", "x.json", *FEW, "--noise", "local", "--least", 6, "--epsilon", 1),
         "least must be at most 5 of 6 participants, besides whom 1 may look (colluders), got 6"),
        (("plan", "x.json", *FEW, "--sum", "masked", "--noise", "local", "--epsilon", 1),
         "--noise shared"),
        (("plan", "x.json", *FEW, "--quantile", 0.5, "--noise-multiplier", 2),
         "more than 20 participants"),
        (("plan", "x.json", *FEW, "--quantile", 0.5, "--noise", "local", "--epsilon", 1),
         "--noise central"),
        (("plan", "x.json", *FEW, "--model", "horse", "--noise-multiplier", 2), "horse"),
    ],
)  # fmt: skip
def test_bad_parameters_are_one_line_and_nothing_is_told_or_written(
    capsys, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.chdir(tmp_path)
    assert said in told(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "both"),
    [
        (("--noise", "none", "--epsilon", 3), ("--noise none", "--epsilon")),
        (("--noise", "none", "--noise-multiplier", 3), ("--noise none", "--noise-multiplier")),
        (("--epsilon", 3, "--noise-multiplier", 1), ("--epsilon", "--noise-multiplier")),
        (("--work", "selected", "--noise", "local", "--epsilon", 3),
         ("--work selected", "--noise local")),
        (("--work", "selected", "--noise-multiplier", 3), ("--work selected",
         "--noise-multiplier")),
        (("--noise", "shared", "--sum", "plain", "--epsilon", 3), ("--noise shared",
         "--sum plain")),
        (("--noise", "shared", "--sum", "hidden", "--epsilon", 3), ("--noise shared",
         "--sum hidden")),
        (("--noise-multiplier", 3, "--observer", "server"), ("--observer", "--epsilon")),
        (("--threshold", 5, "--epsilon", 3), ("--threshold", "--sum plain")),
        (("--least", 5, "--epsilon", 3), ("--least", "--noise central")),
        (("--law", "gaussian", "--epsilon", 3), ("--law", "--noise central")),
        (("--lot-rate", 0.5, "--epsilon", 3), ("--lot-rate", "--work updates")),
        (("--work", "gradients", "--steps", 5, "--epsilon", 3), ("--steps", "--work gradients")),
        (("--work", "gradients", "--quantile", 0.5, "--epsilon", 3), ("--quantile",
         "--work gradients")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [("plan", "x.json"), ("simulate",)])
def test_options_that_contradict_each_other_are_named(
    capsys, tmp_path, monkeypatch, command, arguments, both
):
    monkeypatch.chdir(tmp_path)
    said = told(capsys, *command, *FEW, *arguments)
    assert all(each in said for each in both)
    assert not list(tmp_path.iterdir())


def test_a_file_decides_and_options_beside_it_are_refused(capsys, tmp_path):
    file = tmp_path / "plan.json"
    as_json(capsys, "plan", file, *FEW, "--noise-multiplier", 3)
    for command in (("account", file), ("simulate", "--federation", file, "--data", "digits")):
        said = told(capsys, *command, "--rounds", 4, "--delta", 1e-6)
        assert "--rounds, --delta must be left out" in said
        assert str(file) in said
    assert "--seed" in told(capsys, "simulate", "--federation", file, "--seed", 0)
    found = as_json(capsys, "simulate", "--federation", file, "--data", "digits", "--rows", 600)
    assert found["federation"]["rounds"] == 4


def test_data_of_another_shape_is_named_before_it_is_read(capsys, tmp_path):
    file = tmp_path / "plan.json"
    as_json(capsys, "plan", file, *FEW, "--noise-multiplier", 3)
    said = told(capsys, "simulate", "--federation", file)
    assert "for (1, 8, 8) and 10 classes; mnist is (1, 28, 28)" in said
    assert "--data" in said


def test_a_ledger_that_cannot_pay_is_named_before_anything_is_told(capsys, tmp_path):
    from sfumato.ledger import Budget, Ledger

    url = tmp_path / "privacy.db"
    book = Ledger(url)
    book.create("rows", Budget(900.0, 1e-5), unit="record")
    book.create("poor", Budget(1.0, 1e-5), unit="client")
    out = tmp_path / "run"
    simulate = ("simulate", *SMALL, "--out", out, "--ledger", url)
    assert "protects one record" in told(capsys, *simulate, "--dataset", "rows")
    assert "budget left for 4 rounds" in told(capsys, *simulate, "--dataset", "poor")
    assert "'nobody'" in told(capsys, *simulate, "--dataset", "nobody")
    assert "--dataset must be given" in told(capsys, *simulate)
    assert "without noise" in told(
        capsys, "simulate", *FEW, "--noise", "none", "--ledger", url, "--dataset", "poor"
    )
    assert "nothing is charged" in told(capsys, "simulate", *SMALL, "--dataset", "poor")
    assert not out.exists()
    assert len(book.history("poor")) == len(book.history("rows")) == 1


def test_the_epsilon_of_selected_gradients_is_of_all_rounds(capsys, tmp_path):
    file = tmp_path / "plan.json"
    found = as_json(
        capsys, "plan", file, "--data", "digits", "--rounds", 3, "--work", "selected",
        "--epsilon", 10,
    )  # fmt: skip
    assert Federation.read(file).work.epsilon == pytest.approx(10 / 3)
    assert found["views"][0]["epsilon"] == pytest.approx(10)
    assert all(view["epsilon"] <= 10 for view in found["views"])
    assert [each["epsilon"] for each in found["ledgers"]] == [10, 10]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--noise", "central", "--epsilon", 3),
        ("--noise", "local", "--work", "gradients", "--epsilon", 3),
        ("--noise", "local", "--noise-multiplier", 9),
        ("--noise", "shared", "--epsilon", 3, "--participants", 3),
        ("--work", "selected", "--epsilon", 7),
    ],
)
def test_the_budget_that_a_plan_names_pays_for_it_and_hardly_less_does(capsys, tmp_path, arguments):
    from sfumato.federated.views import RELEASED, message_event, round_event
    from sfumato.ledger import Budget, Ledger

    file = tmp_path / "plan.json"
    found = as_json(capsys, "plan", file, *FEW, *arguments)["ledgers"]
    planned = Federation.read(file)
    events = [round_event(planned, RELEASED), message_event(planned)][: len(found)]
    assert len(found) == (1 if planned.noise.kind == "central" else 2)
    book = Ledger(tmp_path / "privacy.db")
    for number, (needed, event) in enumerate(zip(found, events, strict=True)):
        terms = {"unit": needed["unit"], "neighbours": needed["neighbours"]}
        book.create(f"enough {number}", Budget(needed["epsilon"], needed["delta"]), **terms)
        for _ in range(planned.rounds):
            book.spend(f"enough {number}", event).commit({})
        book.create(f"less {number}", Budget(0.97 * needed["epsilon"], needed["delta"]), **terms)
        assert not book.preview(f"less {number}", [event] * planned.rounds).passes


def test_a_plan_says_who_may_drop_out_and_what_a_ledger_needs(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    masked = ("--data", "digits", "--participants", 3, "--rounds", 2, "--noise", "shared")
    code, out, _ = run(capsys, "plan", tmp_path / "a.json", *masked, "--epsilon", 3)
    assert code == 0
    assert "opens for 3 of 3: no participant may drop out" in out
    assert "sfumato ledger create NAME --epsilon 3." in out
    assert "--unit client --neighbours zero-out" in out
    code, out, _ = run(
        capsys, "plan", tmp_path / "b.json", *FEW, "--noise", "local", "--epsilon", 3
    )
    assert "used if 5 of 6 answer: 1 may drop out" in out
    code, out, _ = run(capsys, "plan", tmp_path / "c.json", *FEW, "--noise", "none")
    assert "drop out" not in out
    assert "ledger" not in out


def test_help_puts_what_is_instead_behind_what_it_is_instead_of(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("plan", "simulate", "account"):
        _, out, _ = run(capsys, command, "--help")
        assert out.index("--noise-multiplier") < out.index("Instead of --noise-multiplier")
        assert out.index("Instead of --noise-multiplier") < out.index("against this observer")
        assert "above" not in out


def test_own_data_is_planned_by_its_declaration_and_never_opened(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.toml").write_text(PATIENTS)
    own = ("--data", "patients.csv", "--declared", "patients.toml", "--participants", 3)
    gradients = (*own, "--work", "gradients", "--noise", "local", "--epsilon", 3)
    assert "--records must be given" in told(capsys, "plan", "x.json", *gradients)
    as_json(capsys, "plan", "a.json", *gradients, "--records", 900)  # there is no patients.csv
    made = Federation.read("a.json")
    assert (made.shape, made.classes, made.work.records) == ((3,), 2, 900)
    (tmp_path / "patients.toml").write_text("records = 5000\n" + PATIENTS)
    as_json(capsys, "plan", "b.json", *gradients)
    assert Federation.read("b.json").work.records == 5000
    (tmp_path / "patients.toml").write_text('owner = "id"\nunit = "person"\n' + PATIENTS)
    assert "declares owners" in told(capsys, "plan", "x.json", *gradients, "--records", 900)
    as_json(capsys, "plan", "c.json", *own, "--noise", "local", "--epsilon", 3)
    assert "--data digits" in told(
        capsys, "plan", "x.json", *own, "--data", "digits", "--noise-multiplier", 1
    )
    (tmp_path / "patients.toml").write_text(
        PATIENTS.replace('classes = ["no", "yes"]', "label_bounds = [0, 9]")
    )
    assert "labels are numbers" in told(capsys, "plan", "x.json", *own, "--epsilon", 3)


def test_keys_and_directories(capsys, tmp_path):
    for name in ("ward", "clinic"):
        found = as_json(capsys, "keys", tmp_path / name)
        assert found["name"] == name
        assert (tmp_path / name / "identity").stat().st_mode & 0o077 == 0
    publics = [tmp_path / name / "identity.pub" for name in ("ward", "clinic")]
    code, out, _ = run(capsys, "directory", tmp_path / "directory.json", *publics)
    assert code == 0
    assert "2 members" in out
    code, _, err = run(capsys, "directory", tmp_path / "twice.json", publics[0], publics[0])
    assert code == 2
    code, _, err = run(capsys, "keys", tmp_path / "ward", "--name", "other")
    assert "whose keys are in" in err
    code, out, _ = run(capsys, "sum-key", tmp_path / "sums.key")
    assert code == 0
    assert (tmp_path / "sums.key").stat().st_mode & 0o077 == 0


def test_rounds_are_read_back_from_the_log(tmp_path):
    from sfumato.federated.rounds import Traffic

    log = RoundLog(tmp_path / "rounds.jsonl")
    facts = RoundFacts(1, 9, 3, 2, {"a": "nonsense"}, Traffic(10, 20, {"b": "gone"}), 1.0, True,
                       0.5, 0.1)  # fmt: skip
    log(facts)
    log(facts)
    assert log.read() == [facts, facts]
    assert log.read(1) == [facts]
