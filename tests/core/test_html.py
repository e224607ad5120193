"""Tables for notebooks: well-formed, escaped, and made of nothing but themselves."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.html import facts_table


class Reader(HTMLParser):
    """Checks that what opens is closed, and keeps tags and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_table_has_its_title_rows_stamp_and_note_in_order():
    html = facts_table("Title", [("a", 1), ("b", 2.5)], stamp="STOP", note="by the way")
    assert Reader(html).texts == ["STOP", "Title", "a", "1", "b", "2.5", "by the way"]
    assert Reader(html).tags.count("th") == 2


def test_headings_name_columns_and_no_row():
    read = Reader(facts_table("", [("a", 1)], headings=["x", "y"]))
    assert read.texts == ["x", "y", "a", "1"]
    assert read.tags.count("th") == 2
    assert "caption" not in read.tags


@given(*[st.text(min_size=1, max_size=40)] * 4)
def test_no_text_becomes_a_tag(title, name, value, note):
    read = Reader(facts_table(title, [(name, value)], stamp=value, note=note))
    assert read.tags == ["div", "p", "table", "caption", "tbody", "tr", "th", "td", "p"]
    assert set(read.attributes) == {"class", "style", "scope"}


def test_texts_come_back_as_they_were():
    nasty = "<script>alert('&amp;')</script> \" onload=x"
    read = Reader(facts_table(nasty, [(nasty, nasty)], headings=[nasty, nasty], note=nasty))
    assert "".join(read.texts) == 6 * nasty
    assert "script" not in read.tags


def test_colours_are_the_page_s_own_and_dollars_no_formulas():
    html = facts_table("t", [("a", "$x$")], headings=["h", "i"], stamp="s", note="n")
    for word in ("http", "src", "url(", "#", "background", "<script", "<style"):
        assert word not in html
    assert "currentColor" in html
    assert "mathjax_ignore" in html


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (True, "yes"),
        (False, "no"),
        (0.1 + 0.2, "0.3"),
        ({"a": [1, "b"]}, '{"a": [1, "b"]}'),
        ((1, 2), "[1, 2]"),
        ("x" * 2000, "x" * 2000),
        ("x" * 2001, "x" * 2000 + "… (2,001 characters)"),
        ([0] * 1000, "[" + "0, " * 79 + "0," + "… (3,000 characters)"),
    ],
)
def test_values_are_plain_words_and_not_endless(value, shown):
    assert Reader(facts_table("", [("a", value)])).texts == ["a", shown]
