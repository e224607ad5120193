"""Flower's SuperLink behind a door and a gate: ``python -m sfumato.federated.flower.superlink``.

It takes two arguments (:class:`~sfumato.federated.flower.limits.Limits` as JSON, and the file of
the nodes that may come in) and then the options of ``flower-superlink``. The door
(:mod:`~sfumato.federated.flower.door`) bounds connections and time, the gate
(:mod:`~sfumato.federated.flower.gate`) what a request may be.

Do not put a reverse proxy on the same machine in front of it: all the world would come from here.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import sys
from pathlib import Path

__all__ = ["main"]

_FILES = 256  # that the server has open beside its connections


def main() -> None:
    """Runs it until it is told to stop."""
    import uvicorn
    from flwr.superlink.cli.flower_superlink import (
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,  # pyright: ignore[reportPrivateUsage]
    )
    from flwr.superlink.main import create_app

    from sfumato.federated.flower.door import DoorServer
    from sfumato.federated.flower.gate import Gate
    from sfumato.federated.flower.limits import Limits
    from sfumato.federated.flower.roster import Roster

    limits, roster = Limits.from_json(sys.argv.pop(1)), Roster(Path(sys.argv.pop(1)))
    _log_ours()
    _allow_files(limits.most_connections + _FILES)
    config = _parse_superlink_lifespan_config()
    application = create_app(config, SuperLinkLifespan)
    links = application.state.linkstate_factory

    def runs(token: str) -> bool:
        return bool(token) and links.state().get_task_by_token(token) is not None

    serving = uvicorn.Config(
        Gate(application, roster, limits, runs),
        host=config.host,
        port=config.port,
        ws="none",
        access_log=False,
        log_level="error",  # of strangers the door itself tells, in few lines
        proxy_headers=False,
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
    )
    DoorServer(serving, limits).run()


def _log_ours() -> None:
    """Flower has a log of its own; a handler for everybody would write all of it twice."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours = logging.getLogger("sfumato")
    ours.addHandler(handler)
    ours.propagate = False


def _allow_files(wanted: int) -> None:
    """Each connection is an open file, of which many systems allow 1,024 unless they are asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    main()
