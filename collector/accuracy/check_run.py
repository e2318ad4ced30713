"""The full check of a suite: select cases and check them in worker processes."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from roofwatch.collector.accuracy.check_report import CheckReport, Layout
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.run_plan import ALL, OnProgress, Progress, RunPlan, matches
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CaseKind,
    CheckableCase,
    CheckAccuracy,
    Checked,
    KernelInfo,
    Mode,
    SuiteInfo,
    WorkerSettings,
    check_limit,
)
from roofwatch.collector.workers.worker_pool import WorkerPool

_FAST_TAGS = {"small", "quick"}
"""Tags of cases that a GPU checks within moments."""


@dataclass(frozen=True)
class CheckSubject:
    """A case, an implementation, and where it runs."""

    case_id: str
    implementation: str
    executor: Literal["device", "interpreter"]
    rank_count: int = 1


def select_subjects(info: SuiteInfo, plan: RunPlan) -> list[CheckSubject]:
    """Select what to check, grouped by case so that implementations share its reference.

    Without patterns of cases, edge cases are checked with the fast cases on a GPU, and with the interpreter's stand-ins
    on a CPU. Without patterns of implementations, those compiled by torch.compile are left out.

    Raises:
        SuiteError: nothing matches the plan.
    """
    kernels = [kernel for kernel in info.kernels if matches(kernel.name, plan.kernels)]
    if not kernels:
        known = ", ".join(kernel.name for kernel in info.kernels)
        raise SuiteError(f"no kernel matches {' '.join(plan.kernels)}; the suite has {known}")
    subjects = [subject for kernel in kernels for subject in _subjects_of(kernel, info.device, plan)]
    if not subjects:
        names = sorted({implementation.name for kernel in kernels for implementation in kernel.implementations})
        raise SuiteError(
            f"nothing to check: no case matches {' '.join(plan.cases or ALL)} with implementation "
            f"{' '.join(plan.implementations or ALL)}; implementations: {', '.join(names)}; "
            f"cases: {kernels[0].checkable[0].case_id}, …"
        )
    return list(dict.fromkeys(subjects))


def check_suite(
    source: SuiteSource, plan: RunPlan, on_progress: OnProgress = lambda _: None, *, fork_server: ForkServer
) -> tuple[CheckReport, ...]:
    """Check each selected case as declared and, if it passes, in other layouts.

    Returns:
        Reports in the order of the suite; a case's layouts follow it.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing matches the plan.
    """
    with (
        WorkerPool(fork_server, WorkerSettings(source=source, device=plan.device)) as workers,
        WorkerPool(fork_server, WorkerSettings(source=source, mode=Mode.INTERPRETER, device="cpu")) as interpreter,
        ThreadPoolExecutor(1) as pool,
    ):
        on_progress(Progress(0, 0, "loading the suite"))
        subjects = select_subjects(workers.start(), plan)
        found: dict[CheckSubject, list[CheckReport]] = {subject: [] for subject in subjects}

        def check_all(where: WorkerPool, executor: str) -> None:
            for subject in subjects:
                if subject.executor == executor:
                    found[subject] = list(_reports(where, subject, plan.check_timeout_s))
                    done = sum(map(bool, found.values()))
                    on_progress(Progress(done, len(subjects), f"{subject.case_id} {subject.implementation}"))

        interpreting = pool.submit(check_all, interpreter, "interpreter")
        check_all(workers, "device")
        interpreting.result()
    return tuple(report for reports in found.values() for report in reports)


def _subjects_of(kernel: KernelInfo, device: str, plan: RunPlan) -> Iterator[CheckSubject]:
    by_id = {case.case_id: case for case in kernel.checkable}
    for case in _select_cases(kernel, device, plan.cases):
        for implementation in kernel.implementations:
            patterns = plan.implementations
            is_selected = matches(implementation.name, patterns) if patterns else not implementation.is_compiled
            if case.direction not in implementation.directions or not is_selected:
                continue
            if device == "cpu" and implementation.language == "triton":
                stand_in = by_id[case.stand_in_id]
                yield CheckSubject(stand_in.case_id, implementation.name, "interpreter", stand_in.rank_count)
            else:
                yield CheckSubject(case.case_id, implementation.name, "device", case.rank_count)


def _select_cases(kernel: KernelInfo, device: str, patterns: tuple[str, ...] | None) -> Iterable[CheckableCase]:
    if patterns is not None:
        return [case for case in kernel.checkable if matches(case.case_id, patterns)]
    declared = [case for case in kernel.checkable if case.kind is CaseKind.DECLARED]
    edges = [case for case in kernel.checkable if case.kind is CaseKind.EDGE]
    if device != "cpu":
        return [*(case for case in declared if not case.tags or _FAST_TAGS & set(case.tags)), *edges]
    stand_ins = {case.stand_in_id for case in declared}
    return [*(case for case in kernel.checkable if case.case_id in stand_ins), *edges]


def _reports(workers: WorkerPool, subject: CheckSubject, timeout_s: float) -> Iterator[CheckReport]:
    checked = _check(workers, subject, None, timeout_s)
    yield checked.report
    for layout in checked.layouts:
        yield _check(workers, subject, layout, timeout_s).report


def _check(workers: WorkerPool, subject: CheckSubject, layout: Layout | None, timeout_s: float) -> Checked:
    named = {"case_id": subject.case_id, "implementation": subject.implementation, "layout": layout}
    job = CheckAccuracy(**named, is_exact=True)
    reply = workers.request(job, timeout_s=timeout_s, rank_count=subject.rank_count)
    if reply.checked is not None:
        return reply.checked
    failure = reply.failure_within(check_limit(timeout_s))
    report = CheckReport(**named, executor=subject.executor, outcome=failure.outcome, message=failure.message)
    return Checked(report=report, layouts=())
