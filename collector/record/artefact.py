"""Files that belong to a run and are too large for its record: the record names them by their content."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from roofwatch.collector.record.part import Count, Part

MAX_ARTEFACT_BYTES = 256 * 2**20
"""Of one file: the store and the server take no larger one."""

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+@=,-]{0,199}$"
"""A name is that of a file in any folder, of any system: no path, no blank, nothing that a shell or a page reads."""


class ArtefactKind(StrEnum):
    """What this version makes. A record of a newer one may name others."""

    TRACE = "trace"
    """Of torch.profiler, as JSON that may be packed with gzip."""
    NCU_REPORT = "ncu_report"
    """Of Nsight Compute: its own format, or its raw page as CSV."""
    NSYS_EXPORT = "nsys_export"
    """Of Nsight Systems: an sqlite export."""
    DISASSEMBLY = "disassembly"
    HTML = "html"
    OTHER = "other"


class Artefact(Part):
    """One file; beside the record it lies in the folder `artefacts`, under its sha256."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Count
