"""Who owns a kernel: by the rules, else by the CODEOWNERS file of the repository. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from codeowners import CodeOwners
from pydantic import Field, StringConstraints

from roofwatch.ci.alerts.tables import RulesTable, matches

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in this order."""
# a user or team of a forge, or a mail address; other words of CODEOWNERS are no owners
OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)


class KernelOwners(RulesTable):
    """Owners of kernels whose source file is unknown."""

    kernels: tuple[str, ...] = Field(min_length=1)
    """Patterns of kernels."""
    owners: tuple[Annotated[str, StringConstraints(pattern=r"^\S{1,200}$")], ...]


@dataclass(frozen=True)
class Ownership:
    table: Sequence[KernelOwners] = ()
    """Of the rules; the last match counts."""
    codeowners: CodeOwners | None = None
    """Of the repository; asked if the table has no match."""
    source_paths: Mapping[str, str] = field(default_factory=dict)
    """By kernel, from the root of the repository."""

    def owners_of(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Return the owners of some kernels, each once, in the order of the kernels."""
        owners = [owner for kernel in kernels for owner in self._of_kernel(kernel)]
        return tuple(dict.fromkeys(owners))

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        if path is None or self.codeowners is None:
            return []
        return [owner for _, owner in self.codeowners.of(path)]


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file as GitHub does: invalid lines are skipped, and a pattern without
    owners has none.
    """
    valid_lines = []
    for line in text.splitlines():
        without_comment, _, _ = line.partition("#")
        words = without_comment.split()
        if not words:
            continue
        pattern, *owners = words
        # GitHub supports no negation, escapes or character classes
        is_supported = set(pattern).isdisjoint("!\\[]")
        if is_supported and all(map(OWNER.fullmatch, owners)):
            valid_lines.append(" ".join(words))
    return CodeOwners("\n".join(valid_lines))
