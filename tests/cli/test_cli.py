"""The command line as its users call it: values, JSON keys, one-line errors, exit codes."""

import json

import pytest

from sfumato.cli.main import main

DP_SGD = "account dp-sgd --noise-multiplier 4 --sample-rate 0.01 --steps 10000 --delta 1e-5".split()


@pytest.fixture
def run(capsys):
    def call(*arguments):
        words = [
            str(word)
            for argument in arguments
            for word in (argument if isinstance(argument, list) else [argument])
        ]
        with pytest.raises(SystemExit) as stop:
            main(words)
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


@pytest.fixture
def answer(run):
    def call(*arguments):
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


@pytest.mark.parametrize(
    ("options", "epsilon", "tolerance"),
    [
        ([], 0.947, 0.002),
        (["--accountant", "rdp"], 1.0355, 1e-4),
        (["--accountant", "moments"], 1.2586, 1e-4),
        (["--neighbours", "replace-one"], 1.993, 0.002),
    ],
)
def test_account_dp_sgd(answer, options, epsilon, tolerance):
    found = answer(DP_SGD, options)
    assert found["epsilon"] == pytest.approx(epsilon, abs=tolerance)
    assert found["delta"] == 1e-5
    assert found["unit"] == "record"
    assert found["neighbours"] == (options[1] if "--neighbours" in options else "add-remove")


def test_people_see_the_guarantee_rounded_up_and_what_it_means(run):
    code, out, _ = run(DP_SGD, "--neighbours", "replace-one")
    assert code == 0
    assert "1.994" in out  # 1.9932 rounded up
    assert "replace one record" in out
    assert "at 1% false alarms" in out


def test_the_plot_of_epsilon_over_steps(answer, tmp_path):
    path = tmp_path / "curve.png"
    assert answer(DP_SGD, "--plot", path)["plot"] == str(path)
    assert path.stat().st_size > 5000


def test_account_laplace_pure_and_approximate(answer):
    pure = answer("account", "laplace", "--scale", 2**0.5, "--releases", 50)
    assert pure["epsilon"] == pytest.approx(35.36, abs=0.01)
    assert pure["delta"] == 0
    assert answer("account", "laplace", "--scale", 2**0.5, "--releases", 50, "--delta", 1e-5)[
        "epsilon"
    ] == pytest.approx(26.29, abs=0.01)
    assert answer("account", "laplace", "--epsilon", 0.3)["epsilon"] == pytest.approx(0.3)


def test_account_gaussian_exponential_and_randomized_response(answer):
    gaussian = answer("account", "gaussian", "--noise-multiplier", 3.7306, "--delta", 1e-5)
    assert gaussian["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert answer("account", "exponential", "--epsilon", 1)["epsilon"] == 1.0
    hundred = ["--answers", 100, "--delta", 1e-5]
    rr = answer("account", "randomized-response", "--noise-parameter", 0.5, hundred)
    assert rr["epsilon"] == pytest.approx(90.79, abs=0.02)
    assert rr["neighbours"] == "replace-one"
    half = answer("account", "randomized-response", "--epsilon", 0.5, hundred)
    assert half["epsilon"] == pytest.approx(31.17, abs=0.01)


def test_the_printed_exponential_formula_is_said_to_cost_twice(run):
    assert "would cost 2 a choice" in run("account", "exponential", "--epsilon", 1)[1]


def test_account_a_mixed_list_from_a_file(answer, tmp_path):
    path = tmp_path / "events.json"
    step = {
        "kind": "poisson-sampled",
        "sample_rate": 0.01,
        "event": {"kind": "gaussian", "noise_multiplier": 4},
    }
    path.write_text(
        json.dumps(
            [
                {"kind": "laplace", "noise_multiplier": 10},
                {"kind": "epsilon-delta", "epsilon": 0.2, "delta": 1e-7},
                {"kind": "repeated", "event": step, "count": 10_000},
            ]
        )
    )
    found = answer("account", "events", path, "--delta", 1e-5)
    assert 0.947 < found["epsilon"] < 0.947 + 0.3
    assert found["accountant"] == "pld"
    assert answer("account", "events", path, "--delta", 1e-5)["event"]["kind"] == "composed"


def test_compare_prints_every_theorem_beside_what_was_claimed(run, answer, tmp_path):
    code, out, _ = run("account", "compare", "--plot", tmp_path / "c.png")
    assert code == 0
    for word in ("naive", "strong", "sampled", "moments", "RDP", "PLD"):
        assert word in out
    for figure in (
        "11,997",
        "12,000",
        "360",
        "1.25",
        "343.6",
        "407.1",
        "8.141",
        "0.947",
        "1.036",
        "1.259",
    ):
        assert figure in out
    assert (tmp_path / "c.png").stat().st_size > 5000
    rows = {row["name"]: row for row in answer("account", "compare")["rows"]}
    assert rows["moments"]["epsilon"] == pytest.approx(1.2586, abs=1e-4)
    assert [
        rows[name]["claim"]["printed_epsilon"] for name in ("naive", "strong", "sampled", "moments")
    ] == [
        12_000,
        360,
        10,
        1.25,
    ]
    assert [
        rows[name]["claim"]["formula_is_theorem"]
        for name in ("naive", "strong", "sampled", "moments")
    ] == [
        True,
        False,
        False,
        False,
    ]
    assert all(rows[name]["claim"]["holds"] for name in ("naive", "strong", "sampled", "moments"))


def test_compare_with_other_numbers_has_no_printed_claims(answer):
    rows = answer("account", "compare", "--noise-multiplier", 5, "--steps", 100)["rows"]
    assert all(row["claim"]["printed_epsilon"] is None for row in rows if row["claim"])


@pytest.mark.parametrize(("epsilon", "noise"), [(0.5, 5.515), (2, 1.711), (8, 0.7818)])
def test_calibrate_dp_sgd_noise(answer, epsilon, noise):
    found = answer(
        "calibrate dp-sgd --delta 1e-5 --sample-rate 0.01 --steps 6000".split(),
        "--epsilon",
        epsilon,
    )
    assert found["noise_multiplier"] == pytest.approx(noise, abs=0.003)
    assert found["epsilon"] <= epsilon


@pytest.mark.slow
def test_calibrate_steps_and_sample_rate(answer):
    base = "calibrate dp-sgd --epsilon 2 --delta 1e-5 --noise-multiplier 1.7115".split()
    assert answer(base, "--sample-rate", 0.01)["steps"] == pytest.approx(6000, abs=5)
    assert answer(base, "--steps", 6000)["sample_rate"] == pytest.approx(0.01, abs=1e-5)


def test_calibrate_one_release(answer, run):
    assert answer("calibrate", "laplace", "--epsilon", 0.1)["scale"] == pytest.approx(10)
    gaussian = answer("calibrate", "gaussian", "--epsilon", 1, "--delta", 1e-5)
    assert gaussian["sigma"] == pytest.approx(3.7306, abs=1e-4)
    code, _, err = run("calibrate gaussian --epsilon 10 --delta 1e-5 --method dwork-roth".split())
    assert code == 2
    assert "8.42" in err


def test_the_averaging_attack_narrows_and_the_budget_says_so(answer, run, tmp_path):
    found = answer("attack", "averaging", "--plot", tmp_path / "a.png")
    half_widths = [row["half_width"] for row in found["attack"]]
    assert half_widths == pytest.approx([1.4712, 0.4652, 0.1471], abs=1e-4)
    assert [row["pure"]["epsilon"] for row in found["attack"]] == pytest.approx(
        [3.536, 35.36, 353.6], abs=0.06
    )
    assert found["attack"][1]["approximate"]["epsilon"] == pytest.approx(26.29, abs=0.01)
    assert found["queries_within_budget"] == 4
    assert found["private"] is True
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert "answers 4 such queries" in run("attack", "averaging")[1]


def test_laplace_or_gaussian(answer, run, tmp_path):
    found = answer("account", "laplace-or-gaussian", "--plot", tmp_path / "x.png")
    assert found["crossover_dimension"] == 7
    assert (tmp_path / "x.png").stat().st_size > 5000
    assert "from 9 dimensions on" in run("account", "laplace-or-gaussian", "--criterion", "l1")[1]


BAD = [
    (["--noise-multiplier", "0"], "noise_multiplier"),
    (["--noise-multiplier", "-4"], "noise_multiplier"),
    (["--noise-multiplier", "nan"], "noise_multiplier"),
    (["--noise-multiplier", "inf"], "noise_multiplier"),
    (["--noise-multiplier", "four"], "'--noise-multiplier'"),
    (["--sample-rate", "0"], "sample_rate"),
    (["--sample-rate", "1.01"], "sample_rate"),
    (["--steps", "0"], "steps"),
    (["--steps", "1.5"], "'--steps'"),
    (["--steps", "ten"], "'--steps'"),
    (["--delta", "0"], "delta"),
    (["--delta", "1"], "delta"),
    (["--delta", "-1e-5"], "delta"),
    (["--neighbours", "cousins"], "neighbours"),
    (["--accountant", "abacus"], "accountant"),
    (["--plot", "curve.docx"], "plot file"),
]


@pytest.mark.parametrize(("option", "named"), BAD)
def test_bad_parameters_are_one_line_and_exit_code_2(run, option, named):
    code, out, err = run(DP_SGD, option)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("sfumato: ")
    assert named in err


@pytest.mark.parametrize("epsilon", "0 -2 nan inf two".split())
def test_bad_epsilons_are_one_line_and_exit_code_2(run, epsilon):
    for command in (
        "calibrate dp-sgd --delta 1e-5 --sample-rate 0.01 --steps 6000",
        "calibrate laplace",
        "calibrate gaussian --delta 1e-5",
        "account laplace",
        "account exponential",
        "account randomized-response",
    ):
        code, out, err = run(command.split(), f"--epsilon={epsilon}")
        assert (code, out, err.count("\n")) == (2, "", 1), command


def test_missing_and_conflicting_options(run, tmp_path):
    assert "give exactly one of --scale or --epsilon" in run("account", "laplace")[2]
    assert "give exactly two of" in run("calibrate dp-sgd --epsilon 1 --delta 1e-5".split())[2]
    assert run(["account", "dp-sgd", "--delta", "1e-5"])[0] == 2
    assert (
        "no.json: No such file"
        in run("account", "events", tmp_path / "no.json", "--delta", 1e-5)[2]
    )
    (tmp_path / "bad.json").write_text('[{"kind": "gaussian"}]')
    assert "noise_multiplier" in run("account", "events", tmp_path / "bad.json", "--delta", 1e-5)[2]
    (tmp_path / "odd.json").write_text('[{"kind": "magic"}]')
    assert "magic" in run("account", "events", tmp_path / "odd.json", "--delta", 1e-5)[2]
    assert "whole numbers" in run("attack", "averaging", "--queries", "5,x")[2]


def test_files_that_cannot_be_used_are_one_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(DP_SGD, "--plot", tmp_path / "file" / "curve.png")
    assert (code, err.count("\n")) == (2, 1)
    (tmp_path / "none.json").write_text("[]")
    assert "no events" in run("account", "events", tmp_path / "none.json", "--delta", 1e-5)[2]
    twice = '{"kind": "gaussian", "noise_multiplier": 1, "noise_multiplier": 100}'
    deep = '{"kind": "repeated", "count": 1, "event": ' * 3000 + twice + "}" * 3000
    for text, word in ((twice, "the key 'noise_multiplier' is there more than once"),
                       (deep, "nested more than 100 deep")):  # fmt: skip
        (tmp_path / "odd.json").write_text(text)
        code, _, err = run("account", "events", tmp_path / "odd.json", "--delta", 1e-5)
        assert code != 0
        assert word in err
        assert err.count("\n") <= 1
    (tmp_path / "odd.json").write_text('[{"kind": "repeated", "count": 3, "event": 5}]')
    code, _, err = run("account", "events", tmp_path / "odd.json", "--delta", 1e-5)
    assert (code, err.count("\n")) == (2, 1)


def test_steps_may_be_written_with_an_exponent(answer):
    short = [word if word != "10000" else "1e4" for word in DP_SGD]
    assert answer(short)["epsilon"] == answer(DP_SGD)["epsilon"]


def test_the_declared_sensitivity_is_said(run):
    options = "account gaussian --noise-multiplier 4 --delta 1e-5 --neighbours replace-one".split()
    assert "declared under replace-one" in run(options)[1]


def test_help_has_examples_and_version_is_printed(run):
    code, out, _ = run("account", "dp-sgd", "--help")
    assert code == 0
    assert "Example" in out
    assert run("--version")[1].startswith("sfumato 0.")
    code, out, _ = run()
    assert code == 2
    assert "Usage" in out
