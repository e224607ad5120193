"""docs/tour.md tells of the code as it is: rooms, files, names and import rules."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\|[^|]*\|[^|]+\| \[`[^`]+`\]\(\.\./([^)]+)\) \| ([^|]+) \|$", re.MULTILINE)
STEPS = [
    pytest.param(path, name, id=f"{Path(path).stem}-{name}-{number}")
    for number, (path, names) in enumerate(STEP.findall(TOUR))
    for name in re.findall(r"`([^`]+)`", names)
]


def test_every_room_is_on_the_tour():
    rooms = [path.parent.name for path in (ROOT / "src" / "sfumato").glob("*/__init__.py")]
    assert sorted(re.findall(r"^\| `(\w+)` \| ", TOUR, re.MULTILINE)) == sorted(rooms)


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_what_a_step_names_is_in_its_file(path, name):
    assert re.search(rf"\b{re.escape(name)}\b", (ROOT / path).read_text(encoding="utf-8"))


def test_there_are_steps():
    assert len(STEPS) > 80


def test_a_link_shows_where_it_leads():
    for shown, path in re.findall(r"\[`([^`]+)`\]\(\.\./src/sfumato/([^)]+)\)", TOUR):
        assert path.endswith((shown, f"{shown}/__init__.py", f"{shown}/main.py"))


def test_the_layers_are_those_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    told = "\n".join(layer.replace("sfumato.", "") for layer in layers)
    assert f"```text\n{told}\n```" in TOUR
