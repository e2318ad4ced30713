"""One way to compute a kernel, and what it is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from roofwatch.spec.case import Direction


class Language(StrEnum):
    """What an implementation is written in: decides where it can run and how it is compiled."""

    TORCH = "torch"
    TRITON = "triton"
    CUDA = "cuda"
    """CUDA C++ that NVRTC compiles."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute a kernel: a callable that takes the inputs by name."""

    name: str
    language: Language
    launch: Callable[..., Any]
    directions: frozenset[Direction]
    is_compiled: bool = False
    """Run through torch.compile, which the collector does just before measuring."""
    is_deterministic: bool = False
    """Two runs on the same numbers give the same bits; checked."""
    unsupported_targets: Mapping[str, str] = field(default_factory=dict)
    """Why it is not compiled for a GPU target, by target."""
