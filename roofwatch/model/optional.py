"""Values that may be missing."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_optional(function: Callable[[T], R], value: T | None) -> R | None:
    """Apply a function to a value; None stays None."""
    if value is None:
        return None
    return function(value)
