"""What the commands that take --affected do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from roofwatch.collector.record.record import SkippedKernel
    from roofwatch.collector.run_plan import RunPlan


def only_affected(
    path: Path | None, base: str, head: str | None, plan: RunPlan, patterns: Sequence[str] | None
) -> tuple[RunPlan, tuple[SkippedKernel, ...]]:
    """Narrow a plan to what the difference between two revisions can touch, and say what is left out and why. Ends the
    command, well, where nothing is left.

    Args:
        path: Benchmark file or folder; None for the suite that comes with roofwatch.
        base: Revision.
        head: Revision; the work tree as it is if None.
        plan: What would be measured.
        patterns: The kernels that were asked for; all if None.

    Returns:
        The narrower plan, and what a record of it says of the others.
    """
    from dataclasses import replace

    from roofwatch.measuring.affected import find_affected
    from roofwatch.terminal import print_error

    found = find_affected(path, base, head, plan)
    print_error(found.sentence)
    names = found.matching(patterns)
    if not names:
        print_error("nothing to measure: the change touches no kernel that was asked for")
        raise typer.Exit
    return replace(plan, kernels=tuple(names)), found.left_out
