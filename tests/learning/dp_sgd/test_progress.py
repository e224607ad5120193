"""What the operator sees: right numbers, the right place, and never a reason to stop."""

import io
import math
import sys

import pytest

from sfumato.learning.dp_sgd import progress
from sfumato.learning.dp_sgd.progress import (
    Facts,
    RichProgress,
    Screen,
    Silent,
    choose_progress,
    describe,
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def screen(terminal, width=160):
    return Screen(
        file=io.StringIO(), force_terminal=terminal, force_jupyter=False, width=width, _environ={}
    )


def shown(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            Facts(1, 9, 0.4119, 1.2749, 0.628, 0.801, 3),
            "loss 0.412  eps 1.27 of 3  clipped 63 %  signal/noise 0.8",
        ),
        (Facts(1, 9), "loss -  eps -  clipped -  signal/noise -"),
        (
            Facts(1, 9, math.nan, 0.5, math.nan, 0.0),
            "loss -  eps 0.5  clipped -  signal/noise 0",
        ),
        (
            Facts(1, 9, math.inf, math.inf, 1.0, math.inf, 8),
            "loss inf  eps inf of 8  clipped 100 %  signal/noise inf",
        ),
    ],
)
def test_the_text(facts, text):
    assert describe(facts) == text


def test_a_bar_on_a_terminal():
    console, clock = screen(terminal=True), Clock()
    bar = RichProgress(screen=console, clock=clock)
    assert bar.wanted
    for step in range(1, 11):
        clock.now += 0.5
        bar.update(Facts(step, 10, 1.0 / step, 0.1 * step, 0.5, 0.8, 1.0))
    bar.close()
    text = shown(console)
    assert "1/10  loss 1 " in text
    assert "5/10  loss 0.2  eps 0.5 of 1  clipped 50 %  signal/noise 0.8  2 lots/s  0:00:02" in text
    assert "10/10" in text
    assert text.endswith("\n\x1b[?25h")  # the cursor is back


def test_frames_are_few_and_the_last_step_is_always_shown():
    console, clock = screen(terminal=True), Clock()
    bar = RichProgress(screen=console, clock=clock)
    for step in range(1, 1001):
        clock.now += 0.001
        bar.update(Facts(step, 2000))
    bar.close()  # stopped half-way
    text = shown(console)
    assert "1000/2000" in text
    assert "999/2000" not in text
    assert text.count("/2000") < 30


def test_a_narrow_terminal_keeps_to_one_line():
    console = screen(terminal=True, width=50)
    bar = RichProgress(screen=console, clock=Clock())
    bar.update(Facts(1, 2, 0.5, 0.5, 0.5, 0.5))
    assert "\n" not in shown(console)
    bar.close()


def test_nothing_where_there_is_no_terminal():
    console = screen(terminal=False)
    bar = RichProgress(screen=console)
    assert not bar.wanted
    bar.update(Facts(1, 1))
    bar.close()
    assert shown(console) == ""


def test_plain_lines_now_and_then_if_forced():
    console, clock = screen(terminal=False, width=20), Clock()
    bar = RichProgress(screen=console, clock=clock, forced=True)
    for step in range(1, 101):
        clock.now += 1.0
        bar.update(Facts(step, 200, 0.25))
    bar.close()
    bar.close()
    lines = shown(console).splitlines()
    assert lines[0] == "1/200  loss 0.25  eps -  clipped -  signal/noise -"
    assert lines[1] == (
        "11/200  loss 0.25  eps -  clipped -  signal/noise -  1 lots/s  0:03:09 left"
    )
    assert [line.split("/")[0] for line in lines] == ["1", *map(str, range(11, 100, 10)), "100"]
    assert "\x1b" not in shown(console)


def test_a_resumed_run_counts_its_own_pace():
    console, clock = screen(terminal=False), Clock()
    bar = RichProgress(screen=console, clock=clock, forced=True)
    bar.update(Facts(5000, 5020))
    clock.now = 10.0
    bar.update(Facts(5010, 5020))
    assert "1 lots/s  0:00:10 left" in shown(console)


def test_the_default_goes_to_standard_error(capsys):
    bar = choose_progress(True)
    bar.update(Facts(1, 1, 0.5))
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "loss 0.5" in err


def test_a_notebook_is_no_reason_to_break(monkeypatch, capsys):
    """Rich would look for widgets, and warn, if it thought that it was in a notebook."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    for wanted in (None, True):
        bar = choose_progress(wanted)
        bar.update(Facts(1, 1, 0.5))
        bar.close()
    assert capsys.readouterr().err.count("loss 0.5") == 1


def test_choices():
    assert isinstance(choose_progress(False), Silent)
    assert isinstance(choose_progress(None), RichProgress)
    assert choose_progress(True).wanted
    assert not choose_progress(False).wanted
    silent = Silent()
    silent.update(Facts(1, 2))
    silent.close()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("when", ["update", "close"])
def test_a_broken_screen_does_not_stop_a_run(terminal, when):
    class Broken(io.StringIO):
        broken = when == "update"

        def write(self, text):
            if self.broken:
                raise BrokenPipeError
            return super().write(text)

    file = Broken()
    console = Screen(file=file, force_terminal=terminal, force_jupyter=False, _environ={})
    clock = Clock()
    bar = RichProgress(screen=console, forced=True, clock=clock)
    before = sys.stdout, sys.stderr
    bar.update(Facts(1, 9))
    file.broken = True
    bar.update(Facts(2, 9))
    bar.close()
    bar.update(Facts(3, 9))
    assert not bar.wanted
    assert (sys.stdout, sys.stderr) == before


def test_what_the_user_prints_stays_on_standard_output(capsys):
    """Rich would send it through the bar's console, away from a file that it was meant for."""
    console = screen(terminal=True)
    bar = RichProgress(screen=console, clock=Clock())
    bar.update(Facts(1, 9))
    print("epoch 1")
    bar.close()
    assert capsys.readouterr().out == "epoch 1\n"
    assert "epoch" not in shown(console)


def test_nothing_of_it_is_for_records():
    assert not any(hasattr(Facts, name) for name in ("to_dict", "to_json"))
    assert "record" not in " ".join(progress.__all__).lower()
