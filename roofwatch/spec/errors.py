"""What a benchmark file gets wrong, and what it says where it cannot run."""

from __future__ import annotations


class SpecError(ValueError):
    """A benchmark file declares something that cannot be measured."""


class UnsupportedError(NotImplementedError):
    """What an implementation raises where a case cannot be run here: outcome `unsupported`, not a failure. The message
    says what is missing, for example `needs a GPU of compute capability 8.9 or newer`.
    """
