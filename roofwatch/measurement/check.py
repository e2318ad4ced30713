"""`roofwatch check`: select cases and check them in worker processes."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

from roofwatch.arguments import suite_source
from roofwatch.collector.build.provenance import require_own_code
from roofwatch.collector.runs.run_plan import ALL, OnProgress, Progress, RunPlan, matches
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.check_report import CheckReport
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import (
    CheckableCase,
    CheckAccuracy,
    KernelInfo,
    Mode,
    SuiteInfo,
    WorkerSettings,
)

_FAST_TAGS = {"small", "quick"}
"""Tags of cases that a GPU checks within moments."""


class Depth(StrEnum):
    QUICK = "quick"
    """Without torch.compile; other values for the first case of each dtype and direction."""
    FULL = "full"


def select_jobs(
    info: SuiteInfo, plan: RunPlan, depth: Depth = Depth.QUICK
) -> dict[CheckAccuracy, Mode]:
    """Select what to check and how, grouped by case so that implementations share its reference.

    Without patterns of cases, edge cases are checked with the fast cases on a GPU, and with the
    interpreter's stand-ins on a CPU. Without patterns of implementations, those compiled by
    torch.compile are checked at full depth only.

    Raises:
        SuiteError: nothing matches the plan.
    """
    kernels = [kernel for kernel in info.kernels if matches(kernel.name, plan.kernels)]
    if not kernels:
        known = ", ".join(kernel.name for kernel in info.kernels)
        raise SuiteError(f"no kernel matches {' '.join(plan.kernels)}; the suite has {known}")
    jobs: dict[CheckAccuracy, Mode] = {}
    for kernel in kernels:
        jobs.update(_jobs_of(kernel, info.device, plan, depth))
    if not jobs:
        names = sorted(
            {implementation.name for kernel in kernels for implementation in kernel.implementations}
        )
        raise SuiteError(
            f"nothing to check: no case matches {' '.join(plan.cases or ALL)} with implementation "
            f"{' '.join(plan.implementations or ALL)}; implementations: {', '.join(names)}; "
            f"cases: {kernels[0].checkable[0].case_id}, …"
        )
    return jobs


def check_suite(
    source: SuiteSource,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    fork_server: ForkServer,
    depth: Depth = Depth.QUICK,
) -> tuple[CheckReport, ...]:
    """Check each selected case as declared and, if it passes, in other layouts and with other
    values.

    Returns:
        Reports in the order of the suite; a case's layouts and values follow it. Implementations
        that this depth leaves out are reported once.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing matches the plan.
        ForeignCodeError: what was checked is not the code of the suite's tree.
    """
    with (
        WorkerPool(fork_server, WorkerSettings(source=source, device=plan.device)) as workers,
        WorkerPool(
            fork_server, WorkerSettings(source=source, mode=Mode.INTERPRETER, device="cpu")
        ) as interpreter,
        ThreadPoolExecutor(1) as pool,
    ):
        on_progress(Progress(0, 0, "loading the suite"))
        info = workers.start()
        jobs = select_jobs(info, plan, depth)
        with_values = set(jobs) if depth is Depth.FULL else set(_first_of_each_kind(jobs))
        found: dict[CheckAccuracy, list[CheckReport]] = {job: [] for job in jobs}

        def check_all(where: WorkerPool, mode: Mode) -> None:
            for job in jobs:
                if jobs[job] is mode:
                    reports = _reports(
                        where, job, mode, plan.timeout_s, with_values=job in with_values
                    )
                    found[job] = list(reports)
                    on_progress(
                        Progress(sum(map(bool, found.values())), len(jobs), str(job.subject))
                    )

        interpreting = pool.submit(check_all, interpreter, Mode.INTERPRETER)
        check_all(workers, Mode.DEVICE)
        interpreting.result()
        require_own_code(source, workers.loaded | interpreter.loaded)
    checked = [report for reports in found.values() for report in reports]
    return (*checked, *_left_out(info, plan, jobs))


def _first_of_each_kind(jobs: Iterable[CheckAccuracy]) -> Iterable[CheckAccuracy]:
    """The first case of each kernel, dtype, direction and implementation."""
    first: dict[tuple[str, ...], CheckAccuracy] = {}
    for job in jobs:
        kernel, _shape, dtype, direction = job.case_id.split("/")
        first.setdefault((kernel, dtype, direction, job.implementation), job)
    return first.values()


def _left_out(
    info: SuiteInfo, plan: RunPlan, jobs: Iterable[CheckAccuracy]
) -> Iterator[CheckReport]:
    """One report of each implementation that only the depth left out."""
    if plan.implementations:
        return
    first_cases: dict[str, str] = {}
    checked: set[tuple[str, str]] = set()
    for job in jobs:
        name = job.case_id.partition("/")[0]
        first_cases.setdefault(name, job.case_id)
        checked.add((name, job.implementation))
    for kernel in info.kernels:
        for implementation in kernel.implementations:
            is_left_out = (kernel.name, implementation.name) not in checked
            if kernel.name in first_cases and implementation.is_compiled and is_left_out:
                yield CheckReport(
                    case_id=first_cases[kernel.name],
                    implementation=implementation.name,
                    executor="device",
                    outcome=Outcome.UNSUPPORTED,
                    message=f"{implementation.name} is checked with --depth full",
                )


def _jobs_of(
    kernel: KernelInfo, device: str, plan: RunPlan, depth: Depth
) -> Iterator[tuple[CheckAccuracy, Mode]]:
    by_id = {case.case_id: case for case in kernel.checkable}
    for case in _select_cases(kernel, device, plan.cases):
        for implementation in kernel.implementations:
            patterns = plan.implementations
            is_selected = (
                matches(implementation.name, patterns)
                if patterns
                else depth is Depth.FULL or not implementation.is_compiled
            )
            if case.direction not in implementation.directions or not is_selected:
                continue
            is_interpreted = device == "cpu" and implementation.language == "triton"
            own = by_id[case.stand_in_id] if is_interpreted else case
            job = CheckAccuracy(
                case_id=own.case_id,
                implementation=implementation.name,
                rank_count=own.rank_count,
                is_exact=True,
            )
            yield job, Mode.INTERPRETER if is_interpreted else Mode.DEVICE


def _select_cases(
    kernel: KernelInfo, device: str, patterns: tuple[str, ...] | None
) -> Iterable[CheckableCase]:
    if patterns is not None:
        return [case for case in kernel.checkable if matches(case.case_id, patterns)]
    declared = [case for case in kernel.checkable if case.kind == "declared"]
    edges = [case for case in kernel.checkable if case.kind == "edge"]
    if device != "cpu":
        return [
            *(case for case in declared if not case.tags or _FAST_TAGS & set(case.tags)),
            *edges,
        ]
    stand_ins = {case.stand_in_id for case in declared}
    return [*(case for case in kernel.checkable if case.case_id in stand_ins), *edges]


def _reports(
    workers: WorkerPool,
    job: CheckAccuracy,
    mode: Mode,
    timeout_s: float,
    *,
    with_values: bool = False,
) -> Iterator[CheckReport]:
    reply = workers.request(job, timeout_s=timeout_s)
    if reply.checked is not None:
        yield reply.checked.report
        for layout in reply.checked.layouts:
            yield from _reports(workers, job.model_copy(update={"layout": layout}), mode, timeout_s)
        for regime in reply.checked.regimes if with_values else ():
            yield from _reports(workers, job.model_copy(update={"regime": regime}), mode, timeout_s)
        return
    failure = reply.failure
    assert failure is not None
    yield CheckReport(
        **job.subject.named,
        layout=job.layout,
        regime=job.regime,
        executor="device" if mode is Mode.DEVICE else "interpreter",
        outcome=failure.outcome,
        message=failure.message,
        traceback=failure.traceback,
    )


def check_target(text: str) -> tuple[SuiteSource, tuple[str, ...]]:
    """Return the suite and the patterns of kernels for a path, or for a pattern of names of bundled
    kernels.

    Raises:
        SuiteError: there is no such file or folder.
    """
    if os.sep in text or text.endswith(".py") or Path(text).exists():
        return suite_source(Path(text)), ("*",)
    return suite_source(None), (text,)
