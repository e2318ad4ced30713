"""The packages that the launched kernels come from."""

import functools
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path

from roofwatch.model.proofs import KernelPackage

_PLAIN_FOLDER = (
    "{folder} comes first on the import path and is not used: it has no __init__.py, so Python "
    "prefers an installed package"
)


def packages_of(modules: Iterable[str]) -> tuple[KernelPackage, ...]:
    """The package of each module with its version, each once; loose files are left out."""
    names = dict.fromkeys(name.partition(".")[0] for name in modules if "." in name)
    packages: list[KernelPackage] = []
    for name in names:
        folder = _folder_of(name)
        # a module that only exists in memory has no folder
        if folder is not None:
            packages.append(
                KernelPackage(
                    name=name,
                    version=_version_in(folder.parent, name),
                    folder=str(folder),
                    warning=_shadowed_folder(folder),
                )
            )
    return tuple(packages)


def _folder_of(package: str) -> Path | None:
    paths = list(getattr(sys.modules.get(package), "__path__", ()))
    if not paths:
        return None
    return Path(paths[0])


@functools.cache
def _version_in(folder: Path, package: str) -> str | None:
    """Version of the distribution that installed a package into a folder."""
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        files = distribution.files or ()
        if any(file.parts[0] == package for file in files):
            return distribution.version
    return None


def _shadowed_folder(folder: Path) -> str | None:
    """Say that a folder of the same name would come first, if it were a regular package."""
    for entry in sys.path:
        namesake = Path(entry or ".").resolve() / folder.name
        if namesake == folder.resolve():
            return None
        if (
            namesake.is_dir()
            and not (namesake / "__init__.py").exists()
            and any(namesake.rglob("*.py"))
        ):
            return _PLAIN_FOLDER.format(folder=namesake)
    return None
