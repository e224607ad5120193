"""Flower's SuperLink behind a gate: ``python -m sfumato.federated.flower.superlink``.

It takes the options of ``flower-superlink``. The open-source SuperLink serves three interfaces on
one port: one for nodes, one for the processes of a run, and one for control, which has no accounts:
whoever reaches the port may register a node key of his own and start a run, that is, run code on
the coordinator's machine and on every node that takes the code it is sent. The gate lets only the
nodes' interface be reached from elsewhere; the other two answer to this machine alone.

Do not put a reverse proxy on the same machine in front of it: all the world would come from here.
"""

from __future__ import annotations

from typing import Any, final

__all__ = ["Gate", "main"]

_FOR_NODES = "/v1/fleet/"
_HERE = frozenset({"127.0.0.1", "::1"})


@final
class Gate:
    """An ASGI application in front of another: from elsewhere, only the nodes' interface.

    Args:
        application: what is behind it.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes it on, or answers 403."""
        if scope["type"] == "lifespan" or _may(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": b"not from here"})


def _may(scope: Any) -> bool:
    if scope["type"] == "http" and scope["path"].startswith(_FOR_NODES):
        return True
    client, server = scope.get("client"), scope.get("server")
    if client is None:
        return False
    # A machine that talks to itself by its own address has that address at both ends.
    return client[0] in _HERE or (server is not None and client[0] == server[0])


def main() -> None:
    """Runs it until it is told to stop."""
    import uvicorn
    from flwr.superlink.cli.flower_superlink import (
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,  # pyright: ignore[reportPrivateUsage]
    )
    from flwr.superlink.main import create_app

    config = _parse_superlink_lifespan_config()
    application = create_app(config, SuperLinkLifespan)
    uvicorn.run(
        Gate(application),
        host=config.host,
        port=config.port,
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
        workers=1,
    )


if __name__ == "__main__":
    main()
