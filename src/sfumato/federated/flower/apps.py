"""The two apps that a deployment's run consists of; the app folder refers to them by name.

The coordinator's app finds its plan in a folder that the environment names, so that nothing of it
travels to participants. Only one coordinator leads at a time: a second one, started after the first
was killed, waits until the first is really gone before it reads the checkpoint.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import traceback
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import pull_objects

from sfumato.federated.exchange import Participant
from sfumato.federated.flower.client import client_app
from sfumato.federated.flower.grid import GridEngine
from sfumato.federated.flower.naming import named
from sfumato.learning.durable import write_whole
from sfumato.ledger import BudgetExceeded

__all__ = ["FOLDER", "MAKE", "client", "is_led", "server"]

FOLDER = "SFUMATO_SERVE"
"""The name in the environment of the coordinator's folder."""
MAKE = "make"
"""The name in a node's configuration of the function that makes its participant."""

_LOCK = "lead.lock"


def is_led(folder: Path) -> bool:
    """Whether a coordinator leads in this folder now."""
    with open(folder / _LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lead(grid: Grid, context: Context) -> None:
    folder = Path(os.environ[FOLDER])
    plan = json.loads((folder / "plan.json").read_text())
    _pull_quickly()
    with open(folder / _LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        identifier = plan["id"]
        (folder / f"{identifier}.started").touch(mode=0o600)
        try:
            engine = GridEngine(grid, most_bytes=plan["most_bytes"])
            engine.wait_for(
                plan["least"],
                timeout=plan["patience"],
                watch=lambda present: _tell(folder, identifier, "present", str(present).encode()),
            )
            (folder / f"{identifier}.began").touch(mode=0o600)
            result = named(plan["lead"])(engine, plan["settings"])
            if result is not None and not isinstance(result, bytes):
                raise TypeError(f"{plan['lead']} must return bytes or None, got {type(result)}")
        except BaseException as error:
            _tell(folder, identifier, "error", _described(error))
            raise
        _tell(folder, identifier, "none" if result is None else "result", result or b"")


def _described(error: BaseException) -> bytes:
    """As JSON; for whoever waits, to read (:class:`~.leading.LeadFailed`)."""
    budget, value = isinstance(error, BudgetExceeded), isinstance(error, ValueError | OSError)
    kind = "budget" if budget else "value" if value else "other"
    said = str(error) or type(error).__name__
    return json.dumps({"kind": kind, "said": said, "trace": traceback.format_exc()}).encode()


def _pull_quickly() -> None:
    """Looks for an announced reply's bytes after a tenth of a second, where Flower waits one.

    Nodes announce a reply just before they deliver it, so a coordinator that asks often comes
    between the two as a rule.
    """
    from flwr.superlink.grid import http_grid

    module: Any = http_grid
    module.pull_objects = functools.partial(pull_objects, initial_backoff=0.1, max_time=120.0)


def _tell(folder: Path, identifier: str, kind: str, data: bytes) -> None:
    write_whole(folder / f"{identifier}.{kind}", data)


def _make(node_config: Mapping[str, object], state: MutableMapping[str, bytes]) -> Participant:
    return named(str(node_config[MAKE]))(node_config, state)


server = ServerApp()
server.main()(_lead)
client = client_app(_make)
