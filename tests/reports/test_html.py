"""A report as a page."""

import re

import pytest
from matplotlib.figure import Figure

from sfumato.reports.documents import (
    Bullets,
    Code,
    Document,
    Missing,
    Paragraph,
    Picture,
    Section,
    Table,
)
from sfumato.reports.drawing import as_label, drawn
from sfumato.reports.facts import Fact
from sfumato.reports.html import block_html, to_html
from sfumato.reports.style import COLOURS, new_figure

ONE = Fact(0.25, "25.0 %", "run/record.json#/x")


def figure_of(label="a"):
    figure, axes = new_figure("Title", "x", "y")
    axes.plot([0, 1], [0, 1], color=COLOURS[0], label=label)
    axes.legend()
    return figure


def page_of(*blocks, edition="publishable"):
    return to_html(Document("A title", edition, [Section("Part", blocks)], {"a/b": "0f"}))


def test_a_fact_carries_value_and_place():
    assert block_html(Paragraph(("x ", ONE))) == (
        '<p>x <data value="0.25" data-from="run/record.json#/x" title="run/record.json#/x">'
        "25.0&nbsp;%</data></p>"
    )


def test_everything_is_escaped():
    bad = "<script>&\"'"
    fact = Fact(bad, bad, bad)
    blocks = [
        Paragraph((bad, fact)), Bullets([bad, fact]), Code(fact), Missing(bad, bad, bad),
        Table((bad, bad), [(bad, fact)], bad), Picture(figure_of(), bad, bad, bad),
    ]  # fmt: skip
    page = to_html(Document(bad, "curator", [Section(bad, blocks)], {bad: bad}))
    assert "<script" not in page
    assert f'"{bad}"' not in page
    assert page.count("&lt;script&gt;") > 15


def test_blocks():
    assert block_html(Paragraph("x", "warning")) == '<p class="warning">x</p>'
    assert block_html(Paragraph("x", "odd")) == "<p>x</p>"
    assert block_html(Bullets(["x", "y"])) == "<ul><li>x</li><li>y</li></ul>"
    assert block_html(Missing("a#/x", "Do:", "this")) == (
        '<p class="missing">Not on record: <code>a#/x</code>. Do: <code>this</code></p>'
    )
    assert block_html(Code(Fact("run me", "run me", "a"))).startswith("<pre><code><data")


def test_tables_have_headings_for_rows_and_columns():
    table = block_html(Table(("a", "b", "c", "d"), [("r", ONE, "", "x")], "Cap"))
    assert '<p class="caption">Cap</p>' in table
    assert table.count('<th scope="col">') == 4
    assert '<th scope="row">r</th><td data-label="b"><span><data' in table
    assert '<td data-label="c"></td>' in table
    assert '<table class="wide">' in table
    assert "<thead>" not in block_html(Table(("", ""), [("a", "b")]))
    assert "wide" not in block_html(Table(("", ""), [("a", "b")]))


@pytest.mark.parametrize("edition", ["publishable", "curator"])
def test_it_asks_no_other_machine_for_anything(edition):
    page = page_of(Picture(figure_of(), "alt", "a"), edition=edition)
    links = re.findall(r'(?:href|src|url)\s*[=(]\s*"?([^")\s]+)', page)
    assert links
    assert all(link.startswith(("#", "data:")) for link in links), links
    assert "<script" not in page
    assert "@import" not in page


def test_the_edition_is_said_first():
    assert "made from public records alone" in page_of().split("<h1>")[0]
    assert "For the curator only" in page_of(edition="curator").split("<h1>")[0]


# --- drawings -------------------------------------------------------------------------------------


def test_drawings_take_the_page_s_colours():
    text = drawn(figure_of(), "alt")
    body = text.split("</style>")[-1]
    assert "var(--c0, " in body
    assert "currentColor" in body
    assert not re.search(r"(?:fill|stroke): #(?:1f2430|ffffff|000000)", body)


def test_drawings_are_read_out_and_know_their_width():
    text = drawn(figure_of(), 'a "word"')
    assert 'role="img"' in text
    assert 'aria-label="a &quot;word&quot;"' in text
    assert f"--w: {round(72 * 7.2)}" in text
    assert not re.match(r'<svg[^>]* (?:width|height)="', text)
    assert "<metadata" not in text


def test_the_same_figure_is_the_same_text():
    assert drawn(figure_of(), "x") == drawn(figure_of(), "x")


def test_identifiers_are_one_figure_s_own():
    one, two = (drawn(figure_of(), "alt", source) for source in ("a", "b"))
    names = [set(re.findall(r' id="([^"]*)"', text)) for text in (one, two)]
    assert names[0]
    assert not names[0] & names[1]
    for text in (one, two):
        for used in re.findall(r"url\(#([^)]+)\)", text):
            assert f'id="{used}"' in text


@pytest.mark.parametrize("name", ["a$b$c", r"$\foo$", "$", "_a", "<b>&amp;"])
def test_names_are_no_formulas(name):
    text = drawn(figure_of(as_label(name)), "alt")
    shown = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"{shown}</text>" in text


def test_an_empty_figure_can_be_drawn():
    assert drawn(Figure(), "nothing").startswith("<svg")
