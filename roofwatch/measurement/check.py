"""`roofwatch check`: select cases and check them in worker processes."""

import os
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from roofwatch.collector.build.provenance import require_own_code
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.run_plan import ALL, OnProgress, RunPlan, Steps, matches
from roofwatch.collector.runs.static_compiler import compilers, prove_subjects
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.configuration.arguments import suite_source
from roofwatch.model.case_key import kernel_of
from roofwatch.model.check_report import CheckedSuite, CheckReport
from roofwatch.model.errors import SuiteError
from roofwatch.model.proofs import CaseProof, KernelPackage
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import (
    CheckableCase,
    CheckAccuracy,
    KernelInfo,
    Subject,
    SuiteInfo,
    WorkerSettings,
)

_FAST_TAGS = {"small", "quick"}
"""Tags of cases that a GPU checks within moments."""
_LARGE_TAG = "large"
"""Tag of cases that are only analysed, as nothing may have the memory to run them."""


class Depth(StrEnum):
    QUICK = "quick"
    """Other values and torch.compile for the first case of each dtype and direction, proofs for the
    largest.
    """
    FULL = "full"


class _Extent(StrEnum):
    """How much of a case is checked."""

    DECLARED = "declared"
    LAYOUTS = "layouts"
    """As declared, and in other layouts."""
    VALUES = "values"
    """Also with other values."""


def select_jobs(
    info: SuiteInfo,
    plan: RunPlan,
    depth: Depth = Depth.QUICK,
    *,
    is_analysed: bool = False,
) -> dict[CheckAccuracy, Mode]:
    """Select what to check and how, grouped by case so that implementations share its reference.

    Without patterns of cases, edge cases are checked with the fast cases on a GPU, and with the
    interpreter's stand-ins on a CPU. At quick depth, implementations that torch.compile compiles
    are checked at the first case of each dtype and direction. If `is_analysed`, cases that are
    analysed may be all that matches.

    Raises:
        SuiteError: nothing matches the plan.
    """
    kernels = [kernel for kernel in info.kernels if matches(kernel.name, plan.kernels)]
    if not kernels:
        kernel_names = ", ".join(kernel.name for kernel in info.kernels)
        raise SuiteError(
            f"no kernel matches {' '.join(plan.kernels)}; the suite has {kernel_names}"
        )
    jobs: dict[CheckAccuracy, Mode] = {}
    for kernel in kernels:
        jobs.update(_jobs_of(kernel, info.device, plan))
    # torch.compile takes seconds for each case.
    if depth is Depth.QUICK:
        slow_jobs = _compiled_jobs(info, jobs).difference(_first_of_each_kind(jobs))
        jobs = {job: mode for job, mode in jobs.items() if job not in slow_jobs}
    if not jobs and not is_analysed:
        names = sorted(
            {implementation.name for kernel in kernels for implementation in kernel.implementations}
        )
        raise SuiteError(
            f"nothing to check: no case matches {' '.join(plan.cases or ALL)} with implementation "
            f"{' '.join(plan.implementations or ALL)}; implementations: {', '.join(names)}; "
            f"cases: {kernels[0].checkable[0].case_id}, …"
        )
    return jobs


def select_proofs(info: SuiteInfo, plan: RunPlan, depth: Depth = Depth.QUICK) -> list[Subject]:
    """Select the declared cases to analyse without a GPU, at the sizes of a GPU.

    At quick depth these are the largest case of each dtype and direction, which overflows first,
    and those tagged `large`.
    """
    usual = replace(plan, usual_tag="quick")
    try:
        cases = list(select(info, usual))
    except SuiteError:  # only edge cases are checked
        return []
    # Without patterns, large cases are analysed although nothing can run them.
    if plan.cases is None:
        with suppress(SuiteError):  # no case is tagged
            cases += select(info, replace(usual, tags=(_LARGE_TAG,)))
    # PyTorch's own kernels are not ours to prove.
    provable = [run for run in cases if run.implementation.language != "torch"]
    largest_bytes: dict[tuple[str, ...], float] = {}
    for run in provable:
        kind = _kind_of(run)
        largest_bytes[kind] = max(largest_bytes.get(kind, 0.0), run.case.memory_bytes)
    subjects: dict[Subject, None] = {}
    for run in provable:
        is_largest = run.case.memory_bytes == largest_bytes[_kind_of(run)]
        if depth is Depth.FULL or is_largest or _LARGE_TAG in run.case.tags:
            subjects[run.subject] = None
    return list(subjects)


def _kind_of(run: CaseRun) -> tuple[str, ...]:
    kernel, _shape, dtype, direction = run.case.case_id.split("/")
    return kernel, dtype, direction, run.implementation.name


def check_suite(
    source: SuiteSource,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    fork_server: ForkServer,
    depth: Depth = Depth.QUICK,
) -> CheckedSuite:
    """Check each selected case as declared and, if it passes, in other layouts and with other
    values; analyse launches and operators without a GPU.

    Returns:
        Reports in the order of the suite; a case's layouts and values follow it.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing matches the plan.
        ForeignCodeError: what was checked is not the code of the suite's tree.
    """
    on_device = WorkerSettings(source=source, device=plan.device)
    interpreted = WorkerSettings(source=source, mode=Mode.INTERPRETER, device="cpu")
    with (
        WorkerPool(fork_server, on_device) as workers,
        WorkerPool(fork_server, on_device) as compiling_workers,
        WorkerPool(fork_server, interpreted) as interpreter,
        compilers(fork_server, source) as provers,
        ThreadPoolExecutor() as pool,
    ):
        steps = Steps(on_progress)
        steps.say("loading the suite")
        info = workers.start()
        subjects = select_proofs(info, plan, depth)
        jobs = select_jobs(info, plan, depth, is_analysed=bool(subjects))
        extents = _extents(info, jobs, depth)
        compiled = _compiled_jobs(info, jobs)
        reports_of: dict[CheckAccuracy, list[CheckReport]] = {job: [] for job in jobs}
        proofs: dict[Subject, CaseProof] = {}
        steps.total = len(jobs) + len(subjects)

        def check_all(where: WorkerPool, selected: Iterable[CheckAccuracy]) -> None:
            for job in selected:
                steps.say(f"checking {job.subject}")
                reports = _reports(
                    workers=where,
                    job=job,
                    mode=jobs[job],
                    timeout_s=plan.timeout_s,
                    extent=extents[job],
                )
                reports_of[job] = list(reports)
                steps.step()

        def prove() -> None:
            for subject, proof in prove_subjects(provers, subjects, plan, on_begin=analysing):
                proofs[subject] = proof
                steps.step()

        def analysing(subject: Subject) -> None:
            steps.say(f"analysing {subject}")

        on_interpreter = [job for job, mode in jobs.items() if mode is Mode.INTERPRETER]
        as_written = [job for job in jobs if job not in {*on_interpreter, *compiled}]
        beside = [pool.submit(check_all, interpreter, on_interpreter)]
        if subjects:
            beside.append(pool.submit(prove))
        check_all(workers, as_written)
        if compiled and info.device == "cpu":
            fork_server.load("torch_compile")
        check_all(compiling_workers, [job for job in jobs if job in compiled])
        for work in beside:
            work.result()
        pools = (workers, compiling_workers, interpreter, provers)
        # A report on other code than that of the tree would be worse than none.
        require_own_code(source, set().union(*(used.loaded for used in pools)))
    reports: list[CheckReport] = []
    for case_reports in reports_of.values():
        reports += case_reports
    in_order = [proofs[subject] for subject in subjects]
    return CheckedSuite(
        reports=tuple(reports),
        overflow_proofs=tuple(proof.overflow for proof in in_order),
        operator_costs=tuple(proof.cost for proof in in_order if proof.cost is not None),
        packages=_packages(source, in_order),
    )


def _packages(source: SuiteSource, proofs: Iterable[CaseProof]) -> tuple[KernelPackage, ...]:
    """Packages outside of the suite's tree, each once."""
    packages: dict[KernelPackage, None] = {}
    for proof in proofs:
        for package in proof.packages:
            is_own = source.root is not None and Path(package.folder).is_relative_to(source.root)
            if source.path is not None and not is_own:
                packages[package] = None
    return tuple(packages)


def _extents(
    info: SuiteInfo,
    jobs: Collection[CheckAccuracy],
    depth: Depth,
) -> dict[CheckAccuracy, _Extent]:
    if depth is Depth.FULL:
        return dict.fromkeys(jobs, _Extent.VALUES)
    extents = dict.fromkeys(jobs, _Extent.LAYOUTS)
    extents |= dict.fromkeys(_first_of_each_kind(jobs), _Extent.VALUES)
    # each other layout would be compiled for seconds
    return extents | dict.fromkeys(_compiled_jobs(info, jobs), _Extent.DECLARED)


def _compiled_jobs(info: SuiteInfo, jobs: Iterable[CheckAccuracy]) -> set[CheckAccuracy]:
    """Jobs of implementations that torch.compile compiles."""
    compiled: set[tuple[str, str]] = set()
    for kernel in info.kernels:
        for implementation in kernel.implementations:
            if implementation.is_compiled:
                compiled.add((kernel.name, implementation.name))
    of_compiled: set[CheckAccuracy] = set()
    for job in jobs:
        kernel_name = kernel_of(job.case_id)
        if (kernel_name, job.implementation) in compiled:
            of_compiled.add(job)
    return of_compiled


def _first_of_each_kind(jobs: Iterable[CheckAccuracy]) -> Iterable[CheckAccuracy]:
    """The first case of each kernel, dtype, direction and implementation."""
    first: dict[tuple[str, ...], CheckAccuracy] = {}
    for job in jobs:
        kernel, _shape, dtype, direction = job.case_id.split("/")
        first.setdefault((kernel, dtype, direction, job.implementation), job)
    return first.values()


def _jobs_of(
    kernel: KernelInfo,
    device: str,
    plan: RunPlan,
) -> Iterator[tuple[CheckAccuracy, Mode]]:
    by_id = {case.case_id: case for case in kernel.checkable}
    for case in _select_cases(kernel, device, plan.cases):
        for implementation in kernel.implementations:
            is_selected = matches(implementation.name, plan.implementations or ALL)
            if case.direction not in implementation.directions or not is_selected:
                continue
            # Without a GPU, Triton runs in its interpreter, at the size of a stand-in.
            is_interpreted = device == "cpu" and implementation.language == "triton"
            checked = case
            mode = Mode.DEVICE
            if is_interpreted:
                checked = by_id[case.stand_in_id]
                mode = Mode.INTERPRETER
            job = CheckAccuracy(
                case_id=checked.case_id,
                implementation=implementation.name,
                rank_count=checked.rank_count,
                is_exact=True,
            )
            yield job, mode


def _select_cases(
    kernel: KernelInfo,
    device: str,
    patterns: tuple[str, ...] | None,
) -> Iterable[CheckableCase]:
    # A large case without a smaller stand-in is only analysed.
    can_run: list[CheckableCase] = []
    for case in kernel.checkable:
        has_stand_in = device == "cpu" and case.stand_in_id != case.case_id
        if _LARGE_TAG not in case.tags or has_stand_in:
            can_run.append(case)
    if patterns is not None:
        return [case for case in can_run if matches(case.case_id, patterns)]
    declared = [case for case in can_run if case.kind == "declared"]
    edges = [case for case in kernel.checkable if case.kind == "edge"]
    if device == "cpu":
        stand_ins = {case.stand_in_id for case in declared}
        selected = [case for case in kernel.checkable if case.case_id in stand_ins]
    else:
        # Cases without tags are those of a suite that has few.
        selected = [case for case in declared if not case.tags or _FAST_TAGS & set(case.tags)]
    return [*selected, *edges]


def _reports(
    workers: WorkerPool,
    job: CheckAccuracy,
    mode: Mode,
    timeout_s: float,
    extent: _Extent,
) -> Iterator[CheckReport]:
    reply = workers.request(job, timeout_s=timeout_s)
    if reply.checked is not None:
        yield reply.checked.report
        variations: list[CheckAccuracy] = []
        # what the case declares comes first; variations only if it is right
        if extent is not _Extent.DECLARED:
            layouts = reply.checked.layouts
            variations += [job.model_copy(update={"layout": layout}) for layout in layouts]
        if extent is _Extent.VALUES:
            regimes = reply.checked.regimes
            variations += [job.model_copy(update={"regime": regime}) for regime in regimes]
        for variation in variations:
            yield from _reports(
                workers=workers,
                job=variation,
                mode=mode,
                timeout_s=timeout_s,
                extent=extent,
            )
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
