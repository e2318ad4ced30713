"""Who owns a kernel: by the table in the rules, else by its source file and GitHub's CODEOWNERS. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofwatch.ci.alerts.rules import OwnersOfKernels, matches

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in this order."""
OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)


@dataclass(frozen=True)
class CodeOwners:
    """The valid lines of a CODEOWNERS file."""

    lines: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = ()

    def owners_of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a path from the root of the repository: those of the last matching line."""
        return next((owners for pattern, owners in reversed(self.lines) if pattern.fullmatch(path)), ())


@dataclass(frozen=True)
class Ownership:
    table: Sequence[OwnersOfKernels] = ()
    codeowners: CodeOwners | None = None
    source_paths: Mapping[str, str] = field(default_factory=dict)
    """By kernel, from the root of the repository."""

    def owners_of(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Return the owners of some kernels, each once, in the order of the kernels."""
        return tuple(dict.fromkeys(owner for kernel in kernels for owner in self._of_kernel(kernel)))

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        return () if path is None or self.codeowners is None else self.codeowners.owners_of(path)


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file; invalid lines are skipped, and a pattern without owners has none.

    Patterns are gitignore's without `!`, `[ ]` and escapes; `docs/*` matches only files directly in `docs`.

    Source: GitHub's "About code owners", and git's gitignore(5).
    """
    lines = []
    for line in text.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        is_supported = pattern and not set("!\\[]") & set(pattern)
        if is_supported and all(OWNER.fullmatch(owner) for owner in owners):
            lines.append((_compiled(pattern), tuple(owners)))
    return CodeOwners(tuple(lines))


def _compiled(pattern: str) -> re.Pattern[str]:
    """Translate a pattern to a regular expression for whole paths."""
    *steps, last = pattern.strip("/").split("/")
    expression = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    expression += "".join("(?:[^/]+/)*" if step == "**" else f"{_translated(step)}/" for step in steps)
    expression += ".+" if last == "**" else _translated(last)
    if pattern.endswith("/"):
        expression += "/.*"
    elif last != "**" and (last != "*" or not steps):
        expression += "(?:/.*)?"
    return re.compile(expression, re.DOTALL)


def _translated(step: str) -> str:
    return re.escape(step).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
