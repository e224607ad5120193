"""The machinery of mutants by itself; and, slowly, that no listed mutant lives."""

import ast
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from tests.mutants import run as command
from tests.mutants.hunted import hunted, kinds_of
from tests.mutants.listed import Listed, listed, missing, written
from tests.mutants.making import Mutant, code_of, mutants_of
from tests.mutants.operators import OPERATORS
from tests.mutants.rooms import ROOMS, ROOT, SOURCE, files_of, mirrors_of, room_of
from tests.mutants.running import Verdict, run_code

PLANTED = '''
def steps(total, count):
    """At most as many as there are."""
    if count <= 0:
        raise ValueError("count must be at least 1")
    return min(total, 1000) * count
'''


def changes(code, operator):
    return [m.change for m in mutants_of("a.py", textwrap.dedent(code)) if m.operator == operator]


@pytest.mark.parametrize(
    ("operator", "code", "expected"),
    [
        ("constant", "x = 0.5", ["0.5 -> 0.55", "0.5 -> 0.45"]),
        ("constant", "y = x * 2", ["2 -> 2.2", "2 -> 1.8"]),
        ("constant", "y = f(64, 1, True, a[12])", ["64 -> 70", "64 -> 58"]),
        ("bound dropped", "y = min(a, b)", ["min(a, b) -> a", "min(a, b) -> b"]),
        ("bound dropped", "y = np.clip(x, 0, 1)", ["np.clip(x, 0, 1) -> x"]),
        ("bound dropped", "y = x.clamp(max=c)", ["x.clamp(max=c) -> x"]),
        ("bound dropped", "y = bound_rows(t, u)", ["bound_rows(t, u) -> t"]),
        ("bound dropped", "y = max(many) + x.max()", []),
        ("call skipped", "ledger.spend(e)", ["ledger.spend(e) -> pass"]),
        ("call skipped", "x = validation.positive('x', x)\nprint(x)", []),
        ("comparison", "y = a < b", ["a < b -> a <= b", "a < b -> a > b"]),
        ("comparison", "y = a == b", ["a == b -> a != b"]),
        ("factor lost", "y = count * rho", ["count * rho -> rho"]),
        ("factor lost", "y = n * size", ["n * size -> n", "n * size -> size"]),
        ("factor lost", "y = a / groups", ["a / groups -> a"]),
        ("factor lost", "y = a + 2 * q(a)", ["2 * q(a) -> q(a)"]),
        ("order", "charge(p)\nx = read(t)", ["charge(p); x = read(t) -> x = read(t); charge(p)"]),
        ("order", "x = charge(p)\nread(x)", []),
        ("rounding", "y = math.ceil(x)", ["math.ceil(x) -> math.floor(x)"]),
        (
            "rounding", "y = math.nextafter(x, math.inf)",
            ["math.nextafter(x, math.inf) -> x",
             "math.nextafter(x, math.inf) -> math.nextafter(x, float('-inf'))"],
        ),
        ("rounding", "y = np.rint(x)", ["np.rint(x) -> x"]),
        (
            "except", "try:\n  f()\nexcept KeyError:\n  raise E from None",
            ["except KeyError: raise E from None -> except Exception: raise E from None",
             "except KeyError: raise E from None -> except Exception: pass"],
        ),
        ("except", "try:\n  f()\nexcept Exception:\n  pass", []),
        ("logic", "y = a and b", ["a and b -> a or b"]),
        ("raise removed", "raise ValueError(f'{x * 2}')", ["raise ValueError(f'{x * 2}') -> pass"]),
        ("raise removed", "validation.fail('x', '1', x)", ["validation.fail('x', '1', x) -> pass"]),
        ("default returned", "def f(x) -> float:\n  return x", ["return x -> return 0.0"]),
        ("default returned", "def f(x) -> bool:\n  return x > 1",
         ["return x > 1 -> return True", "return x > 1 -> return False"]),
    ],
)  # fmt: skip
def test_what_each_operator_makes(operator, code, expected):
    assert changes(code, operator) == expected


def test_texts_and_names_are_left_alone():
    code = '''
        """A docstring of 0.5 and 64."""
        __all__ = ["a"]

        class A:
            def __repr__(self): return f"{self.x * 2.5}" if self.x > 1 else ""
            def f(self, x: "0.5" = None):
                """Another of 12."""
                if x: raise ValueError("at least " + str(0.5))
    '''
    made = mutants_of("a.py", textwrap.dedent(code))
    assert [m.change for m in made] == ["raise ValueError('at least ' + str(0.5)) -> pass"]


def test_a_mark_outlives_edits_elsewhere_and_not_those_of_its_line():
    marks = {m.mark for m in mutants_of("a.py", PLANTED)}
    assert len(marks) == len(mutants_of("a.py", PLANTED))
    moved = "import os\n\n\ndef other(a, b):\n    return a * b\n" + PLANTED.replace(
        "At most", "No more than"
    )
    assert marks <= {m.mark for m in mutants_of("a.py", moved)}
    edited = {m.mark for m in mutants_of("a.py", PLANTED.replace("<= 0", "<= 1"))}
    assert Counter(mark in edited for mark in marks)[False] == 2  # <= to < and to >=
    twice = "def f(a, b):\n    a = a * 0.5\n    a = a * 0.5\n    return a\n"
    assert len({m.mark for m in mutants_of("a.py", twice)}) == len(mutants_of("a.py", twice))


def test_a_mutant_is_the_module_with_one_change():
    for mutant in mutants_of("a.py", PLANTED):
        code_of(mutant, PLANTED, Path("a.py"))
    gone = Mutant("a.py", "f", "constant", "0" * 10, "1 -> 2")
    with pytest.raises(LookupError, match="no place for 0000000000"):
        code_of(gone, PLANTED, Path("a.py"))


@pytest.fixture
def planted(tmp_path):
    """A module with its tests; gives the verdict on its mutant of that change."""
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(
        "import subprocess, sys\n"
        "from planted import steps\n"
        "def test_them():\n"
        "    assert steps(3, 2) == 6\n"
        "def test_them_in_another_process():\n"
        "    code = 'from planted import steps; steps(3, 0)'\n"
        "    found = subprocess.run([sys.executable, '-c', code], stderr=subprocess.DEVNULL)\n"
        "    assert found.returncode\n"
    )
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    made = mutants_of("planted.py", PLANTED)

    def verdict(change, test="test_planted.py"):
        (mutant,) = [m for m in made if m.change == change]
        path = tmp_path / "planted.py"
        code = code_of(mutant, PLANTED, path)
        found = run_code("planted", code, [str(tmp_path / test)], paths=[str(tmp_path)])
        assert path.read_text() == PLANTED
        return found

    return verdict


def test_a_planted_mutant_is_killed_and_an_equivalent_one_lives(planted):
    assert planted("min(total, 1000) -> total").verdict == "alive"  # nothing here is longer
    killed = planted("raise ValueError('count must be at least 1') -> pass")
    assert killed.verdict == "killed"
    assert killed.by.endswith("test_planted.py::test_them_in_another_process")
    missed = planted("min(total, 1000) -> total", "test_nothing.py")
    assert missed.verdict == "error"
    assert missed.by == "the tests never import the mutated module"


def test_runs_go_on_where_they_stopped(tmp_path, monkeypatch):
    entries = [Listed(entry.mutant, "audit") for entry in listed(["audit"])[:3]]
    entries[2] = Listed(entries[2].mutant, "audit", "It breaks no law.")
    ran = []

    def run(mutant, limit):
        ran.append(mutant.mark)
        return Verdict("killed" if mutant.mark == entries[0].mutant.mark else "alive", "", 0.0)

    monkeypatch.setattr(command, "run", run)
    path = tmp_path / "found.jsonl"
    found = command.run_all(entries, path, minutes=-1)
    assert [f["verdict"] for f in found.values()] == ["excused"]
    assert ran == []
    found = command.run_all(entries, path)
    verdicts = [found[entry.mutant.mark]["verdict"] for entry in entries]
    assert verdicts == ["killed", "alive", "excused"]
    command.run_all(entries, path)
    assert ran == [entries[at].mutant.mark for at in (0, 1, 1)]
    assert command.table(entries, found).splitlines()[-1].split()[1:] == list("111003")


def test_the_list_can_be_applied_and_is_spread():
    entries = listed()
    assert missing(entries) == []
    assert len(entries) >= 150
    assert {entry.room for entry in entries} == set(ROOMS)
    assert {entry.mutant.operator for entry in entries} == set(OPERATORS)
    assert len({entry.mutant.mark for entry in entries}) == len(entries)
    for entry in entries:
        assert room_of(entry.mutant.file) == entry.room
        assert not entry.excuse or entry.excuse.endswith(".")


def test_mutants_for_the_fuzzer_can_be_applied():
    for mutant, breaks in hunted():
        path = SOURCE / mutant.file
        assert code_of(mutant, path.read_text(), path), f"choose its mark anew: {mutant}"
        assert breaks
        assert kinds_of(mutant.file)


def test_a_line_that_is_gone_asks_for_a_new_list():
    entry = listed(["core"])[0]
    gone = Listed(Mutant(**vars(entry.mutant) | {"mark": "0" * 10}), "core")
    (problem,) = missing([entry, gone])
    assert problem.endswith("renew the list: python -m tests.mutants.listed --renew")
    with pytest.raises(LookupError, match="renew the list"):
        command.run_all([gone], Path("never written"))


def test_the_list_is_written_as_it_is_read():
    for room in ROOMS:
        path = ROOT / "tests" / "mutants" / "listed" / f"{room}.toml"
        assert written(listed([room])) == path.read_text("utf-8"), room


def test_every_file_of_every_room_has_tests():
    for room in ROOMS:
        assert files_of(room)
        for file in files_of(room):
            assert all((ROOT / name).exists() for name in mirrors_of(file)), file
            ast.parse((ROOT / "src" / "sfumato" / file).read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_mutant_lives(room, tmp_path):
    entries = listed([room])
    found = command.run_all(entries, tmp_path / "found.jsonl")
    alive = [f for f in found.values() if f["verdict"] not in ("killed", "excused")]
    assert not alive, "\n".join(f"{f['file']}, {f['function']}: {f['change']}" for f in alive)
    assert len(found) == len(entries)
