"""The owners of kernels: by the table in the rules, else by the source file and GitHub's CODEOWNERS. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from codeowners import CodeOwners

from roofwatch.ci.alerts.rules import KernelOwners, matches

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in this order."""
OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)


@dataclass(frozen=True)
class Ownership:
    table: Sequence[KernelOwners] = ()
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
        return [] if path is None or self.codeowners is None else [owner for _, owner in self.codeowners.of(path)]


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file as GitHub does: invalid lines are skipped, and a pattern without owners has none."""
    valid = []
    for line in text.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        if not set("!\\[]") & set(pattern) and all(map(OWNER.fullmatch, owners)):
            valid.append(" ".join((pattern, *owners)))
    return CodeOwners("\n".join(valid))
