"""What the operator of a deployed federation is told."""

import json
import os
import signal

import click
import pytest

from sfumato.cli.federate_following import Milestones, shown_end, told_result
from sfumato.federated.federation import Federation
from sfumato.federated.noises import LocalNoise
from sfumato.federated.rounds import Traffic
from sfumato.federated.watching import RoundFacts, RoundLog
from sfumato.federated.works import LotGradients

pytest.importorskip("flwr")

from sfumato.federated.flower.leading import LeadFailed

PLAN = Federation(
    "linear", (4,), 2, participants=3, rounds=20, noise=LocalNoise(1.0, least=1),
    work=LotGradients(lot_rate=0.5, clip=1.0, records=12),
)  # fmt: skip


def facts(number, survivors=3, asked=3, silent=None, refused=None, used=True, rounds=20):
    traffic = Traffic(1, 1, silent or {})
    return RoundFacts(
        number, rounds, asked, survivors, refused or {}, traffic, 1.0, used, None, 0.5
    )


def test_one_line_for_a_tenth_of_the_rounds():
    for rounds, lines in ((20, 10), (400, 10), (10, 10), (3, 3)):
        said = []
        watch = Milestones(3, said.append)
        for number in range(1, rounds + 1):
            watch(facts(number, rounds=rounds))
        assert len(said) == lines
        assert said[-1].startswith(f"round {rounds} of {rounds}: 3 of 3")


def test_who_drops_out_is_told_once_and_that_all_are_back():
    said = []
    watch = Milestones(3, said.append)
    watch(facts(1))
    watch(facts(3, 2, silent={"ward": "no answer within 60 s"}))
    watch(facts(5, 2, silent={"ward": "no answer within 60 s"}))
    watch(facts(7, 2, asked=2))
    watch(facts(9, 2, asked=2))
    watch(facts(11))
    watch(facts(13, 2, refused={"lab": "numbers that are not finite"}))
    assert said == [
        "round 3: without ward (no answer within 60 s)",
        "round 7: 2 of 3 are here",
        "round 11: all 3 are here again",
        "round 13: without lab (numbers that are not finite)",
    ]


def test_where_coins_decide_who_is_asked_nobody_is_said_to_be_gone():
    said = []
    watch = Milestones(0, said.append)
    watch(facts(1, 3))
    watch(facts(3, 1, asked=1))
    watch(facts(5, 0, asked=1, silent={"ward": "offline"}, used=False))
    watch(facts(7, 0, asked=1, silent={"ward": "offline"}, used=False))
    assert said[0] == "round 5: without ward (offline)"
    assert len(said) == 2
    assert "not used: too few" in said[1]


class Played:
    """A run whose end is known: how many are there at each look, then rounds, then a result."""

    def __init__(self, present, log, rounds, result):
        self._present, self._log, self._rounds, self._result = present, log, rounds, result
        self.present = None

    @property
    def began(self):
        return not self._present

    def wait(self, timeout):
        if self._present:
            self.present = self._present.pop(0)
            raise TimeoutError
        if self._rounds:
            self._log(self._rounds.pop(0))
            raise TimeoutError
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def test_from_waiting_to_the_end_without_a_terminal(tmp_path, capsys):
    log = RoundLog(tmp_path / "rounds.jsonl")
    for number in range(1, 6):
        log(facts(number))  # of an earlier start: not told again
    played = Played([0, 1, 1, 2, 2], log, [facts(6), facts(7)], json.dumps({"a": 1}).encode())
    found = told_result(played, PLAN, tmp_path / "rounds.jsonl", 3, 5, None)
    assert found == {"a": 1}
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "going on at round 6 of 20",
        "waiting: 0 of 3 are here",
        "waiting: 1 of 3 are here",
        "waiting: 2 of 3 are here",
        "3 are here: it begins",
        "round 6 of 20: 3 of 3, 0.5 s",
    ]


def test_nothing_is_told_where_nothing_was_asked_for(tmp_path, capsys):
    played = Played([0], RoundLog(tmp_path / "r"), [facts(2)], b"{}")
    assert told_result(played, PLAN, tmp_path / "r", 3, 1, False) == {}
    assert capsys.readouterr() == ("", "")
    played = Played([], RoundLog(tmp_path / "r"), [facts(3)], b"{}")
    assert told_result(played, PLAN, tmp_path / "r", 3, 0, True) == {}
    assert "round 3 of 20" in capsys.readouterr().err  # every round


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            LeadFailed("budget", "refused: the cap is 3.", "Traceback"),
            "the cap is 3. 6 of 20 rounds were sent and charged: the same command goes on at "
            "round 7 after the budget is raised",
        ),
        (LeadFailed("value", "holds a finished run", "Traceback"), "^holds a finished run$"),
    ],
)
def test_what_can_be_mended_is_one_line(tmp_path, error, told):
    with pytest.raises(ValueError, match=told), shown_end(lambda: 6, 20, tmp_path):
        raise error


@pytest.mark.parametrize(
    "error", [LeadFailed("other", "KeyError", "Trace\nback"), RuntimeError("it ended: so\nlong")]
)
def test_what_cannot_says_where_the_story_is(tmp_path, capsys, error):
    with pytest.raises(click.exceptions.Exit) as ended, shown_end(lambda: 6, 20, tmp_path):
        raise error
    assert ended.value.exit_code == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(tmp_path) in told


def hit_by(number):
    os.kill(os.getpid(), number)
    signal.pause()


@pytest.fixture
def heard():
    """A shell lets what runs in its background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("heard")
def test_a_signal_says_how_it_goes_on(tmp_path, capsys, number):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), shown_end(lambda: 6, 20, tmp_path):
        hit_by(number)
    assert capsys.readouterr().err == "interrupted: the same command goes on at round 7 of 20\n"
    assert signal.getsignal(signal.SIGTERM) is before
