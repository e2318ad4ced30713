"""Blocks of one case and implementation, and the resulting measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from roofwatch.collector.autotune import merged
from roofwatch.collector.device.roofline import INVALID_ABOVE, position
from roofwatch.collector.errors import TimerError
from roofwatch.collector.outbox.journal import TimedStep
from roofwatch.collector.record.machine import Ceiling, Environment, Outcome
from roofwatch.collector.record.measurement import (
    Autotuning,
    Block,
    CacheState,
    CaseRecord,
    Measurement,
    MemoryUse,
    Timer,
)
from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.timing.method import ChosenMethod
from roofwatch.collector.workers.protocol import ChooseTiming, Failure, TimedBlock, machine_error
from roofwatch.collector.workers.worker_pool import WorkerPool


@dataclass
class CaseTiming:
    blocks: list[Block] = field(default_factory=list)
    failure: Failure | None = None
    timer: Timer = Timer.PERF_COUNTER
    cache: CacheState = CacheState.HOT
    launches_per_sample: int | None = None
    memory: MemoryUse | None = None
    """Of the first block; the others are equal."""
    autotuning: tuple[Autotuning, ...] = ()

    def add(self, taken: TimedBlock) -> None:
        self.blocks.append(taken.block)
        self.timer, self.cache = taken.method.timer, taken.method.cache
        self.launches_per_sample = taken.launches_per_sample
        self.memory = self.memory or taken.memory
        self.autotuning = merged(self.autotuning, taken.autotuning)

    def step(self, subject: Subject, block: Block | None) -> TimedStep:
        """Journal entry for the last block; None if there is none."""
        return TimedStep(
            **subject.named,
            blocks_before=len(self.blocks) - (block is not None),
            block=block,
            state=_ADAPTER.dump_python(self, mode="json", exclude={"blocks"}),
        )

    def after(self, step: TimedStep) -> CaseTiming:
        """The state after a journal entry."""
        before = self.blocks[: step.blocks_before]
        blocks = before if step.block is None else [*before, step.block]
        return replace(_ADAPTER.validate_python(step.state), blocks=blocks)

    def why_untimed(self, accuracy: Accuracy | None, *, runs_here: bool) -> Failure | None:
        """Why there are no samples; None if there are.

        Args:
            accuracy: The check's result, if it was checked.
            runs_here: Whether the device can run it.
        """
        if accuracy is not None and accuracy.outcome is not Outcome.OK:
            return Failure(outcome=accuracy.outcome, message=accuracy.message or "")
        if self.failure is not None:
            return self.failure
        if not runs_here:
            return Failure(
                outcome=Outcome.UNSUPPORTED,
                message="Triton code does not run on a CPU: checked in the interpreter and compiled, not timed",
            )
        if not self.blocks:
            return Failure(outcome=Outcome.UNSUPPORTED, message="not timed in this run")
        return None

    def measurement(self, subject: Subject, failure: Failure | None) -> Measurement:
        """The measurement, without its roofline position."""
        return Measurement(
            case_id=subject.case_id,
            implementation=subject.implementation,
            outcome=Outcome.OK if failure is None else failure.outcome,
            message=None if failure is None else failure.message,
            timer=self.timer,
            cache=self.cache,
            launches_per_sample=self.launches_per_sample or 1,
            blocks=() if failure is not None else tuple(self.blocks),
            memory=self.memory,
            autotuning=self.autotuning,
        )


_ADAPTER = TypeAdapter(CaseTiming)


def under_the_roof(
    measured: Measurement, case: CaseRecord, ceilings: Sequence[Ceiling], environment: Environment
) -> Measurement:
    """Add the binding ceiling to a measurement; drop the samples if they are faster than the ceiling allows."""
    if measured.median_ns is None:
        return measured
    place = position(case, measured.median_ns, ceilings, measured.cache)
    if place is None:
        return measured
    limit = INVALID_ABOVE[environment.device_kind]
    if place.excess > limit:
        message = (
            f"median {measured.median_ns:.0f} ns is {place.excess:.1f} times faster than the {place.bound} ceiling "
            f"allows ({place.excess * measured.median_ns:.0f} ns; the limit is {limit:g} times): check flop_count, "
            "memory_bytes and the result"
        )
        return measured.model_copy(update={"outcome": Outcome.INVALID, "message": message, "blocks": ()})
    if case.bus_bytes is not None:
        return measured  # bound by links, whose ceiling is not measured
    return measured.model_copy(update={"bound": place.bound, "utilisation": place.utilisation})


def choose_timing(workers: WorkerPool, plan: RunPlan, device: str, *, earlier: CaseTiming | None) -> ChosenMethod:
    """Choose timer and cache state as the plan asks, or as an earlier process of the run did.

    Args:
        workers: One of them tries the timer.
        plan: The requested timer and cache state.
        device: `cpu` or `cuda`.
        earlier: A measurement of the run with blocks, if any.

    Raises:
        TimerError: not available here.
        CollectorError: the worker failed.
    """
    timer, cache = (plan.timer, plan.cache) if earlier is None else (earlier.timer, earlier.cache)
    job = ChooseTiming(timer=timer, cache=cache)
    reply = workers.request(job, timeout_s=plan.environment_timeout_s)
    if reply.timing is None:
        raise machine_error("no timer can be chosen", reply.failure, device)
    if reply.timing.chosen is None:
        raise TimerError(reply.timing.error)
    return reply.timing.chosen
