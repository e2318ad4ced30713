"""Check the prose of documents, docstrings and comments: words that we avoid, and long sentences.

    python docs/check_prose.py

Avoided words fail the check; so do long sentences in documents.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
MAX_WORDS = 35
AVOIDED = {
    "that which": "name the thing",
    "of which": "start a new sentence",
    "whoever": "name the user",
    "who asks": "name the client",
    "is told": "say what is shown or returned",
    "are told": "say what is shown or returned",
    "nobody vouches": "untrusted",
    "nobody has decided": "not triaged",
    "somebody is at it": "acknowledged",
    "held against": "compared with",
    "looked at again": "analysed again",
    "by whom": "name the person or program",
    "put together": "build, join or group",
    "so many at most": "maximum",
    "left out:": "default:",
    "may be given again": "repeatable",
    "the door of": "the endpoint",
    "at hand": "available",
    "beside it": "next to it, or name the place",
    "alike": "identical, or equal",
}
_AVOIDED_WORDS = "|".join(map(re.escape, AVOIDED))
_AVOIDED = re.compile(rf"\b(?:{_AVOIDED_WORDS})", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\"(])|\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """A piece of prose and where it starts."""

    file: Path
    line: int
    text: str
    is_document: bool


def passages() -> Iterator[Passage]:
    """All prose of the files that git tracks, tests excluded."""
    listed = subprocess.run(
        ["git", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        file = ROOT / name
        if name.startswith("tests/") or file.is_symlink():
            continue
        if file.suffix == ".md" and "decisions" not in name:
            yield from _of_document(file)
        elif file.suffix == ".py" and file != Path(__file__):
            yield from _of_code(file)


def _of_document(file: Path) -> Iterator[Passage]:
    for token in MarkdownIt("commonmark").enable("table").parse(file.read_text()):
        if token.type == "inline" and token.map is not None:
            yield Passage(
                file=file,
                line=token.map[0] + 1,
                text=token.content,
                is_document=True,
            )


def _of_code(file: Path) -> Iterator[Passage]:
    source = file.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Passage(
                file=file,
                line=node.lineno,
                text=node.value,
                is_document=False,
            )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(
                file=file,
                line=token.start[0],
                text=token.string.lstrip("# "),
                is_document=False,
            )


def problems(passage: Passage) -> Iterator[str]:
    """Describe each problem of a passage, one line each."""
    where = f"{passage.file.relative_to(ROOT)}:{passage.line}"
    for match in _AVOIDED.finditer(passage.text):
        word = match[0].lower()
        yield f"{where}: avoid {word!r}: {AVOIDED[word]}"
    if passage.is_document:
        for sentence in _SENTENCE_END.split(passage.text):
            words = sentence.split()
            if len(words) > MAX_WORDS:
                beginning = " ".join(words[:8])
                yield f"{where}: sentence of {len(words)} words: {beginning} …"


def main() -> int:
    """Print all problems; exit status 1 if there are any."""
    problem_lines = [line for passage in passages() for line in problems(passage)]
    print("\n".join(problem_lines) or "prose: no problem found")
    return min(len(problem_lines), 1)


if __name__ == "__main__":
    raise SystemExit(main())
