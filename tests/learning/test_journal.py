"""The law of everything that resumes: no lot is read twice, whoever copies a folder, and when.

Here for the journal itself, by machines that copy, kill and go on at every point; for every kind of
run, in every order, in ``test_copied_runs.py``.
"""

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from sfumato.core.events import GaussianEvent, repeat
from sfumato.learning.charging import RunCharge
from sfumato.learning.journal import RunJournal, lots_taken
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError, Turn, WentOnElsewhere

LOTS = 12
STEP = GaussianEvent(200.0)
RUN = repeat(STEP, LOTS)


class Killed(BaseException):
    """As if the process had been killed."""


class Process:
    """One process at work on a folder; it reads lots under turns."""

    def __init__(self, folder, machine):
        self.folder, self.machine = folder, machine
        self.journal = RunJournal(folder / "journal", "in use")

    def begin(self):
        """Takes the run up."""

    def take(self, lots, kill):
        raise NotImplementedError

    def read(self, count, kill):
        """Takes a turn for so many lots and reads them; killed before, between or after."""
        first = self.journal.lots
        last = min(first + count, LOTS)
        if first == last:
            return
        self.take(last, kill)
        if kill == "before reading":
            raise Killed
        self.machine.read.extend(range(first, last))
        if kill == "after reading":
            raise Killed


class ChargedOnce(Process):
    def begin(self):
        self.charge = RunCharge(self.machine.ledger, "people", "", "a run")
        self.charge.make(RUN, {}, self.journal)

    def take(self, lots, kill):
        resume, ledger = Ledger.resume, self.machine.ledger

        def dying(*args, **more):
            if kill == "before the ledger":
                raise Killed
            return resume(ledger, *args, **more)

        ledger.resume = dying
        try:
            self.charge.take(lots)
        finally:
            del ledger.resume


class ChargedEach(Process):
    """As questions and rounds: a turn is one lot, and is charged with it."""

    def begin(self):
        self.journal.charge_to(self.machine.ledger, "people", each=True)
        self.journal.agree()

    def read(self, count, kill):
        super().read(1, kill)

    def take(self, lots, kill):
        def accept(turn):
            if kill == "before the ledger":
                raise Killed
            return self.machine.ledger.spend("people", STEP, turn=turn)

        self.journal.take(lots, accept)


class Copies(RuleBasedStateMachine):
    """Folders of one run, processes at work on them, and what all of them read."""

    kind = ChargedOnce
    folders = Bundle("folders")

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.ledger = Ledger(self.home / "privacy.db")
        self.ledger.create("people", Budget(100.0, 1e-4))
        self.at_work, self.read, self.refused, self.made = {}, [], set(), 0

    def teardown(self):
        for process in self.at_work.values():
            process.journal.close()
        assert self.ledger.verify("people").ok
        self.ledger.close()
        shutil.rmtree(self.home)

    def folder(self):
        self.made += 1
        path = self.home / str(self.made)
        path.mkdir()
        return path

    @rule(target=folders)
    def begins(self):
        """All folders are of one run: a new one is a copy of the first, as it was at first."""
        new = self.folder()
        source = self.home / "beginning"
        if not source.exists():
            RunJournal(new / "journal", "").close()
            shutil.copytree(new, source)
        else:
            shutil.copy(source / "journal", new / "journal")
        return new

    @rule(target=folders, folder=folders)
    def copy(self, folder):
        """At any time, also while a process is at work on it."""
        new = self.folder()
        shutil.copy(folder / "journal", new / "journal")
        if folder in self.refused:
            self.refused.add(new)
        return new

    @rule(
        folder=folders, count=st.integers(1, 4),
        kill=st.sampled_from(
            [None, None, None, "before the ledger", "before reading", "after reading"]
        ),
    )  # fmt: skip
    def go_on(self, folder, count, kill):
        try:
            process = self.at_work.get(folder)
            if process is None:
                process = self.at_work[folder] = self.kind(folder, self)
                process.begin()
            process.read(count, kill)
        except Killed:
            self.at_work.pop(folder).journal.close()
        except WentOnElsewhere:
            self.refused.add(folder)
            self.at_work.pop(folder).journal.close()
        else:
            assert folder not in self.refused, "accepted after it was refused"

    @rule(folder=folders)
    def end(self, folder):
        """The process ends, and lets go of the folder."""
        if folder in self.at_work:
            self.at_work.pop(folder).journal.close()

    @invariant()
    def no_lot_is_read_twice(self):
        assert len(self.read) == len(set(self.read)), self.read


class CopiesChargedEach(Copies):
    kind = ChargedEach

    @invariant()
    def every_lot_is_charged(self):
        kinds = [entry.kind for entry in self.ledger.history("people")]
        assert len(self.read) <= kinds.count("reserve")


few = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestCopies = Copies.TestCase
TestCopies.settings = few
TestCopiesChargedEach = CopiesChargedEach.TestCase
TestCopiesChargedEach.settings = few


# --- what the machines do not show ----------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "privacy.db")
    made.create("people", Budget(100.0, 1e-4))
    yield made
    made.close()


def begun(folder, ledger):
    """A run's journal and its charge, taken up."""
    journal = RunJournal(folder / "journal", "in use")
    charge = RunCharge(ledger, "people", "", "a run")
    charge.make(RUN, {}, journal)
    return journal, charge


def test_a_run_goes_on_where_it_was(tmp_path, ledger):
    """The copies' law alone would allow to refuse everybody."""
    for lots in range(3, LOTS + 1, 3):
        journal, charge = begun(tmp_path, ledger)
        assert journal.lots == lots - 3
        charge.take(lots)
        journal.close()
        assert lots_taken(tmp_path / "journal") == lots
    kinds = [entry.kind for entry in ledger.history("people") if entry.kind != "resume"]
    assert kinds == ["open", "reserve"]


def test_of_a_turn_that_the_budget_refused_nothing_is_left(tmp_path, ledger):
    journal = RunJournal(tmp_path / "journal", "in use")
    journal.charge_to(ledger, "people", each=True)
    journal.take(1, lambda turn: ledger.spend("people", STEP, turn=turn))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            journal.take(2, lambda turn: ledger.spend("people", GaussianEvent(1e-4), turn=turn))
        assert journal.lots == 1
    journal.close()
    assert lots_taken(tmp_path / "journal") == 1
    again = RunJournal(tmp_path / "journal", "in use")
    again.charge_to(ledger, "people", each=True)
    again.take(2, lambda turn: ledger.spend("people", STEP, turn=turn))
    again.close()


def test_another_ledger_is_not_asked_twice(tmp_path, ledger):
    """It is refused, and the folder still goes on with its own."""
    journal, charge = begun(tmp_path, ledger)
    charge.take(3)
    charge.take(5)
    journal.close()
    other = Ledger(tmp_path / "other.db")
    other.create("people", Budget(100.0, 1e-4))
    with pytest.raises(LedgerError, match="the ledger holds no charge for this run"):
        begun(tmp_path, other)
    assert [entry.kind for entry in other.history("people")] == ["open"]
    other.close()
    journal, charge = begun(tmp_path, ledger)
    assert journal.lots == 5
    charge.take(6)
    journal.close()


def test_an_older_copy_of_the_ledger_is_refused(tmp_path, ledger):
    journal, charge = begun(tmp_path, ledger)
    charge.take(3)
    shutil.copy(tmp_path / "privacy.db", tmp_path / "older.db")
    charge.take(4)
    charge.take(5)
    journal.close()
    older = Ledger(tmp_path / "older.db")
    with pytest.raises(LedgerError, match="an older copy of it"):
        begun(tmp_path, older)
    older.close()
    journal, charge = begun(tmp_path, ledger)
    charge.take(6)
    journal.close()


def test_a_forked_process_does_not_go_on_beside_its_parent(tmp_path, ledger):
    journal, charge = begun(tmp_path, ledger)
    child = os.fork()
    if not child:
        code = 1
        try:
            charge.take(1)
        except RuntimeError as error:
            code = 0 if "beside its parent" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    charge.take(1)
    journal.close()


@pytest.mark.parametrize(
    "damage",
    ["torn", "first line", "a turn", "turn:turm", "lots:lotz", "[2,:[2.5,", "5:-5", "5:1e9"],
)
def test_a_damaged_journal_never_counts_less_and_is_no_other_run(tmp_path, ledger, damage):
    journal, charge = begun(tmp_path, ledger)
    charge.take(3)
    charge.take(5)
    journal.close()
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "torn":
        path.write_bytes(b"".join(lines) + b'{"turn":[3,"ab')
    else:
        at = 0 if damage == "first line" else -1
        was, _, is_now = damage.encode().partition(b"=>")
        lines[at] = lines[at].replace(was, is_now) if is_now else b"#" + lines[at]
        path.write_bytes(b"".join(lines))
    assert lots_taken(path) >= (5 if damage in ("torn", "first line") else 4)
    if damage == "torn":
        journal, charge = begun(tmp_path, ledger)
        charge.take(7)
        journal.close()
    else:
        with pytest.raises(LedgerError, match=r"damaged|went on elsewhere"):
            begun(tmp_path, ledger)


@pytest.mark.parametrize("lots", [0, 4, 6])
def test_lots_that_are_not_those_of_the_ledger_are_refused(tmp_path, ledger, lots):
    """Whoever edits a journal reads no lot again."""
    journal, charge = begun(tmp_path, ledger)
    charge.take(3)
    charge.take(5)
    journal.close()
    path = tmp_path / "journal"
    path.write_text(path.read_text().replace('"lots":5', f'"lots":{lots}'))
    for _ in range(2):
        with pytest.raises(LedgerError, match=f"5 lots in the ledger and {lots} in the folder"):
            begun(tmp_path, ledger)


def test_a_turn_that_the_ledger_never_held_is_not_what_its_second_try_follows():
    """It is in the journal, was forgotten, and was taken again with another token."""
    lines = [
        {"name": "run"}, {"turn": [1, "a"], "lots": 1}, {"turn": [2, "lost"], "lots": 2},
        {"turn": [2, "b"], "lots": 2},
    ]  # fmt: skip
    chain = RunJournal(SimpleNamespace(entries=lines, write=lines.append))._chain
    assert chain.last == Turn("run", 2, "b", "a", 2)
    lines.append({"withdrawn": 2})
    chain = RunJournal(SimpleNamespace(entries=lines, write=lines.append))._chain
    assert chain.last == Turn("run", 1, "a", "", 1)
