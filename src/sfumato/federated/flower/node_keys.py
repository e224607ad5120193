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

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sfumato.federated.flower.certificates import write_private

__all__ = ["NodeKey", "make_node_key"]


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
    write_private(made.private, secret)
    made.public.write_bytes(public + b"\n")
    return made
