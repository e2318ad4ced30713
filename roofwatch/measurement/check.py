"""`roofwatch check`: select cases and check them in worker processes, sum up, and explain what
failed.
"""

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from roofwatch.arguments import suite_source
from roofwatch.collector.build.provenance import require_own_code
from roofwatch.collector.runs.run_plan import ALL, OnProgress, Progress, RunPlan, matches
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.measurement.proofs import proofs_of
from roofwatch.model.check_report import CheckReport, TensorReport
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


_MAX_NAMED = 3


def check_target(text: str) -> tuple[SuiteSource, tuple[str, ...]]:
    """Return the suite and the patterns of kernels for a path, or for a pattern of names of bundled
    kernels.

    Raises:
        SuiteError: there is no such file or folder.
    """
    if os.sep in text or text.endswith(".py") or Path(text).exists():
        return suite_source(Path(text)), ("*",)
    return suite_source(None), (text,)


def exit_status(reports: Sequence[CheckReport]) -> int:
    """0 if every check passed, 1 if one failed, 2 if nothing could be checked."""
    if any(report.outcome.is_failure for report in reports):
        return 1
    return 0 if any(report.outcome is Outcome.OK for report in reports) else 2


def check_summary(reports: Sequence[CheckReport]) -> str:
    """Number of cases, layouts and other values per outcome."""
    groups: dict[str, Counter[str]] = {}
    for report in reports:
        outcome = str(report.outcome)
        if report.layout is not None:
            name = "in other layouts"
            outcome = "refused" if report.outcome is Outcome.UNSUPPORTED else outcome
        elif report.regime is not None:
            name = "with other values"
            outcome = "not tried" if report.outcome is Outcome.UNSUPPORTED else outcome
        else:
            name = "checked"
        groups.setdefault(name, Counter())[outcome] += 1
    texts = []
    for name, counts in groups.items():
        texts.append(f"{name}: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
    return "; ".join(texts)


def repeat_command(target: str, report: CheckReport, device: str | None) -> str:
    """The command that checks one case of one implementation again."""
    words = [
        "roofwatch",
        "check",
        target,
        "--case",
        report.case_id,
        "--implementation",
        report.implementation,
    ]
    return shlex.join([*words, *(["--device", device] if device else [])])


def to_json(target: str, reports: Sequence[CheckReport], device: str | None) -> dict[str, Any]:
    """The document that `--json` prints; docs/explanation/accuracy.md describes it."""
    return {
        "target": target,
        "exit_status": exit_status(reports),
        "proofs": [asdict(proof) for proof in proofs_of(reports)],
        "reports": [
            {
                **report.model_dump(mode="json"),
                "failed": report.outcome.is_failure,
                "repeat": repeat_command(target, report, device),
            }
            for report in reports
        ],
    }


def explain_failures(
    target: str, reports: Sequence[CheckReport], device: str | None, *, with_traceback: bool = False
) -> Iterator[str]:
    """Describe the first failure of each cause, and name the others in one line."""
    kinds: dict[tuple[object, ...], list[CheckReport]] = {}
    for report in reports:
        if report.outcome.is_failure:
            kinds.setdefault(_cause(report), []).append(report)
    for first, *others in kinds.values():
        lines = ["", *explain_failure(first)]
        if with_traceback and first.traceback:
            lines.append(first.traceback.rstrip())
        if others:
            names = [_name(other) for other in others[:_MAX_NAMED]]
            ellipsis = ", …" if len(others) > _MAX_NAMED else ""
            lines.append(f"  the same in {len(others)} more: {', '.join(names)}{ellipsis}")
        repeat = repeat_command(target, first, device)
        yield "\n".join([*lines, f"  repeat, in all layouts: {repeat}"])


def _cause(report: CheckReport) -> tuple[object, ...]:
    """What failures with one cause have in common."""
    kernel = report.case_id.partition("/")[0]
    if report.faults:
        fault = report.faults[0]
        return (fault.kernel, fault.file, fault.line, fault.access, fault.operand, fault.is_race)
    variation = (report.layout is None, report.regime)
    if report.tensors:
        return (kernel, report.implementation, report.outcome, variation)
    # a message about one cause differs in sizes
    message = re.sub(r"\d+", "n", report.message or "")
    return (kernel, report.implementation, report.outcome, message)


def _name(report: CheckReport) -> str:
    layout = report.layout
    where = ""
    if report.regime is not None:
        where = f" with {report.regime} values"
    elif layout is not None:
        arrangement = layout.arrangement.replace("_", "-")
        where = f" with {layout.tensor} {arrangement} in memory"
    return f"{report.case_id} {report.implementation}{where}"


def explain_failure(report: CheckReport) -> Iterator[str]:
    yield f"{_name(report)}: {report.outcome}"
    for fault in report.faults:
        yield f"  {fault.message}"
    wrong = [tensor for tensor in report.tensors if not tensor.passed]
    if report.message and not wrong and not report.faults:
        yield f"  {report.message}"
    for tensor in wrong:
        yield from _explain_tensor(tensor)
    if wrong and report.baseline_missing:
        yield f"  only the caps apply: {report.baseline_missing}"


def _explain_tensor(tensor: TensorReport) -> Iterator[str]:
    count = math.prod(tensor.shape)
    yield (
        f"  {tensor.tensor} ({tensor.dtype} {list(tensor.shape)}): {tensor.wrong_count} of "
        f"{count} elements are wrong"
    )
    if tensor.where:
        yield f"    where     {tensor.where}"
    if tensor.values:
        yield f"    values    {tensor.values}"
    if tensor.nonfinite_count:
        yield f"    NaN, inf  {tensor.nonfinite_count} elements, on one side only"
    if tensor.nonfinite_count < tensor.wrong_count:
        for name, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
            error, limit = getattr(tensor.errors, quantity), getattr(tensor.limits, quantity)
            eager = (
                ""
                if tensor.baseline is None
                else f", torch {getattr(tensor.baseline, quantity):.1e}"
            )
            yield f"    {name}   {error:.1e}, limit {limit:.1e}{eager}"
    for element in tensor.worst:
        yield f"    {list(element.index)}  expected {element.expected:.6g}, got {element.got:.6g}"
