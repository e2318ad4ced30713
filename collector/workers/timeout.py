"""What is told of a job that was not done in time: how long it had, for what, and the way out."""

from __future__ import annotations

from roofwatch.collector.record.part import Outcome
from roofwatch.collector.workers.protocol import Failure


def explained(failure: Failure | None, limit: str) -> Failure | None:
    """Why a job failed; where it was not done in time, with the limit that it met, in words."""
    if failure is None or failure.outcome is not Outcome.TIMED_OUT:
        return failure
    return failure.model_copy(update={"message": f"{failure.message}: {limit}"})


def check_limit(timeout_s: float) -> str:
    """What a check of results has, and who may change it."""
    return (
        f"a check has {timeout_s:g} s to compile, to tune and to evaluate its reference; one that is slower and does "
        "not hang takes a larger --check-timeout"
    )


def compile_limit(timeout_s: float) -> str:
    """What compiling one case and implementation for all targets has, and who may change it."""
    return (
        f"one case has {timeout_s:g} s to compile for all targets, in every configuration of its autotuner; one that "
        "takes longer takes a larger --compile-timeout"
    )
