"""Serves one mutated module to a Python process and to the processes that it starts.

Python imports a module of this name when it starts, from the folder that PYTHONPATH names first.
``SFUMATO_MUTANT`` holds the module's name, the compiled mutant's file, and a file to be written
when the mutant is taken; without it nothing happens. The checkout itself is never edited.
"""

import importlib.abc
import importlib.machinery
import json
import marshal
import os
import sys
from pathlib import Path


class _Loader(importlib.machinery.SourceFileLoader):
    """As the file's own loader, with other code."""

    def get_code(self, fullname):  # type: ignore[override]
        with _TAKEN.open("a") as file:
            file.write("taken\n")
        return marshal.loads(_CODE.read_bytes())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module; for all others Python's own finders are asked."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != _MODULE:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is not None and found.origin is not None:
            found.loader = _Loader(fullname, found.origin)
        return found


if "SFUMATO_MUTANT" in os.environ:
    _MODULE, _path, _taken = json.loads(os.environ["SFUMATO_MUTANT"])
    _CODE, _TAKEN = Path(_path), Path(_taken)
    sys.meta_path.insert(0, _Finder())
