"""Walks all commands, and all names of ``sfumato``, where some packages cannot be imported.

Run by ``test_missing_extras.py`` in a process of its own for each environment, in a folder that is
furnished: ``python -m tests.cli.without torch safetensors``. What came out is printed as JSON.
"""

from __future__ import annotations

import importlib.abc
import json
import os
import shlex
import sys
from typing import Any


class Without(importlib.abc.MetaPathFinder):
    """A finder that does not find some packages, nor what is in them."""

    def __init__(self, finder: Any, names: list[str]) -> None:
        self.finder, self.names = finder, frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] in self.names:
            return None
        return self.finder.find_spec(fullname, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hide(names: list[str]) -> None:
    """From now on these are not installed."""
    sys.meta_path[:] = [Without(finder, names) for finder in sys.meta_path]
    assert not set(names) & set(sys.modules)


def _names() -> dict[str, list[str]]:
    """Names that cannot be had: the error's classes, and its message."""
    import sfumato

    found = {}
    for name in sfumato.__all__:
        try:
            getattr(sfumato, name)
        except Exception as error:
            found[name] = [*(base.__name__ for base in type(error).__mro__), str(error)]
    return found


def _played(line: str) -> tuple[int, str, list[str]]:
    """Exit code, errors, and the files that are there afterwards and were not before."""
    from tests.cli.commands import said

    before = set(os.listdir())
    code, _, err = said(shlex.split(line))
    return code, err, sorted(set(os.listdir()) - before)


def main(names: list[str]) -> None:
    hide(names)
    from tests.cli.commands import LINES

    lines = {name: _played(line) for name, line in LINES.items()}
    told = {"names": _names(), "lines": lines}
    sys.__stdout__.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
