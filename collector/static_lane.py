"""The static layer alone: compile every Triton kernel of a suite for every target, and run none."""

from __future__ import annotations

from collector.nursery import Nursery
from collector.record import StaticFacts
from collector.run import OnProgress, Progress
from collector.suite_run import RunPlan, SuiteRun
from collector.suite_source import SuiteSource
from collector.workers import Workers


def compile_suite(
    source: SuiteSource, plan: RunPlan, on_progress: OnProgress = lambda _: None
) -> tuple[StaticFacts, ...]:
    """Compile what the plan selects.

    Raises:
        SuiteError: the suite cannot be loaded, nothing in it matches the plan, or it has no Triton kernel.
    """
    run = SuiteRun(source, plan)
    done = 0

    def step(text: str) -> None:
        nonlocal done
        done += 1
        on_progress(Progress(done, len(run.to_compile), text))

    with Nursery() as nursery, Workers(nursery, source, device="cpu") as workers:
        run.select(workers.start())
        on_progress(Progress(0, len(run.to_compile), "compiling"))
        run.compile(workers, step)
    return run.static_facts
