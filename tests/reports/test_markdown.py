"""A report as Markdown, and as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
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
from sfumato.reports.facts import Fact
from sfumato.reports.markdown import to_json, to_markdown

ONE = Fact(0.25, "25.0 %", "run/record.json#/x")


def markdown_of(*blocks, edition="publishable", title="A title"):
    return to_markdown(Document(title, edition, [Section("Part", blocks)], {"a/b": "0f"}))


def test_blocks():
    text = markdown_of(
        Paragraph(("x ", ONE)), Paragraph("careful", "warning"), Bullets(["a", ONE]),
        Code(Fact("sfumato x", "sfumato x", "a")), Table(("h", "i"), [("a", ONE)], "Cap"),
        Picture(Figure(), "what is on it", "a", "said below"), Missing("a#/x", "Do:", "this"),
    )  # fmt: skip
    assert text.startswith("# A title\n\n*Publishable edition: ")
    for part in (
        "\n\n## Part\n\nx 25.0 %\n\n", "\n> careful\n", "\n- a\n- 25.0 %\n",
        "\n```sh\nsfumato x\n```\n", "\n**Cap**\n\n| h | i |\n|---|---|\n| a | 25.0 % |\n",
        "\n*Picture: what is on it.* said below\n", "\n> Not on record: `a#/x`. Do: `this`\n",
        "\n| `a/b` | `0f` |\n",
    ):  # fmt: skip
        assert part in text


def test_the_edition_is_said():
    assert "*For the curator only" in markdown_of(edition="curator")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_no_name_is_markup(name):
    fact = Fact(name, name, "a")
    text = markdown_of(Table(("h", "i"), [(name, (name, fact))]), title=name)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = [token.type for token in tokens]
    assert kinds.count("tr_open") == 2 + 2  # two tables, a head and a row each
    assert kinds.count("td_open") == 2 + 2
    inside = {child.type for token in tokens for child in token.children or ()}
    assert inside <= {"text", "em_open", "em_close", "code_inline", "text_special", "softbreak"}
    assert "html_block" not in kinds


def test_a_command_cannot_end_its_fence():
    text = markdown_of(Code(Fact("a\n```\n<script>", "a\n```\n<script>", "x")))
    (fence,) = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    assert fence.content == "a\n```\n<script>\n"


def test_json_has_every_fact_picture_and_gap():
    blocks = [Paragraph(("x ", ONE)), Missing("a#/x"), Picture(Figure(), "alt", "a#/y", ONE)]
    found = to_json(Document("T", "curator", [Section("Part", blocks)], {"a/b": "0f"}))
    assert json.loads(json.dumps(found)) == found
    assert (found["title"], found["edition"], found["sources"]) == ("T", "curator", {"a/b": "0f"})
    (section,) = found["sections"]
    fact = {"value": 0.25, "text": "25.0 %", "from": "run/record.json#/x"}
    assert section["facts"] == [fact, fact]
    assert section["missing"] == ["a#/x"]
    assert section["pictures"] == [{"of": "alt", "from": "a#/y"}]
    assert section["text"][0] == "x 25.0 %"


@pytest.mark.parametrize("edition", ["publishable", "curator"])
def test_an_empty_report(edition):
    document = Document("T", edition, [])
    assert to_json(document)["sections"] == []
    assert to_markdown(document).startswith("# T\n\n*")
