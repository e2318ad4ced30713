"""Which suite to measure, without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SuiteSource:
    """Where a suite is declared.

    Args:
        path: A benchmark file, a folder of which every `bench_*.py` counts, or a file of signatures; None for the
            suite that comes with roofwatch.
        import_roots: Put first on the import path, so that the suite finds its own repository's packages.
        module: Of a file of signatures: only what is in this module.
    """

    path: Path | None = None
    import_roots: tuple[Path, ...] = ()
    module: str | None = None
