"""Who owns a file, by GitHub's CODEOWNERS. Pure.

The rules are gitignore's with these exceptions: the last pattern that matches decides; there is no negation with `!`
and no range with `[ ]`, and a `#` at the beginning is always a comment, escaped or not; a line that is not valid is
skipped; a pattern without owners says that nobody owns what it matches. Paths are case-sensitive. The file is in
`.github/`, in the root or in `docs/`, looked for in this order, and is not read beyond 3 MB.

Source: GitHub's "About code owners" (docs.github.com), and git's gitignore(5) for what a pattern means: with a slash at
the beginning or in the middle it starts at the root, else it matches at any depth; with one at the end it matches
folders alone; `*` and `?` do not cross a slash, `**` does. Different from gitignore, `docs/*` matches files directly in
`docs` and not those in its folders, as GitHub's examples say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
MAX_BYTES = 3_000_000

_OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)


@dataclass(frozen=True)
class _Line:
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


@dataclass(frozen=True)
class CodeOwners:
    """The lines of a CODEOWNERS file that are valid."""

    lines: tuple[_Line, ...]

    def owners_of(self, path: str) -> tuple[str, ...]:
        """Owners of a file.

        Args:
            path: From the root of the repository, with `/`.
        """
        for line in reversed(self.lines):
            if line.pattern.fullmatch(path):
                return line.owners
        return ()


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file; one that is larger than GitHub reads owns nothing."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        return CodeOwners(())
    lines = [_parse(line) for line in text.splitlines()]
    return CodeOwners(tuple(line for line in lines if line is not None))


def _parse(line: str) -> _Line | None:
    words = _words(line)
    if not words:
        return None
    pattern, *owners = words
    if pattern.startswith("!") or "[" in pattern or "]" in pattern or "\\#" in pattern[:2]:
        return None
    if not all(_OWNER.fullmatch(owner) for owner in owners):
        return None
    return _Line(_compiled(pattern), tuple(owners))


def _words(line: str) -> list[str]:
    """Split at white space that is not escaped, up to a comment."""
    words: list[str] = []
    for word in re.findall(r"(?:\\.|\S)+", line):
        if word.startswith("#"):
            break
        words.append(word)
    return words


def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as an expression over whole paths of files."""
    is_folder = pattern.endswith("/")
    body = pattern.strip("/")
    is_anchored = "/" in pattern.rstrip("/")
    steps = _steps(body)
    below = "/.*" if is_folder else _below(steps)
    return re.compile(("" if is_anchored else "(?:.*/)?") + _joined(steps) + below, re.DOTALL)


def _steps(body: str) -> Sequence[str]:
    return re.split(r"(?<!\\)/", body)


def _below(steps: Sequence[str]) -> str:
    """What else a pattern without a slash at its end matches: what is in a folder of that name."""
    last = steps[-1]
    if last == "**":
        return ""
    # `docs/*` means files directly in there, but a bare `*` everything
    return "" if last == "*" and len(steps) > 1 else "(?:/.*)?"


def _joined(steps: Sequence[str]) -> str:
    expression = ""
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        if step == "**":
            # at the end everything inside, else any number of folders
            expression += ".+" if is_last else "(?:[^/]+/)*"
        else:
            expression += _expression(step) + ("" if is_last else "/")
    return expression


def _expression(step: str) -> str:
    parts = re.findall(r"\\.|\*+|\?|.", step, re.DOTALL)
    return "".join(_part(part) for part in parts)


def _part(part: str) -> str:
    if part.startswith("*"):
        return "[^/]*"
    if part == "?":
        return "[^/]"
    return re.escape(part.removeprefix("\\"))
