"""What pages link to outside of docs/ is part of the site, too: measurements, sources, rules.

Pages link as files do (``../src/sfumato/core/guarantee.py``), so that they also work where somebody
reads them as files. In the site such a target is copied in under its path: Markdown as it is, other
text as one block of code, with links rewritten. A link that leads nowhere stays as it is, and fails
the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

__all__ = ["on_files", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = (
    "benchmarks/RESULTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
)
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json"}


def on_files(files: Files, config: Any) -> Files:
    """Adds every file of the repository that a page links to, and what those link to in turn."""
    waiting = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    waiting += [(name, _added(files, config, name)) for name in ALWAYS if (ROOT / name).exists()]
    while waiting:
        page, text = waiting.pop()
        for _, target, _ in _LINK.findall(_outside_fences(text)):
            name = _repository_path(page, target)
            if name is None or files.get_file_from_path(_uri(name)) is not None:
                continue
            added = _added(files, config, name)
            if name.endswith(".md"):
                waiting.append((name, added))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of docs/ lead to the copies."""

    def inside(found: re.Match[str]) -> str:
        name = _repository_path(page.file.src_uri, found[2])
        if name is None:
            return found[0]
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"{found[1]}{posixpath.relpath(_uri(name), here)}{found[3]}"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(inside, part) for part in parts)


def _repository_path(page: str, target: str) -> str | None:
    """Where a link of a page leads to, from the repository's root; None if docs/ has it."""
    copied = not (ROOT / "docs" / page).exists()
    start = posixpath.dirname(page) if copied else posixpath.join("docs", posixpath.dirname(page))
    name = posixpath.normpath(posixpath.join(start, target))
    if name.startswith(".."):
        return None
    path = ROOT / name
    if name.startswith("docs/") and copied and path.is_file():
        return name
    if path.is_dir() and (path / "__init__.py").is_file():
        name, path = f"{name}/__init__.py", path / "__init__.py"
    return name if path.is_file() and not name.startswith("docs/") else None


def _uri(name: str) -> str:
    """Under which path the site has a file of the repository."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return name if name.endswith((".md", ".png")) else f"{name}.md"


def _added(files: Files, config: Any, name: str) -> str:
    path = ROOT / name
    if name.endswith(".png"):
        files.append(File.generated(config, name, abs_src_path=str(path)))
        return ""
    text = path.read_text(encoding="utf-8")
    if not name.endswith(".md"):
        language = _LANGUAGES.get(path.suffix, "text")
        text = f"# {name}\n\n````{language}\n{text}\n````\n"
    files.append(File.generated(config, _uri(name), content=text))
    return text


def _outside_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
