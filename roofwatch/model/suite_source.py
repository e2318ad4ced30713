"""Where a suite of kernels is."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SuiteSource:
    path: Path | None = None
    """A benchmark file or a folder of `bench_*.py`; None for the bundled suite."""
    import_roots: tuple[Path, ...] = ()
    """Folders put first on the import path."""

    @property
    def name(self) -> str | None:
        """Path from the root of its repository, with `/` between names; None outside one."""
        root = self.import_roots[-1] if self.import_roots else None
        if (
            self.path is None
            or root is None
            or self.path == root
            or not self.path.is_relative_to(root)
        ):
            return None
        return self.path.relative_to(root).as_posix()
