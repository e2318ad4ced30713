"""What a case's tags are about: its scale, its phase, how it is spread, which suite has it, or something else. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum


class TagGroup(StrEnum):
    """Of tags one of which a case has of a kind."""

    SCALE = "scale"
    PHASE = "phase"
    PARALLEL = "parallel"
    SUITE = "suite"
    OTHER = "other"


_PATTERNS = {
    TagGroup.SCALE: re.compile(r"\d+(\.\d+)?[kmbt]", re.IGNORECASE),
    TagGroup.PHASE: re.compile("prefill|decode|train"),
    TagGroup.PARALLEL: re.compile(r"(tp|ep|pp|dp|cp)\d+"),
    TagGroup.SUITE: re.compile("small|quick|full"),
}


def group_of(tag: str) -> TagGroup:
    """By its form, such as `70b` or `tp8`, or by its word; `other` for the words of a project's own."""
    return next((group for group, pattern in _PATTERNS.items() if pattern.fullmatch(tag)), TagGroup.OTHER)


def by_group(tags: Iterable[str]) -> list[set[str]]:
    """Tags of one group stand for each other, those of different groups must all hold: `70b` and `8b` with `decode` are
    the decoding of either.
    """
    groups: defaultdict[TagGroup, set[str]] = defaultdict(set)
    for tag in tags:
        groups[group_of(tag)].add(tag)
    return list(groups.values())
