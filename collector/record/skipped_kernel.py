"""A kernel that was left out of a run because the change that is measured cannot touch it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from roofwatch.collector.record.part import Name, Part


class SkipReason(StrEnum):
    """What this version finds. A record of a newer one may name others."""

    SAME_SOURCES = "same_sources"
    """No module that it is made from changed."""
    SAME_MACHINE_CODE = "same_machine_code"
    """What its host side is made from says the same, and every function compiles to the same machine code."""


class SkippedKernel(Part):
    kernel: Name
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
    """A `SkipReason`, or what a newer version knows."""
