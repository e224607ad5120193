"""A member's keys in a folder of hers, and a directory of everybody's public ones.

Two pairs: ``node`` lets her transport in at the coordinator's; ``identity`` signs her part of
masked sums. The public halves are ``node.pub`` and ``identity.pub``; a directory is a JSON file
from names to public identity keys, of which every member keeps a copy.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> keys = [MemberKeys.make(folder / name, name) for name in ("ward", "clinic")]
    >>> write_directory(folder / "directory.json", [k.identity_public for k in keys])
    >>> sorted(read_directory(folder / "directory.json"))
    ['clinic', 'ward']
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sfumato.core import validation
from sfumato.core.json_files import read_json
from sfumato.federated.flower.node_keys import make_node_key
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.learning.durable import write_whole

__all__ = ["MemberKeys", "read_directory", "write_directory"]


@final
@dataclass(frozen=True)
class MemberKeys:
    """Where they are.

    Attributes:
        name: hers.
        node: the private key of her transport.
        node_public: for the coordinator.
        identity_file: the private key of her signatures.
        identity_public: for the directory.
    """

    name: str
    node: Path
    node_public: Path
    identity_file: Path
    identity_public: Path

    @classmethod
    def make(cls, folder: str | Path, name: str) -> MemberKeys:
        """Makes what is not there yet; private halves are for their owner alone."""
        folder = Path(folder)
        validation.name("name", name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        node = make_node_key(folder / "node")
        identity, public = folder / "identity", folder / "identity.pub"
        if not identity.exists():
            key = IdentityKey.generate()
            write_whole(identity, key.to_bytes())
            public.write_text(json.dumps({"name": name, "key": key.public.hex()}) + "\n")
        held = _public(public)["name"]
        if held != name:
            validation.fail("name", f"{held!r}, whose keys are in {folder}", name)
        return cls(name, node.private, node.public, identity, public)

    @classmethod
    def read(cls, folder: str | Path) -> MemberKeys:
        """Those of a folder.

        Raises:
            ValueError: if there are none.
        """
        public = Path(folder) / "identity.pub"
        if not public.exists():
            raise ValueError(f"{folder} must hold a member's keys: sfumato federate keys {folder}")
        for name in ("identity", "node", "node.pub"):
            if not (Path(folder) / name).exists():
                raise ValueError(
                    f"{folder} must hold all of a member's keys, but {name} is missing: put it "
                    "back, or make keys in a new folder and have them registered"
                )
        return cls.make(folder, _public(public)["name"])

    def identity(self) -> IdentityKey:
        """The key that signs."""
        return IdentityKey.from_bytes(self.identity_file.read_bytes())


def write_directory(path: str | Path, publics: Iterable[str | Path]) -> None:
    """A directory of these ``identity.pub`` files.

    Raises:
        ValueError: if one is no such file, or a name or a key is there twice.
    """
    found: dict[str, str] = {}
    for each in publics:
        held = _public(Path(each))
        if held["name"] in found:
            validation.fail("names", "different", held["name"])
        found[held["name"]] = held["key"]
    _directory(found)
    Path(path).write_text(json.dumps(found, indent=2) + "\n")


def read_directory(path: str | Path) -> Directory:
    """The members' public keys.

    Raises:
        ValueError: if the file holds no directory.
    """
    try:
        return _directory(read_json(path))
    except (ValueError, TypeError, AttributeError, IsADirectoryError) as error:
        raise ValueError(
            f"{path} must be a directory of members' keys (sfumato federate directory {path} "
            f"*/identity.pub), but is not: {error}"
        ) from None


def _directory(held: dict[str, str]) -> Directory:
    return Directory({name: bytes.fromhex(key) for name, key in held.items()})


def _public(path: Path) -> dict[str, str]:
    """Name and key of an ``identity.pub``."""
    try:
        held = read_json(path)
        return {"name": held["name"], "key": bytes.fromhex(held["key"]).hex()}
    except (ValueError, TypeError, KeyError, IsADirectoryError):
        raise ValueError(
            f"{path} must be a member's identity.pub (sfumato federate keys), but is not"
        ) from None
