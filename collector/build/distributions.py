"""The distributions in a source tree, and where each keeps its packages by the configuration of its
build backend.

Nothing of the tree is run. What its configuration does not say is left to the backend: such a
distribution is built.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from roofwatch.collector.build.backends import BACKENDS, Layout, Project
from roofwatch.collector.build.setup_files import setuptools_layout, setuptools_name
from roofwatch.collector.build.toml_file import read_toml, table

DECLARING = ("pyproject.toml", "setup.py", "setup.cfg")
"""Files that make a folder a distribution."""
_VENDORED = frozenset(
    {
        "3rdparty",
        "_vendor",
        "extern",
        "external",
        "fixtures",
        "node_modules",
        "site-packages",
        "test",
        "tests",
        "third-party",
        "third_party",
        "thirdparty",
        "vendor",
        "vendored",
    }
)
"""Folders with copies of other projects, which are measured as they are installed."""


@dataclass(frozen=True)
class Distribution:
    """What one `pip install` of a folder would install."""

    name: str
    """Normalised; of the folder if the configuration has none."""
    folder: Path
    roots: tuple[Path, ...]
    """Folders that its packages are imported from."""
    is_built: bool
    """It compiles or generates something, or its packages lie under other names."""

    def contains(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)


def is_vendored(path: PurePath) -> bool:
    """Whether a path in a tree belongs to a copy of another project, or to a test."""
    return bool(_VENDORED & set(path.parts))


def find_distributions(tree: Path, files: Sequence[str], suite: Path) -> list[Distribution]:
    """Find the distributions of a tree, given the names of its files; the innermost around the
    suite first, then from the root down.
    """
    folders = {tree / name: None for name in _declaring_folders(files)}
    distributions = []
    for folder in folders:
        is_around = suite.is_relative_to(folder)
        # another project's copy is not what the suite tests
        if is_vendored(folder.relative_to(tree)) and not is_around:
            continue
        distribution = read_distribution(folder)
        if distribution is not None:
            distributions.append(distribution)

    def order(distribution: Distribution) -> tuple[bool, int]:
        depth = len(distribution.folder.parts)
        is_around = distribution.contains(suite)
        if is_around:
            return False, -depth
        return True, depth

    return sorted(distributions, key=order)


def _declaring_folders(files: Sequence[str]) -> list[str]:
    folders: set[str] = set()
    for name in files:
        file = Path(name)
        if file.name in DECLARING:
            folders.add(str(file.parent))
    return sorted(folders)


def folders_with_packages(tree: Path, files: Sequence[str]) -> set[Path]:
    """Folders of a tree that hold a package, other than copies of other projects."""
    packages = {PurePosixPath(name).parent for name in files if name.endswith("/__init__.py")}
    return {
        (tree / package.parent).resolve()
        for package in packages
        if package.parent not in packages and not is_vendored(package)
    }


def read_distribution(folder: Path) -> Distribution | None:
    """Read a folder's configuration; None if it configures tools and nothing to install."""
    project = read_toml(folder / "pyproject.toml")
    has_setup = (folder / "setup.py").is_file() or (folder / "setup.cfg").is_file()
    build_system = table(project, "build-system")
    # a file that only configures a linter declares nothing
    if not (build_system or has_setup or table(project, "project") or _is_poetry(project)):
        return None
    backend = str(build_system.get("build-backend", "setuptools.build_meta"))
    name = _name_of(project, folder)
    layout = _layout(
        backend,
        Project(
            folder=folder,
            document=project,
            name=name,
        ),
    )
    if layout is None:
        return None
    folders = [root.resolve() for root in layout.roots if root.is_dir()]
    roots = tuple(dict.fromkeys(folders))
    return Distribution(
        name=name,
        folder=folder,
        roots=roots,
        is_built=layout.is_built or "backend-path" in build_system,
    )


def _layout(backend: str, project: Project) -> Layout | None:
    """Read the layout as the build backend of the project does; None without a project."""
    family = backend.partition(".")[0]
    if family == "setuptools":
        return setuptools_layout(project.folder, project.document)
    read = BACKENDS.get(family)
    # of an unknown backend nothing is known but that it can build
    if read is None:
        return Layout((), is_built=True)
    return read(project)


def _name_of(project: dict[str, Any], folder: Path) -> str:
    """The normalised name, from the first place that says it."""
    names = (
        table(project, "project").get("name"),
        table(project, "tool", "poetry").get("name"),
        table(project, "tool", "flit", "metadata").get("module"),
        setuptools_name(folder),
        folder.name,
    )
    return normalised(next(str(name) for name in names if name))


def _is_poetry(project: dict[str, Any]) -> bool:
    return bool(table(project, "tool", "poetry").get("name"))


def normalised(name: str) -> str:
    """A distribution's name, as packages with it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
