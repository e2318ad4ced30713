"""Where a function of a kernel stands in the suite's repository, so that a finding can be shown beside the source."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from roofwatch.collector.record.part import Name, Part

MAX_LINE = 10_000_000


def _inside(path: str) -> str:
    """A path that can only lead to a file of the repository, whoever wrote it."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or ":" in path or {"", ".", "..", ".git"} & set(parts):
        raise ValueError("a source file is named by its path from the root of its repository, with / between names")
    return path


SourceFile = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)]


class SourceLine(Part):
    """The first line of a function that computes a kernel."""

    kernel: Name
    implementation: Name
    function: Name
    """As its `def` names it."""
    file: SourceFile
    """From the root of the repository, with `/` between names."""
    line: Annotated[int, Field(ge=1, le=MAX_LINE)]
    is_jitted: bool = False
    """Triton compiles it; else it is what is called."""
