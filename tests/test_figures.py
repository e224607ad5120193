"""docs/figures.py draws every figure of docs/concepts, and every page there shows one of them."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "concepts").glob("*.md"))


def load_figures():
    spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = load_figures()


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_drawn(name, tmp_path):
    from PIL import Image

    path = figures.save(name, tmp_path)
    assert path == tmp_path / f"{name}.png"
    assert 5_000 < path.stat().st_size < 80_000
    with Image.open(path) as image:
        assert image.width == 770  # seven inches at 110 dots
        darkest, lightest = image.convert("L").getextrema()
    assert darkest < 100 < 250 < lightest


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_there(name):
    assert 5_000 < (DOCS / "concepts" / f"{name}.png").stat().st_size < 80_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_one_figure_and_says_how_it_was_drawn(page):
    text = page.read_text(encoding="utf-8")
    ((alt, shown),) = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
    name = shown.removesuffix(".png")
    assert name in figures.FIGURES
    assert alt
    assert f"`python docs/figures.py {name}`" in text


def test_every_figure_has_its_page():
    assert {page.stem for page in PAGES} == set(figures.FIGURES)


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["figures.py", "composition", "--out", str(tmp_path)])
    figures.main()
    assert capsys.readouterr().out.split() == [str(tmp_path / "composition.png")]
    monkeypatch.setattr("sys.argv", ["figures.py", "no-such"])
    with pytest.raises(SystemExit):
        figures.main()
    assert "no figure is called no-such" in capsys.readouterr().err
