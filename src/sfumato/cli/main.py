"""The ``sfumato`` command: its parts, and errors in one line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Annotated

import click
import typer

from sfumato import __version__
from sfumato.cli import account, attack, audit, calibrate, data, federate, ledger, query, train
from sfumato.cli.compare import compare
from sfumato.cli.demo import demo
from sfumato.cli.errors import in_a_line
from sfumato.cli.options import bound_seeds
from sfumato.cli.output import console
from sfumato.cli.pretrain import pretrain
from sfumato.cli.report import report
from sfumato.cli.tune import tune

__all__ = ["app", "every_command", "main"]

app = typer.Typer(
    name="sfumato",
    help="Differential privacy, from the first noisy count to an audited model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(account.app, name="account")
app.add_typer(calibrate.app, name="calibrate")
app.add_typer(attack.app, name="attack")
app.add_typer(audit.app, name="audit")
app.add_typer(ledger.app, name="ledger")
app.add_typer(query.app, name="query")
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")
app.add_typer(federate.app, name="federate")
app.command("compare")(compare)
app.command("tune")(tune)
app.command("pretrain")(pretrain)
app.command("report")(report)
app.command("demo")(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"sfumato {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="And exit.")
    ] = False,
) -> None:
    """Differential privacy, from the first noisy count to an audited model."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; whatever goes wrong is one line on standard error, and exit code 1 or 2.

    2 is for what was typed, given or missing; 1 for what sfumato did not expect, which is a
    mistake of its own. ``SFUMATO_DEBUG=1`` lets the exception through, with its traceback.
    """
    try:
        with _warnings_in_lines():
            code = every_command().main(args=arguments, prog_name="sfumato", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        sys.stdout.write(f"{help_text.format_message()}\n")
        code = 2
    except click.ClickException as error:
        _say(error.format_message())
        code = 2
    except click.Abort:
        _say("interrupted")
        code = 130
    except Exception as error:
        if os.environ.get("SFUMATO_DEBUG"):
            raise
        code, told = in_a_line(error)
        _say(told)
    sys.exit(code if isinstance(code, int) else 0)


@cache
def every_command() -> click.Command:
    """All commands, read from their signatures once: for most of them that takes longest."""
    command = typer.main.get_command(app)
    bound_seeds(command)
    return command


@contextmanager
def _warnings_in_lines() -> Generator[None]:
    """A warning is a line, too, without the place in the code where it was given."""

    def show(message: Warning | str, *_: object) -> None:
        _say(f"note: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _say(message: str) -> None:
    line = " ".join(message.split())
    console(stderr=True).print(f"sfumato: {line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
