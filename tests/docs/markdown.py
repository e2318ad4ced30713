"""Commands, tables, links and headings of the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
_BY_HAND = {REFERENCE / "claims.md", REFERENCE / "glossary.md"}


def is_generated(page: Path) -> bool:
    """`make docs` writes it from the code, and Sphinx checks it and the links to it."""
    return page.parent == REFERENCE and page not in _BY_HAND


DOCUMENTS = sorted(
    page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if not is_generated(page)
)


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


@cache
def tokens_of(document: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(document.read_text())


def code_blocks(document: Path, *languages: str, section: str = "") -> list[str]:
    """Of a section with a heading of the second level, or of the whole page."""
    fenced = [
        token for token in tokens_of(document) if token.type == "fence" and token.info in languages
    ]
    if section:
        lines = document.read_text().splitlines()
        start = lines.index(f"## {section}")
        end = next(
            (line for line in range(start + 1, len(lines)) if lines[line].startswith("## ")),
            len(lines),
        )
        fenced = [token for token in fenced if token.map is not None and start < token.map[0] < end]
    return [token.content for token in fenced]


def shell_lines(document: Path, section: str = "") -> list[str]:
    """What a reader would type; a line that ends with a backslash continues on the next."""
    return [
        line
        for block in code_blocks(document, "sh", "bash", section=section)
        for line in block.replace("\\\n", "").splitlines()
        if line.strip() and not line.startswith("#")
    ]


def code_spans(document: Path) -> list[str]:
    return [token.content for token in _inline(document) if token.type == "code_inline"]


def targets(document: Path) -> list[str]:
    """Of links and images."""
    found = [token.attrs.get("href") or token.attrs.get("src") for token in _inline(document)]
    return [str(target) for target in found if target]


def anchors(document: Path) -> set[str]:
    """What a heading is called in an address, as GitHub makes it."""
    tokens = tokens_of(document)
    titles = [after.content for before, after in pairwise(tokens) if before.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def table_under(document: Path, heading: str) -> list[list[str]]:
    """Rows of the first table under a heading, without its head; code spans without their marks."""
    tokens = tokens_of(document)
    titles = [
        index
        for index, token in enumerate(tokens)
        if token.content == heading and token.type == "inline"
    ]
    assert len(titles) == 1, f"{name_of(document)}: {len(titles)} headings {heading!r}"
    rows: list[list[str]] = []
    is_body = False
    for token in tokens[titles[0] :]:
        if token.type == "tbody_open":
            is_body = True
        elif token.type == "tbody_close":
            return rows
        elif is_body and token.type == "tr_open":
            rows.append([])
        elif is_body and token.type == "inline":
            rows[-1].append(token.content.replace("`", ""))
    raise AssertionError(f"{name_of(document)}: no table under {heading!r}")


def _inline(document: Path) -> Iterator[Token]:
    for token in tokens_of(document):
        yield from token.children or ()
