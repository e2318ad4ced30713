"""Where a suite of kernels is, and where the code that it measures comes from."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SuiteSource:
    path: Path | None = None
    """A benchmark file or a folder of `bench_*.py`; None for the bundled suite."""
    import_roots: tuple[Path, ...] = ()
    """Folders put first on the import path."""
    tree: Path | None = None
    """Root of the files of its commit; None takes the last import root."""
    builds: tuple[Path, ...] = ()
    """Folders into which the commit's distributions were built; the first import roots."""
    distributions: tuple[str, ...] = ()
    """Normalised names of the distributions in the tree."""
    package_folders: tuple[Path, ...] = ()
    """Folders that hold the packages of distributions, and nothing else."""
    other_folders: tuple[Path, ...] = ()
    """Folders of the tree that hold packages and are not on the import path."""
    work_tree: Path | None = None
    """The user's checkout of the repository; another folder than the tree at another commit."""

    python: Path | None = None
    """Interpreter of the commit's own environment; None for the one that roofwatch runs in."""

    @property
    def root(self) -> Path | None:
        """Root of the suite's repository, at its commit; None outside one."""
        if self.tree is not None:
            return self.tree
        if self.import_roots:
            return self.import_roots[-1]
        return None

    @property
    def name(self) -> str | None:
        """Path from the root of its repository, with `/` between names; None outside one."""
        root = self.root
        if (
            self.path is None
            or root is None
            or self.path == root
            or not self.path.is_relative_to(root)
        ):
            return None
        return self.path.relative_to(root).as_posix()
