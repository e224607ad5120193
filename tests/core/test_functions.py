"""Functions by name: only of modules that can be imported, and the search path stays as it was."""

import sys

import pytest

from sfumato.core.functions import function_named, names_function


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a:b", True),
        ("clinic.scans:read_all", True),
        ("a", False),
        ("a:", False),
        (":b", False),
        ("a:b.c", False),
        ("a..c:b", False),
        ("runs/a:b", False),
        ("a:b:c", False),
        ("1a:b", False),
        ("a:b()", False),
    ],
)
def test_what_reads_as_a_name(text, names):
    assert names_function(text) is names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that one is in, with modules of one's own."""
    (tmp_path / "own_scans.py").write_text("def read():\n    return 7\n\n\nnumber = 3\n")
    (tmp_path / "own_broken.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    for name in ("own_scans", "own_broken", "own_package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_function_of_the_folder_one_is_in(folder):
    before = list(sys.path)
    assert function_named("--reader", "own_scans:read")() == 7
    assert sys.path == before


def test_what_is_installed_comes_before_the_folder(folder):
    """A file beside the data must not take the place of a module that others rely on."""
    (folder / "fractions.py").write_text("def gcd():\n    return 'the folder'\n")
    assert function_named("--reader", "math:gcd")(6, 4) == 2
    (folder / "colorsys.py").write_text("def rgb_to_hsv():\n    return 'the folder'\n")
    sys.modules.pop("colorsys", None)
    assert function_named("--reader", "colorsys:rgb_to_hsv").__code__.co_argcount == 3


@pytest.mark.parametrize(
    "text", ["own_nowhere:read", "own_nowhere.inside:read", "own_package.nowhere:read"]
)
def test_no_such_module_names_the_argument(folder, text):
    before = list(sys.path)
    with pytest.raises(ValueError, match=f"--reader must name a module .*, got '{text}'"):
        function_named("--reader", text)
    assert sys.path == before


@pytest.mark.parametrize("text", ["own_scans:write", "own_scans:number"])
def test_a_module_without_that_function(folder, text):
    with pytest.raises(ValueError, match=r"--reader must be .*own_scans has that function"):
        function_named("--reader", text)


def test_what_a_module_does_wrong_is_its_own_error(folder):
    (folder / "own_wrong.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        function_named("--reader", "own_wrong:read")


def test_what_a_module_misses_itself_is_its_own_error(folder):
    """Not "no such module": it is there."""
    before = list(sys.path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        function_named("--reader", "own_broken:read")
    assert sys.path == before
