"""Compiles what a run will launch on a GPU, on all cores, before anything is launched."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from roofwatch.collector.runs.case_run import CaseRun
from roofwatch.collector.runs.run_plan import Activity, Steps
from roofwatch.collector.runs.suite_run import SuiteRun
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.errors import SuiteError
from roofwatch.model.worker_protocol import CompileAhead, Subject

_MAX_ON_DEVICE = 8
"""Processes that compile for torch.compile; each has a context and the inputs of a case."""


def compile_ahead(run: SuiteRun, steps: Steps) -> None:
    """Compile what the device will launch, so that it does not wait for compilers later."""
    target = run.compile_target
    cases = [
        case
        for case in run.cases.values()
        if _needs_compiler(case) and len(case.blocks) < run.plan.block_count
    ]
    if target is None or not cases:
        return
    with run.spent.on(Activity.COMPILE):
        fill_caches(
            workers=run.workers,
            cases=cases,
            target=target,
            timeout_s=run.plan.timeout_s,
            on_begin=lambda subject: steps.say(f"compiling {subject}"),
        )


def _needs_compiler(case: CaseRun) -> bool:
    """Whether a launch in one process compiles something."""
    is_compiled = case.implementation.language != "torch" or case.implementation.is_compiled
    return is_compiled and case.runs_here and case.rank_count == 1 and case.failure is None


def fill_caches(
    workers: WorkerPool,
    cases: Sequence[CaseRun],
    target: str,
    *,
    timeout_s: float,
    on_begin: Callable[[Subject], None] = lambda _: None,
) -> None:
    """Fill the caches of the workers' compilers; whatever fails is left to the launch.

    Triton and CUDA C++ need no device. torch.compile needs it for its inputs, and launches nothing.
    """
    workers.fork_server.load("triton", "without_data")
    core_count = len(os.sched_getaffinity(0))
    settings = workers.settings
    for_device = [case for case in cases if case.implementation.is_compiled]
    for_target = [case for case in cases if not case.implementation.is_compiled]
    for selected, pool_settings, worker_count in (
        (for_target, settings.model_copy(update={"device": "cpu", "thread_count": 1}), core_count),
        (for_device, settings, min(core_count, _MAX_ON_DEVICE)),
    ):
        jobs = [CompileAhead(**case.subject.named, target=target) for case in selected]
        # a suite that cannot be loaded beside the GPU compiles when it is launched
        with WorkerPool(workers.fork_server, pool_settings) as pool, suppress(SuiteError):
            replies = pool.do_all(
                jobs=jobs,
                worker_count=worker_count,
                timeout_s=timeout_s,
                on_begin=on_begin,
            )
            for _ in replies:
                pass
