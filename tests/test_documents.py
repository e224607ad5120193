"""The code blocks of README.md and docs/ run: Python in one namespace, commands for real."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato.cli.main import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = {
    "console": {
        "adaptive-laplace.md",
        "attacks-gradients.md",
        "attacks.md",
        "audit.md",
        "autoencoder.md",
        "cli.md",
        "label-privacy.md",
        "pate.md",
        "reports.md",
        "train.md",
    },
    "python": {
        "attacks-gradients.md",
        "attacks-models.md",
        "label-privacy.md",
        "train.md",
        "training.md",
    },
}  # of some seconds each; the README always runs
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path, language):
    return [
        body for found, body in BLOCK.findall(path.read_text(encoding="utf-8")) if found == language
    ]


def with_blocks(language):
    return [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.name in LONG[language]))
        for path in DOCUMENTS
        if blocks(path, language)
    ]


@pytest.mark.parametrize("path", with_blocks("python"))
def test_python_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": path.stem}
    for number, body in enumerate(blocks(path, "python"), start=1):
        exec(compile(body, f"{path.name} block {number}", "exec"), namespace)


@pytest.mark.parametrize("path", with_blocks("console"))
def test_commands_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for body in blocks(path, "console"):
        for line in body.splitlines():
            if line.startswith("$ sfumato "):
                with pytest.raises(SystemExit) as ended:  # in this process: imports take longest
                    main(shlex.split(line[2:])[1:])
                assert ended.value.code == 0, (line, capsys.readouterr().err)


def test_the_command_is_installed():
    command = [str(Path(sys.executable).parent / "sfumato"), "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("sfumato ")


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in DOCUMENTS])
def test_links_to_files_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_documents_are_found():
    assert len(DOCUMENTS) >= 1
    assert any(blocks(path, "python") for path in DOCUMENTS)
