"""A document into a file."""

import json
import os
import stat

import pytest

from sfumato.reports.documents import Document, Paragraph, Section
from sfumato.reports.writing import check_format, write_document


def document(edition="publishable"):
    return Document("T", edition, [Section("", [Paragraph("häßlich")])])


@pytest.mark.parametrize("ending", [".html", ".md", ".json", ".HTML"])
@pytest.mark.parametrize(("edition", "mode"), [("publishable", 0o644), ("curator", 0o600)])
def test_who_may_read_it(tmp_path, ending, edition, mode):
    mask = os.umask(0o077)
    try:
        out = write_document(document(edition), tmp_path / "new" / f"r{ending}")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(out.stat().st_mode) == mode
    assert [path.name for path in out.parent.iterdir()] == [f"r{ending}"]
    assert "T" in out.read_text(encoding="utf-8")


def test_the_ending_is_the_format(tmp_path):
    html, markdown, data = (
        write_document(document(), tmp_path / name).read_text(encoding="utf-8")
        for name in ("r.html", "r.md", "r.json")
    )
    assert html.startswith("<!doctype html>")
    assert "häßlich" in html
    assert markdown.startswith("# T")
    assert json.loads(data)["title"] == "T"


def test_one_that_everybody_could_read_is_closed_before_it_is_written(tmp_path):
    out, part = tmp_path / "r.md", tmp_path / ".r.md.part"
    for path in (out, part):
        path.write_text("old")
        path.chmod(0o644)
    write_document(document("curator"), out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert not part.exists()


@pytest.mark.parametrize("name", ["r", "r.pdf", "r.html.gz", ".html"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"a report must end in \.html, \.md, \.json"):
        write_document(document(), tmp_path / name)
    with pytest.raises(ValueError, match="must end in"):
        check_format(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "r.html").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        write_document(document(), tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_nothing_is_left_of_what_could_not_be_written(tmp_path):
    odd = Document("T", "curator", [Section("", [Paragraph("x")])], {"a": float("nan")})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_document(odd, tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_half_a_letter_does_not_stop_it(tmp_path):
    odd = Document("\ud800", "publishable", [])
    assert "?" in write_document(odd, tmp_path / "r.html").read_text(encoding="utf-8")
