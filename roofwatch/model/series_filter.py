"""Which series of a project are read, by commands, the database, the API and its clients."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from pydantic import Field

# Values come from anybody with a token, so their type limits them.
Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]


class IncludedRuns(TypedDict, total=False):
    """Runs that count besides those of clean commits on the default branch."""

    include_dirty: bool
    include_pairs: bool
    include_branches: bool


@dataclass(frozen=True)
class SeriesFilter:
    """A client sends each field as a parameter of the same name."""

    project: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            pattern=r"^[\w.][\w./-]*$",
            description="A project.",
            examples=["owner/kernels"],
        ),
    ]
    kernel: Annotated[
        Word | None, Field(description="Only of this kernel.", examples=["rms_norm"])
    ] = None
    metric: Annotated[
        Word | None, Field(description="Only of this metric.", examples=["median_ns"])
    ] = None
    case: Annotated[Word | None, Field(description="Only of this case ID.")] = None
    include_pairs: Annotated[bool, Field(description="Include runs that are part of a pair.")] = (
        False
    )
    include_dirty: Annotated[bool, Field(description="Include runs of a modified work tree.")] = (
        False
    )

    @property
    def included(self) -> IncludedRuns:
        return {"include_pairs": self.include_pairs, "include_dirty": self.include_dirty}
