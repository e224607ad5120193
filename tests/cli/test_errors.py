"""Errors as lines: which exit code, and in whose words."""

import errno
import os
import warnings

import pytest

from sfumato.cli import main as command
from sfumato.cli.errors import BAD_INPUT, MISTAKE, in_a_line
from sfumato.ledger import LedgerError
from sfumato.reports.facts import NotOnRecord


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("epsilon must be above 0"), "epsilon must be above 0"),
        (LedgerError("the budget is spent"), "the budget is spent"),
        (NotOnRecord("record.json#/a"), "record.json#/a"),
        (OSError("the package is not there"), "the package is not there"),
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT), "a.csv"), "a.csv: No such file"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left"),
        (OSError(errno.EIO, os.strerror(errno.EIO), b"\xff"), "\ufffd: Input/output error"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), "'\\udcff' must be text"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "text in UTF-8"),
        (RuntimeError("Symlink loop from 'a/b'"), "'a/b' is a link that leads to itself"),
        (OverflowError(34, "Numerical result out of range"), "too large, or too small"),
        (MemoryError(), "more memory than there is"),
        (ImportError("libcuda.so: no such file"), "libcuda.so"),
    ],
)
def test_what_was_given_is_told_with_code_2(error, said):
    code, told = in_a_line(error)
    assert code == BAD_INPUT
    assert said in told
    assert "Errno" not in told
    assert told.isprintable() or "\ufffd" in told


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("'int' is"), RecursionError()])
def test_everything_else_is_a_mistake_of_our_own(error):
    code, told = in_a_line(error)
    assert code == MISTAKE
    assert "should not have happened" in told
    assert type(error).__name__ in told


def test_no_traceback_but_for_who_asks(run, monkeypatch):
    def broken(*_, **__):
        raise KeyError("nobody expected this")

    monkeypatch.setattr("sfumato.accounting.account", broken)
    code, out, err = run("account laplace --scale 2")
    assert (code, out, err.count("\n")) == (MISTAKE, "", 1)
    monkeypatch.setenv("SFUMATO_DEBUG", "1")
    with pytest.raises(KeyError, match="nobody expected"):
        command.main(["account", "laplace", "--scale", "2"])


@pytest.mark.filterwarnings("default")
def test_a_warning_is_a_line(run, monkeypatch):
    def warned(*_, **__):
        warnings.warn("the data\nchanged", stacklevel=1)
        raise ValueError("that is all")

    monkeypatch.setattr("sfumato.accounting.account", warned)
    err = run("account laplace --scale 2")[2]
    assert err == "sfumato: note: the data changed\nsfumato: that is all\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pretrain -o a.safetensors --seed 9223372036854775808", "a seed must be a whole number"),
        ("federate simulate --data digits --seed -1", "a seed must be a whole number"),
        ("train erm --data a.csv --epsilon 1 --seed", "No such option"),
        ("account dp-sgd --noise-multiplier 1 --sample-rate 0.1 --delta 1e-5 --steps a:b", "whole"),
        ("account dp-sgd --noise-multiplier 1 --sample-rate 0.1 --delta 1e-5 --steps inf", "whole"),
        ("pretrain -o a.safetensors --device meta", "device must be cpu, cuda or auto"),
        ("attack membership --run a --device", "No such option"),
    ],
)
def test_rules_that_all_commands_share(run, line, said):
    code, out, err = run(line)
    assert (code, out, err.count("\n")) == (BAD_INPUT, "", 1)
    assert said in err


def test_brackets_are_no_markup(run, folder):
    run("ledger create a --epsilon 1 --description '[/] [bold]x'")
    code, _, err = run("ledger show a")
    assert (code, err) == (0, "")
    assert run("ledger show \udcff")[2] == (
        "sfumato: '\\udcff' must be text, but has bytes that are none: type it again\n"
    )
