"""What is said where an extra is missing, and that every optional package has its row."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from sfumato import extras
from sfumato.extras import MissingExtra, explained, needed_for, not_installed, require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What pip calls it, where that is not what is imported.
PACKAGES = {
    "ibis": "ibis-framework",
    "sklearn": "scikit-learn",
    "ray": "flwr",
    "httpx": "flwr",
    "uvicorn": "flwr",
}
ROWS = extras._EXTRAS


def named(requirements):
    return {re.match(r"[\w-]+", text)[0].lower() for text in requirements}


def imported(path):
    """The packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def test_every_row_is_an_extra_that_brings_the_package():
    for module, extra in ROWS.items():
        brought = named(PROJECT["optional-dependencies"][extra])
        assert PACKAGES.get(module, module) in brought, module


def test_every_optional_package_has_a_row():
    here = {name for path in (ROOT / "src").rglob("*.py") for name in imported(path)}
    always = named(PROJECT["dependencies"]) | {"PIL", "dp_accounting", "sfumato"}
    brought = {"click", "packaging", "sklearn", "triton"}  # by typer, matplotlib; by torch
    unknown = here - set(sys.stdlib_module_names) - always - brought - set(ROWS)
    assert not unknown


def test_an_import_that_fails_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    said = "a sum needs TenSEAL, which is not installed: pip install 'sfumato[homomorphic]'"
    with pytest.raises(MissingExtra) as caught, needed_for("a sum"):
        import tenseal  # noqa: F401
    assert str(caught.value) == said
    assert caught.value.name == "tenseal"
    with pytest.raises(MissingExtra, match=r"^a sum needs"), needed_for("this"):
        raise MissingExtra(said, name="tenseal")
    with pytest.raises(MissingExtra, match=r"^this needs TenSEAL"):
        require("tenseal")


def test_the_package_is_found_behind_another_error(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    outer = ModuleNotFoundError("could not import that")
    outer.__cause__ = ModuleNotFoundError("No module named 'peft'", name="peft.utils")
    assert str(explained(outer)) == not_installed("peft")


def test_other_errors_stay_as_they_are():
    require("json")
    here = ModuleNotFoundError("No module named 'numpy.none'", name="numpy.none")
    broken = ImportError("libcuda.so: cannot open shared object file")
    partly = ModuleNotFoundError("No module named 'pandas.none'", name="pandas.none")
    for error in (here, broken, partly):
        assert explained(error) is error
    with pytest.raises(ImportError, match="libcuda"), needed_for("this"):
        raise broken
