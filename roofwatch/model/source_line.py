"""Where the source of a function is."""

from typing import Annotated

from pydantic import AfterValidator, Field

from roofwatch.model.machine import Name, Part

MAX_LINE = 10_000_000


def _check_relative(path: str) -> str:
    # a file of Windows or of git itself, or one outside the repository
    has_odd_character = not path.isprintable() or "\\" in path or ":" in path
    has_odd_name = not {"", ".", "..", ".git"}.isdisjoint(path.split("/"))
    if has_odd_character or has_odd_name:
        raise ValueError(
            "a source file is named by its path from the root of its repository, with / between "
            "names"
        )
    return path


SourceFile = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_relative)]
"""A path in the repository, with `/` between names."""


class SourceLine(Part):
    """The line of a function's `def`."""

    kernel: Name
    implementation: Name
    function: Name
    file: SourceFile
    line: Annotated[int, Field(ge=1, le=MAX_LINE)]
    is_jitted: bool = False
    """Compiled by Triton; otherwise the launcher."""
