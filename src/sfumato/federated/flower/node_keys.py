"""The key pair by which a SuperLink knows a participant's node.

The participant makes it, keeps the private half and gives the public half to the coordinator, who
registers it. P-384, in OpenSSH's format, as Flower wants it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> key = make_node_key(Path(folder.name) / "ward")
    >>> key.public.read_text().split()[0], key.private.stat().st_mode & 0o777 == 0o600
    ('ecdsa-sha2-nistp384', True)
    >>> folder.cleanup()
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sfumato.learning.durable import write_whole

__all__ = ["NodeKey", "make_node_key", "read_node_public"]

_LONGEST = 65_536  # bytes of a file that could be a key


@final
@dataclass(frozen=True)
class NodeKey:
    """Two files.

    Attributes:
        private: stays with the participant, readable by her only.
        public: for the coordinator.
    """

    private: Path
    public: Path


def make_node_key(path: str | Path) -> NodeKey:
    """Makes a pair, ``path`` and ``path.pub``, unless it is there already."""
    private = Path(path)
    made = NodeKey(private, private.with_name(private.name + ".pub"))
    if made.private.exists() and made.public.exists():
        return made
    private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_whole(made.private, secret)
    made.public.write_bytes(public + b"\n")
    return made


def read_node_public(path: str | Path) -> str:
    """The public key in a file, without its comment.

    Raises:
        ValueError: if the file holds something else; it says which one to give.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"a node's public key must be a file, and there is no {path}")
    data = path.read_bytes()[:_LONGEST]
    if b"PRIVATE KEY" in data:
        raise ValueError(
            f"{path} is a private key, which stays with its owner: give "
            f"{path.with_name(path.name + '.pub')} (and if it was sent to you, she needs new keys)"
        )
    words = data.decode("ascii", "replace").split()
    try:
        key = serialization.load_ssh_public_key(" ".join(words[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(
            f"{path} is no node's public key{_instead(path, data)}: sfumato federate keys makes "
            "node.pub, which is to be given"
        )
    return " ".join(words[:2])


def _instead(path: Path, data: bytes) -> str:
    """What it seems to be."""
    if path.name.startswith("identity") or (data[:1] == b"{" and b'"key"' in data):
        return ", but an identity key, which goes into the directory of masked sums"
    return ""
