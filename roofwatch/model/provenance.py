"""Which files of the measured project a run loaded, and whether they are those of its commit."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Name, Part


class Origin(StrEnum):
    """Where a loaded file lies."""

    TREE = "tree"
    """In the files of the commit."""
    BUILD = "build"
    """In a build of the commit's files."""
    JIT = "jit"
    """Compiled when it was imported, such as by `torch.utils.cpp_extension.load`."""
    INSTALLED = "installed"
    """Among the installed packages."""
    WORK_TREE = "work_tree"
    """In the user's checkout of the repository, which is at another commit."""
    ELSEWHERE = "elsewhere"

    @property
    def is_foreign(self) -> bool:
        """Whether it may be the code of another commit."""
        return self in {Origin.INSTALLED, Origin.WORK_TREE, Origin.ELSEWHERE}


_PLACES = {
    Origin.INSTALLED: "the installed packages",
    Origin.WORK_TREE: "the work tree",
    Origin.ELSEWHERE: "another folder",
}


class LoadedFile(Part):
    """A module or shared library of the measured project."""

    module: Name
    """Its file's name, for a shared library that is no module."""
    path: Annotated[str, Field(min_length=1, max_length=1_000)]
    """From the root of the tree, of the build or of the installed packages; else its last parts."""
    origin: Origin
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of its content; None if it is gone."""

    @property
    def place(self) -> str:
        """Where a foreign file lies, for a message."""
        return _PLACES.get(self.origin, "this commit")


WAY_OUT = (
    "its build configuration does not say where its code is: give roofwatch.toml a [build] command "
    "that installs it into {prefix}"
)


class ForeignCodeError(SuiteError):
    """What was loaded is not the code of the commit."""

    def __init__(self, file: LoadedFile) -> None:
        super().__init__(
            f"{file.module} was loaded from {file.place} ({file.path}), not from this commit; "
            f"{WAY_OUT}"
        )
