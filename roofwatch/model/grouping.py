"""Group values by what they share."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def group_by(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group values by a key, in the order in which the keys first occur."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups
