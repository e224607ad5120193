"""What tests of commands share: a command run in a folder, and what it said."""

import shlex

import pytest

from sfumato.cli.main import main


@pytest.fixture
def folder(tmp_path):
    """Where commands are run; a file may have a folder of its own."""
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Runs a command as it is typed, on one thread: its exit code, output and errors."""
    import torch

    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def said(text):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(text))
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    yield said
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def furnished(tmp_path_factory):
    """A folder with what the lines of ``tests.cli.commands`` name; to be copied, not changed."""
    from tests.cli.commands import prepare

    folder = tmp_path_factory.mktemp("furnished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SFUMATO_DATA", str(folder / "data"))
        prepare(folder)
    return folder
