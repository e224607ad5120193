"""What README.md and docs/ show is true: code runs, and prints what stands below it; links work.

=================  ================================================================================
block              what is tested
=================  ================================================================================
``python``         runs, all of a page in one namespace; comments below what prints are its output,
                   word by word, unless they begin with "for example"
``console``        every ``$ sfumato`` line runs; what stands below it is its output, likewise
``text``, ...      too long to run, or made up: every ``sfumato`` command in it is one that there is
=================  ================================================================================
"""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sfumato.cli.main import every_command, main

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in PAGES if page.exists()),
]
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
        "correlated-noise.md",
        "label-privacy.md",
        "train.md",
        "training.md",
        "transformers.md",
    },
}  # of some seconds each; the README always runs
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = {"text", "bash", "sh", "py"}
WIDE = "200"  # columns of a terminal: tables are compared word by word


def name_of(path):
    return path.relative_to(ROOT / "docs" if "docs" in path.parts else ROOT).as_posix()


def blocks(path, *languages):
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [body for language, body in found if language in languages]


IN_ORDER = ROOT / "docs" / "get-started.md"  # Python and commands by turns: has a test of its own


def with_blocks(language):
    return [
        pytest.param(
            path, id=name_of(path), marks=[pytest.mark.slow] * (name_of(path) in LONG[language])
        )
        for path in DOCUMENTS
        if path != IN_ORDER and blocks(path, language)
    ]


def every_document():
    return [pytest.param(path, id=name_of(path)) for path in DOCUMENTS]


def shown_below(lines, end):
    """The comment that follows line ``end``: what the page says is printed."""
    shown = []
    for line in lines[end:]:
        if not line.startswith("#"):
            break
        shown.append(line[1:])
    return "\n".join(shown)


def printed(statement, namespace, where):
    """What a statement prints, or its value as a notebook would show it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), where, "eval"), namespace)
            if value is not None:
                print(repr(value))
        else:
            exec(compile(ast.Module([statement], []), where, "exec"), namespace)
    return out.getvalue()


def same(shown, said):
    """Word by word; "..." stands for the rest."""
    wanted, found = shown.split(), said.split()
    if wanted[-1] == "...":
        wanted, found = wanted[:-1], found[: len(wanted) - 1]
    return shown.lstrip(" (").startswith("for example") or wanted == found


def run_python(body, namespace, where):
    for statement in ast.parse(body, where).body:
        said = printed(statement, namespace, where)
        shown = shown_below(body.splitlines(), statement.end_lineno)
        if said and shown:
            assert same(shown, said), f"{where}, line {statement.lineno}: {said}"


def commands(body):
    """Each ``$ sfumato`` line, joined with its continuation, and what is shown below it."""
    for part in re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        if line.startswith("sfumato "):
            yield shlex.split(line, comments=True)[1:], shown


def run_commands(body, capsys):
    for arguments, shown in commands(body):
        with pytest.raises(SystemExit) as ended:  # in this process: imports take longest
            main(arguments)
        out, err = capsys.readouterr()
        refused = shown.startswith("sfumato: ")
        assert ended.value.code == (2 if refused else 0), (arguments, err)
        if shown.strip():
            assert same(shown, err if refused else out), (arguments, out, err)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDE)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("path", with_blocks("python"))
def test_python_blocks_run_and_print_what_they_show(path):
    namespace = {"__name__": path.stem}
    for number, body in enumerate(blocks(path, "python"), start=1):
        run_python(body, namespace, f"{path.name} block {number}")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("path", with_blocks("console"))
def test_commands_run_and_print_what_they_show(path, capsys):
    for body in blocks(path, "console"):
        run_commands(body, capsys)


@pytest.mark.usefixtures("elsewhere")
def test_get_started_works_word_for_word(capsys):
    namespace = {"__name__": "started"}
    for language, body in BLOCK.findall(IN_ORDER.read_text(encoding="utf-8")):
        if language == "python":
            run_python(body, namespace, IN_ORDER.name)
        elif language == "console":
            run_commands(body, capsys)


@pytest.mark.parametrize("path", every_document())
def test_commands_that_take_long_are_ones_that_there_are(path):
    root = every_command()
    for body in blocks(path, *NOT_RUN):
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith(("sfumato ", "$ sfumato ")):
                parse(root, shlex.split(line.removeprefix("$ "), comments=True)[1:], line)


def parse(command, arguments, line):
    """Fails for a command or an option that there is not."""
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        known = command.commands
        at = next((i for i, word in enumerate(arguments) if word in known), None)
        if at is None:
            break
        options_exist(command, arguments[:at], line)
        command, arguments = known[arguments[at]], arguments[at + 1 :]
    options_exist(command, arguments, line)


def options_exist(command, arguments, line):
    known = {name for given in command.params for name in (*given.opts, *given.secondary_opts)}
    for word in arguments:
        if word.startswith("--") or re.fullmatch(r"-[a-z]", word):
            assert word.partition("=")[0] in known | {"--help", "--version"}, (word, line)


def test_the_command_is_installed():
    command = [str(Path(sys.executable).parent / "sfumato"), "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("sfumato ")


# --- links ----------------------------------------------------------------------------------------


def prose(path):
    return re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(path):
    """Of a page's headings, as a site and a code host make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", every_document())
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(path)):
        if "://" in target:
            continue
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target}#{anchor}"


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="no mkdocs-material here")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # advertises its successor
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False, env=quiet
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert (tmp_path / "site" / "benchmarks" / "RESULTS" / "index.html").exists()
