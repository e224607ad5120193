"""``sfumato attack compare``: the page, the folder, and going on after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from sfumato.attacks.membership.reports import MembershipReport
from sfumato.cli import compare_attacks
from sfumato.cli.compared_folder import comparison_in
from sfumato.cli.compared_page import Compared, compared_page, summary
from sfumato.cli.main import app
from sfumato.cli.populations import Pool, attack_population, plain_answers
from sfumato.cli.shadowed import Said, attacks_with_shadows
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.data import load_dataset
from sfumato.learning.ensembles import Schedule, half_each, store
from sfumato.learning.models import make_model

SMALL = "attack compare --data digits --rows 400 --shadows 4 --targets 2 --epochs 30 --model linear"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared by the tests of one finished comparison."""
    return tmp_path_factory.mktemp("compared")


@pytest.fixture
def compared(run, folder):
    """A finished comparison."""
    if not (folder / "page" / "page.html").exists():
        code, _, err = run(f"{SMALL} --out page")
        assert code == 0, err
        assert not err  # no bars where nobody looks
    return folder / "page"


def weights(path):
    return {file.name: file.read_bytes() for file in sorted(path.rglob("*.safetensors"))}


# --- a comparison -------------------------------------------------------------------------------


def test_one_page_with_privacy_and_without(run, compared):
    found = json.loads((compared / "attacks.json").read_text())
    plain, private = found["compared"]
    assert plain["claim"] is None
    assert private["claim"]["epsilon"] == pytest.approx(2, abs=0.01)
    assert not any(one["exceeds_claim"] for one in private["attacks"])
    assert private["above_the_claim"] == []
    aucs = {one["attack"]: one["auc"] for one in plain["attacks"]}
    assert aucs["LiRA, offline"] > 0.55
    assert found["summary"].startswith("Without privacy the best of 8 attacks finds ")
    page = (compared / "page.html").read_text()
    assert found["summary"] in page
    assert page.count("<img") == 4
    assert page.count("By class: ") == 2
    assert "http" not in page.replace("http-equiv", "")


def test_only_the_owner_reads_it(compared):
    for path in compared.rglob("*"):
        assert path.is_dir() or path.stat().st_mode & 0o077 == 0, path
    assert compared.stat().st_mode & 0o077 == 0


def test_a_finished_comparison_is_shown_again(run, compared, monkeypatch):
    """Private noise is never drawn twice alike, so equal bytes were not trained again."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    before, found = weights(compared), json.loads((compared / "attacks.json").read_text())
    assert len(before) == 7
    code, out, err = run(f"{SMALL} --out page --json")
    assert code == 0, err
    assert "epochs" not in err  # with --json there are no bars, on a terminal either
    assert weights(compared) == before
    again = json.loads(out)
    for one, other in zip(again["compared"], found["compared"], strict=True):
        assert one["attacks"] == other["attacks"]
        assert one["seconds"] >= other["seconds"]  # of training are kept, and reading adds some


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--epsilon 3", "epsilon 2.0 instead of 3.0"),
        ("--rows 300 --seed 1", "rows 400 instead of 300 and seed 0 instead of 1"),
        ("--data mnist", "data digits instead of mnist"),
    ],
)
def test_other_arguments_are_refused(run, compared, options, message):
    before = weights(compared)
    code, out, err = run(f"{SMALL} {options} --out page")
    assert code == 2
    assert not out
    assert message in " ".join(err.split())
    assert "or another folder" in " ".join(err.split())
    assert weights(compared) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--epsilon 0", "epsilon"),
        ("--rows 99", "rows must be a whole number, 100 or above"),
        ("--shadows 2", "shadows must be a whole number, 4 or above"),
        ("--shadows 5", "shadows must be even"),
        ("--targets 3", "targets must be even"),
        ("--targets 0", "targets must be a whole number, 2 or above"),
        ("--epochs 0", "epochs"),
        ("--model nothing", "model must be one of"),
        ("--model feature-cnn:x", "model"),
        ("--device nowhere", "device must be cpu, cuda or auto"),
        ("--device cpu --half", "leave out --half"),
        ("--seed -1", "seed must be a whole number from 0 to 2^63"),
        ("--data nowhere", "nowhere"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(run, folder, options, message):
    code, out, err = run(f"{SMALL} --out never {options}")
    assert code == 2
    assert not out
    assert message in " ".join(err.split())
    assert not (folder / "never").exists()


# --- the folder ---------------------------------------------------------------------------------


def test_a_folder_with_other_things_is_left_alone(run, folder):
    (folder / "full").mkdir()
    (folder / "full" / "thesis.txt").write_text("all of it")
    (folder / "file").write_text("")
    for name, message in (("full", "holds other things"), ("file", "is a file")):
        code, _, err = run(f"{SMALL} --out {name}")
        assert code == 2
        assert message in err
    assert [path.name for path in (folder / "full").iterdir()] == ["thesis.txt"]


def test_one_process_at_a_time(tmp_path):
    held = comparison_in(tmp_path, {"seed": 1})
    refused = pytest.raises(ValueError, match="another process is at work")
    with held, refused, comparison_in(tmp_path, {"seed": 1}):
        pass
    with comparison_in(tmp_path, {"seed": 1}):
        pass


def test_a_kill_before_the_claim_leaves_an_empty_folder(tmp_path):
    (tmp_path / ".lock").write_text("")
    (tmp_path / ".comparison.json.new").write_text('{"see')
    with comparison_in(tmp_path, {"seed": 1, "made": (1, 2)}):
        pass
    with comparison_in(tmp_path, {"seed": 1, "made": [1, 2]}):
        pass
    refused = pytest.raises(ValueError, match="another made")
    with refused, comparison_in(tmp_path, {"seed": 1, "made": [1, 3]}):
        pass


# --- going on -----------------------------------------------------------------------------------


class Interrupting:
    """In the place of bars: notes what it is told, and interrupts when so much is done."""

    def __init__(self, what, after):
        self.what, self.after, self.told = what, after, []

    @contextmanager
    def __call__(self, what, shown):
        def told(done, total):
            self.told.append((what.split()[0], done))
            if what.startswith(self.what) and done == self.after:
                raise KeyboardInterrupt

        yield told


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on(run, folder, monkeypatch):
    """Each epoch and each model that was kept is trained once, however often it is interrupted."""
    monkeypatch.setattr(store, "_SHARE", 1)  # every epoch is kept, however long writing takes
    command, noted = f"{SMALL} --epochs 5 --rows 200 --out broken", []
    for what, after in (("epochs", 3), ("epochs", 4), ("models", 2)):
        bars = Interrupting(what, after)
        monkeypatch.setattr(compare_attacks, "_counting", bars)
        code, _, err = run(command)
        assert code == 130
        assert "kept in broken: the same command goes on from there" in err
        noted += bars.told
    before = weights(folder / "broken")
    assert sum(name.startswith("model-") for name in before) == 2
    assert not (folder / "broken" / "page.html").exists()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    code, _, err = run(command)
    assert code == 0, err
    after = weights(folder / "broken")
    assert {name: after[name] for name in before} == before
    assert len(after) == 7
    assert noted == [("epochs", n) for n in range(1, 6)] + [("models", 1), ("models", 2)]


@pytest.mark.slow
def test_a_killed_comparison_goes_on(tmp_path):
    """Killed for real; what was done is not done again."""
    command = [sys.executable, "-m", "sfumato.cli.main", *SMALL.split(), "--out", "a", "--json"]
    settings = os.environ | {"OMP_NUM_THREADS": "1"}
    folder = tmp_path / "a" / "models" / "private"
    process = subprocess.Popen(command, cwd=tmp_path, env=settings, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (folder / "model-001.safetensors").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = weights(tmp_path)
    assert "model-005.safetensors" not in before
    assert not (tmp_path / "a" / "page.html").exists()
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    after = weights(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 7
    assert (tmp_path / "a" / "page.html").exists()


def test_bars_on_a_terminal_alone(monkeypatch, capsys):
    with compare_attacks._counting("epochs", shown=True) as told:
        assert told is None
    monkeypatch.setenv("FORCE_COLOR", "1")
    with compare_attacks._counting("epochs", shown=True) as told:
        told(1, 3)
        told(3, 3)
    shown = capsys.readouterr().err
    assert "epochs" in shown
    assert "3/3" in shown
    with compare_attacks._counting("epochs", shown=False) as told:
        assert told is None


# --- what is said -------------------------------------------------------------------------------


def found_by(shares, others=2000, claim=None, name="some", fresh=0.8):
    """Attacks that find a share of members without any false alarm, and guess about the rest."""
    generator = np.random.default_rng(0)
    members = np.arange(2 * others) < others
    reports = {}
    for attack, share in shares.items():
        scores = generator.random(2 * others)
        scores[: round(share * others)] += 1
        reports[attack] = MembershipReport.from_scores(
            scores, members, labels=np.arange(2 * others) % 3, attack=attack
        )
    return Compared(name, 0.9, fresh, 1.0, claim, reports)


def guarantee(epsilon, delta=1e-5):
    return Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)


def test_the_sentence_at_the_top():
    plain = found_by({"weak": 0.02, "strong": 0.3})
    private = found_by({"weak": 0.03, "strong": 0.001}, claim=guarantee(2.0), fresh=0.7)
    assert plain.strongest == "strong"
    assert private.strongest == "weak"
    said = summary(plain, private)
    share = plain.reports["strong"].power[0].found
    assert 0.3 < share < 0.32
    assert f"the best of 2 attacks finds {100 * share:.1f} % (" in said
    assert "epsilon 2 allows 7.4 % at most" in said
    assert "No attack on the private models exceeded what was promised" in said
    assert "right on 80.0 % of fresh examples, private ones on 70.0 %" in said


def test_a_broken_claim_is_told():
    """30 % found without a false alarm is more than epsilon 2 allows, and than epsilon 100 not."""
    plain = found_by({"one": 0.3})
    broken = found_by({"one": 0.3, "other": 0.0}, claim=guarantee(2.0))
    assert broken.above == ["one"]
    assert "one exceeded what was promised, beyond chance" in summary(plain, broken)
    assert broken.to_dict()["above_the_claim"] == ["one"]
    kept = found_by({"one": 0.3, "other": 0.0}, claim=guarantee(100.0))
    assert kept.above == []
    assert "allows 100.0 % at most" in summary(plain, kept)


def test_too_few_examples_for_low_rates():
    plain = found_by({"one": 0.5}, others=50)
    private = found_by({"one": 0.0}, others=50, claim=guarantee(1.0))
    said = summary(plain, private)
    assert "too few examples to measure" in said
    assert f"{100 * plain.reports['one'].auc:.1f} % of cases" in said


def test_a_table_has_no_pictures():
    """And class by class, what the strongest attack called members."""
    pool = Pool.draw(load_dataset("labsup"), 400, shadows=4, targets=2, seed=0)
    pool = replace(pool, data=replace(pool.data, classes=("low", "middle", "high")))
    both = [
        found_by({"one": share}, others=400, claim=claim)
        for share, claim in ((0.2, None), (0.0, guarantee(2.0)))
    ]
    page = compared_page("labsup", pool, both)
    assert page.count("<img") == 2
    for name, call in zip(pool.data.classes, both[0].reports["one"].calls[1:], strict=True):
        assert f"<td>{name}</td><td>{call.members:,}</td><td>{call.others:,}</td>" in page
        assert f"<td>{call.precision:.2f}</td><td>{call.recall:.2f}</td>" in page


def test_help_names_the_options():
    text = CliRunner().invoke(app, ["attack", "compare", "--help"]).output
    assert "--half" in text


# --- populations --------------------------------------------------------------------------------
def test_halves_of_a_pool():
    pool = Pool.draw(load_dataset("digits"), 300, shadows=4, targets=2, seed=1)
    assert pool.subsets.shape == (6, 300)
    assert (pool.subsets[:4].sum(axis=0) == 2).all()
    assert (pool.subsets[4:].sum(axis=0) == 1).all()
    assert len(pool.data.test.labels) == 300
    assert not pool.mirrored


def test_a_population_without_members_shows_nothing():
    """Models trained on other rows than the table says: no attack finds anything."""
    data = load_dataset("digits")
    pool = Pool.draw(data, 600, shadows=4, targets=2, seed=1)
    found = plain_answers(
        pool, lambda: make_model("linear", (1, 8, 8), 10), Schedule(10, 32), seed=1
    )
    claimed = np.concatenate([half_each(4, 600, seed=11), half_each(2, 600, seed=12)])
    said = Said(found.logits, pool.labels, found.fresh, pool.data.test.labels)
    for name, report in attacks_with_shadows(said, 4, claimed).items():
        assert report.roc.p_value > 0.001, name
        assert abs(report.auc - 0.5) < 5 * max(report.roc.auc_error, 0.01), name
    honest = attack_population(pool, found)
    assert honest["LiRA, offline"].auc > honest["LiRA, offline"].roc.auc_error * 5 + 0.5


def test_without_fresh_examples_there_is_no_rmia():
    logits = np.random.default_rng(0).normal(size=(6, 1, 200, 3)).astype(np.float32)
    none = np.zeros((6, 1, 0, 3), np.float32)
    said = Said(logits, np.arange(200) % 3, none, np.zeros(0, np.int64))
    found = attacks_with_shadows(said, 4, half_each(6, 200, seed=0))
    assert "RMIA" not in found
    assert "LiRA, online" in found


def test_two_shadows_are_too_few():
    logits = np.zeros((4, 1, 200, 3), np.float32)
    said = Said(logits, np.arange(200) % 3, logits, np.arange(200) % 3)
    halves = np.concatenate([half_each(2, 200, seed=0), half_each(2, 200, seed=1)])
    with pytest.raises(ValueError, match="shadows must be a whole number, 4 or above"):
        attacks_with_shadows(said, 2, halves)
