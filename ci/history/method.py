"""Which method judged: a fingerprint that is another one as soon as any code or threshold of judgement is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import numpy as np

from roofwatch.ci.thresholds import Thresholds


def method_of(thresholds: Thresholds) -> str:
    """sha256 of all code that judges and of the thresholds: nothing that has to be thought of when either changes."""
    return hashlib.sha256(f"{_code_fingerprint()} {thresholds!r}".encode()).hexdigest()


@cache
def _code_fingerprint() -> str:
    digest = hashlib.sha256(np.__version__.encode())
    for source in [*_sources(files("roofwatch.ci")), files("roofwatch.collector.record") / "metrics.py"]:
        digest.update(f"\0{source.name}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(room: Traversable) -> Iterator[Traversable]:
    for entry in sorted(room.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry
