"""Who owns a kernel: by its source file and CODEOWNERS where the record says where it is, else by a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofwatch.ci.alerts.rules import OwnersOfKernels, matches
from roofwatch.ci.report.codeowners import CodeOwners


@dataclass(frozen=True)
class Ownership:
    """What is known of who owns what."""

    table: Sequence[OwnersOfKernels] = ()
    codeowners: CodeOwners | None = None
    source_paths: Mapping[str, str] = field(default_factory=dict)
    """Of kernels, from the root of their repository; those that are known."""

    def owners_of(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Owners of some kernels, each once, in the order of the kernels. What the table says of a kernel counts first:
        it was written for this.
        """
        found = [owner for kernel in kernels for owner in self._of_kernel(kernel)]
        return tuple(dict.fromkeys(found))

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        if path is None or self.codeowners is None:
            return ()
        return self.codeowners.owners_of(path)
