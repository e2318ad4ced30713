"""The full check of a suite: what to check where, worker processes that do it, and a report of each case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from roofwatch.collector.accuracy.check_report import CheckReport, Layout
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import matches
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CaseKind,
    CheckableCase,
    FullCheck,
    ImplementationInfo,
    KernelInfo,
    Mode,
    SuiteInfo,
    WorkerSettings,
    check_limit,
    explained,
)
from roofwatch.collector.workers.worker_pool import WorkerPool

_MOMENTS = {"small", "quick"}
"""Tags of the cases that a GPU does in moments."""


@dataclass(frozen=True)
class CheckPlan:
    """What to check.

    Args:
        kernels: Shell patterns of kernel names.
        cases: Shell patterns of case ids; None takes on a GPU what it does in moments, elsewhere what stands in for the
            cases, and everywhere the edges.
        implementations: Shell patterns of implementation names; None takes all but those that torch.compile makes,
            which are torch's code.
        device: `cpu` or `cuda`; None takes a GPU where torch sees one.
        timeout_s: For one case in one layout, compiling included.
    """

    kernels: tuple[str, ...] = ("*",)
    cases: tuple[str, ...] | None = None
    implementations: tuple[str, ...] | None = None
    device: str | None = None
    timeout_s: float = 300.0


@dataclass(frozen=True)
class CheckSubject:
    """A case and an implementation of it, and where it runs."""

    case_id: str
    implementation: str
    executor: Literal["device", "interpreter"]
    rank_count: int = 1


def select_subjects(info: SuiteInfo, plan: CheckPlan) -> list[CheckSubject]:
    """Select what to check, case by case, so that implementations of one case share its reference.

    Raises:
        SuiteError: nothing matches the plan; the message lists what there is.
    """
    kernels = [kernel for kernel in info.kernels if matches(kernel.name, plan.kernels)]
    if not kernels:
        known = ", ".join(kernel.name for kernel in info.kernels)
        raise SuiteError(f"no kernel matches {' '.join(plan.kernels)}; the suite has {known}")
    subjects = [subject for kernel in kernels for subject in _subjects_of(kernel, info.device, plan)]
    if not subjects:
        names = sorted({implementation.name for kernel in kernels for implementation in kernel.implementations})
        raise SuiteError(
            f"nothing to check: no case matches {' '.join(plan.cases or ('*',))} with an implementation that matches "
            f"{' '.join(plan.implementations or ('*',))}; there are the implementations {', '.join(names)}, and cases "
            f"such as {kernels[0].checkable[0].case_id}"
        )
    return list(dict.fromkeys(subjects))


def check_suite(
    source: SuiteSource, plan: CheckPlan, on_progress: OnProgress = lambda _: None, *, fork_server: ForkServer
) -> tuple[CheckReport, ...]:
    """Check what the plan selects: each case as it is, then in other layouts if it is right.

    Returns:
        Reports in the order of the suite; those of a case's layouts after its own.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
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
                    found[subject] = list(_reports(where, subject, plan.timeout_s))
                    done = sum(map(bool, found.values()))
                    on_progress(Progress(done, len(subjects), f"{subject.case_id} {subject.implementation}"))

        interpreting = pool.submit(check_all, interpreter, "interpreter")
        check_all(workers, "device")
        interpreting.result()
    return tuple(report for reports in found.values() for report in reports)


def _subjects_of(kernel: KernelInfo, device: str, plan: CheckPlan) -> Iterator[CheckSubject]:
    by_id = {case.case_id: case for case in kernel.checkable}
    for case in _chosen(kernel, device, plan.cases):
        for implementation in kernel.implementations:
            if case.direction not in implementation.directions or not _is_wanted(implementation, plan):
                continue
            if device == "cpu" and implementation.language == "triton":
                stand_in = by_id[case.stand_in_id]
                yield CheckSubject(stand_in.case_id, implementation.name, "interpreter", stand_in.rank_count)
            else:
                yield CheckSubject(case.case_id, implementation.name, "device", case.rank_count)


def _chosen(kernel: KernelInfo, device: str, patterns: tuple[str, ...] | None) -> Iterable[CheckableCase]:
    if patterns is not None:
        return [case for case in kernel.checkable if matches(case.case_id, patterns)]
    declared = [case for case in kernel.checkable if case.kind is CaseKind.DECLARED]
    edges = [case for case in kernel.checkable if case.kind is CaseKind.EDGE]
    if device != "cpu":
        return [*(case for case in declared if not case.tags or _MOMENTS & set(case.tags)), *edges]
    stand_ins = {case.stand_in_id for case in declared}
    return [*(case for case in kernel.checkable if case.case_id in stand_ins), *edges]


def _is_wanted(implementation: ImplementationInfo, plan: CheckPlan) -> bool:
    if plan.implementations is None:
        return not implementation.is_compiled
    return matches(implementation.name, plan.implementations)


def _reports(workers: WorkerPool, subject: CheckSubject, timeout_s: float) -> Iterator[CheckReport]:
    """The case as it is, and once it is right in the other layouts."""
    report, layouts = _check(workers, subject, None, timeout_s)
    yield report
    for layout in layouts:
        yield _check(workers, subject, layout, timeout_s)[0]


def _check(
    workers: WorkerPool, subject: CheckSubject, layout: Layout | None, timeout_s: float
) -> tuple[CheckReport, tuple[Layout, ...]]:
    reply = workers.request(
        FullCheck(case_id=subject.case_id, implementation=subject.implementation, layout=layout),
        timeout_s=timeout_s,
        rank_count=subject.rank_count,
    )
    if reply.fully_checked is not None:
        return reply.fully_checked.report, reply.fully_checked.layouts
    failure = explained(reply.failure, check_limit(timeout_s))
    assert failure is not None
    failed = CheckReport(
        case_id=subject.case_id,
        implementation=subject.implementation,
        executor=subject.executor,
        layout=layout,
        outcome=failure.outcome,
        message=failure.message,
    )
    return failed, ()
