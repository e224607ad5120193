"""Importing the package loads nothing heavy, and every public name can be had."""

import subprocess
import sys

import pytest

import sfumato as sf

HEAVY = "torch ibis flwr dp_accounting scipy opendp sqlalchemy pandas matplotlib numpy".split()


def loaded_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_import_sfumato_is_light():
    assert not loaded_after("import sfumato") & set(HEAVY)


def test_the_command_line_starts_without_the_heavy_parts():
    assert not loaded_after("import sfumato.cli.main") & (set(HEAVY) - {"numpy"})


def test_core_and_accounting_do_without_opendp():
    used = loaded_after(
        "import sfumato as sf\nsf.account(sf.dp_sgd(1, 0.1, 10), 1e-5)\nsf.noisy_count(3, 1.0)"
    )
    assert "opendp" not in used


def test_every_public_name_can_be_had():
    for name in sf.__all__:
        assert getattr(sf, name) is not None
    assert set(sf.__all__) <= set(dir(sf))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sf.nonsense
