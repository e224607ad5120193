"""Run folders and files that were damaged or edited: one line that says what to do, exit 0 or 2."""

import shutil

import pytest
from tests.cli.commands import said
from tests.cli.damaging import READERS, damages, furnish_runs
from tests.cli.rooms import AROUND
from tests.cli.typed_lines import broken_law

SLICE, PIECES, EACH = 10, 20, 200


@pytest.fixture
def room(furnished, tmp_path, monkeypatch):
    import torch

    for name, value in AROUND.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("urllib.request._opener", None)
    monkeypatch.setenv("SFUMATO_DATA", str(furnished / "data"))
    kept = tmp_path / "kept"
    shutil.copytree(furnished, kept, ignore=shutil.ignore_patterns("data"))
    furnish_runs(kept)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield kept
    torch.set_num_threads(threads)


def broken(kept, count, seed):
    here, found = kept.parent / "here", []
    for damage in damages(kept, count, seed):
        for line in READERS[damage.folder]:
            for each in here.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.copytree(kept, here, dirs_exist_ok=True)
            damage.do(here)
            code, out, err = said(line.split())
            law = broken_law(line.split(), code, out, err)
            law = f"exit code {code}" if law is None and code not in (0, 2) else law
            if law is not None:
                found.append(f"{damage}: {line}: {law}: {err[-300:]!a}")
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_slice(room):
    found = broken(room, SLICE, seed=1)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("piece", range(PIECES))
def test_thousands_of_damages(room, piece):
    found = broken(room, EACH, seed=1000 + piece)
    assert not found, "\n".join(found)


def test_undamaged_folders_are_read(room):
    """Or nothing could be broken here."""
    for lines in READERS.values():
        for line in lines:
            shutil.copytree(room, ".", dirs_exist_ok=True)
            code, _, err = said(line.split())
            assert code == 0, (line, err)
