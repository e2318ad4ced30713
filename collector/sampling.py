"""When to stop timing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingPlan:
    """When to stop.

    Args:
        warmup_ms: Untimed running first, and at least three launches.
        budget_ms: Time for timed launches; `min_samples` are made even if they take longer.
        min_samples: Fewer say nothing about spread.
        max_samples: More teach nothing and fill the record.
        relative_width: Stop early once the 95 % interval of the median is this narrow, relative to it.

    Source: stopping at a relative width of the interval is nvbench's stdrel criterion with the median in place of
    the mean (NVIDIA/nvbench:docs/cli_help.md).
    """

    warmup_ms: float = 30.0
    budget_ms: float = 300.0
    min_samples: int = 10
    max_samples: int = 1_000
    relative_width: float = 0.01
