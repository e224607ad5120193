"""What can be wrong with the ends of a connection: addresses, ports, certificates, node keys."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation
    from sfumato.federated.flower.limits import Limits

__all__ = [
    "check_address",
    "check_authority",
    "check_door",
    "check_least",
    "check_listening",
    "check_nodes",
]

_MOST = 65_535
_EACH, _OURS = 2, 64  # connections of a participant, and of the server's own processes
_MIB = 2**20


def check_listening(host: str, port: int, kept: Path) -> None:
    """Refuses an address on which nobody could listen now.

    Args:
        host: of this machine.
        port: 0 for the one that is kept, or a free one.
        kept: the file of the port of an earlier start.
    """
    if not 0 <= port <= _MOST:
        raise ValueError(f"--port must be from 1 to {_MOST}, or 0 for a free one, got {port}")
    if port == 0 and kept.exists():
        port = int(kept.read_text())
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise ValueError(
            f"--host must be an address of this machine, or 0.0.0.0 for all of them, and there is "
            f"none called {host!r}"
        ) from None
    with socket.socket(family, kind) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
            listener.listen()
        except OSError as error:
            raise ValueError(_no_listener(host, port, error)) from None


def _no_listener(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host must be an address of this machine, or 0.0.0.0 for all, got {host!r}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"--port must be one that nobody uses, but somebody listens at {host}:{port} (another "
            "server on the same folder?): end that, or give another"
        )
    if error.errno == errno.EACCES:
        return f"--port must be one that you may use, such as 8000, got {port}: {error.strerror}"
    return f"--host and --port must be where one can listen, not {host}:{port}: {error.strerror}"


def check_nodes(federation: Federation, nodes: Sequence[Path]) -> None:
    """Refuses keys that are none, are there twice, or are not as many as participants."""
    from sfumato.federated.flower.node_keys import read_node_public

    found: dict[str, Path] = {}
    for path in nodes:
        try:
            key = read_node_public(path)
        except ValueError as error:
            raise ValueError(f"--node: {error}") from None
        if key in found:
            raise ValueError(
                f"--node must be another key for each participant, but {found[key]} and {path} "
                "are the same"
            )
        found[key] = path
    if len(nodes) != federation.participants:
        raise ValueError(
            f"--node must be given once for each of the plan's {federation.participants} "
            f"participants, got {len(nodes)}"
        )


def check_least(federation: Federation, least: int | None) -> int:
    """With how many participants to begin; all of them by default."""
    fewest, most = max(1, federation.least), federation.participants
    if least is None:
        return most
    if least > most:
        raise ValueError(f"--least must be at most the plan's {most} participants, got {least}")
    if least < fewest:
        raise ValueError(
            f"--least must be at least {fewest}, without whom no round is used, got {least}"
        )
    return least


def check_door(federation: Federation, limits: Limits) -> None:
    """Refuses limits that this federation's own participants could not keep."""
    needed = _EACH * federation.participants + _OURS
    if limits.most_connections < needed:
        raise ValueError(
            f"--most-connections must be at least {needed} for {federation.participants} "
            f"participants ({_EACH} each, and {_OURS} of the server's own), got "
            f"{limits.most_connections}"
        )
    length = _plain_length(federation)
    if limits.most_message < length:
        raise ValueError(
            f"--most-message must be at least {math.ceil(length / _MIB)} (MiB) for this plan, "
            f"whose messages have {length:,} bytes, got {limits.most_message / _MIB:g}"
        )


def _plain_length(federation: Federation) -> int:
    """Bytes of a participant's message where sums are plain; 0 where masks or ciphers decide."""
    from sfumato.federated.sums import PlainSum
    from sfumato.federated.works import LotGradients

    if not isinstance(federation.sums, PlainSum):
        return 0
    parameters = sum(each.numel() for each in federation.make_model().parameters())
    return (8 if isinstance(federation.work, LotGradients) else 4) * parameters


def check_address(address: str) -> None:
    """Refuses what is not host:port."""
    host, colon, port = address.rpartition(":")
    whole = colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= _MOST
    if not whole or "/" in address or any(letter.isspace() for letter in address):
        raise ValueError(
            f"--address must be host:port of who serves, such as lab.example.org:8000, got "
            f"{address!r}"
        )


def check_authority(path: Path) -> None:
    """Refuses what is no certificate in PEM."""
    from cryptography import x509

    remedy = "give the ca.pem of who serves (in her folder: transport/certificates/ca.pem)"
    if not path.is_file():
        raise ValueError(f"--authority must be a file, and there is no {path}: {remedy}")
    data = path.read_bytes()
    if b"PRIVATE KEY" in data:
        raise ValueError(
            f"--authority must be a certificate, but {path} is a private key, which nobody should "
            f"have sent: {remedy}"
        )
    try:
        x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ValueError(
            f"--authority must be a certificate, but {path} is none: {remedy}"
        ) from None
