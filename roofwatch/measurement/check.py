"""The target of `roofwatch check`, its summary, and the explanation of a failure."""

import math
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roofwatch.arguments import suite_source
from roofwatch.collector.accuracy.check_report import CheckReport, TensorReport
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.suite import SuiteSource

_MAX_NAMED = 10


def check_target(text: str) -> tuple[SuiteSource, tuple[str, ...]]:
    """Return the suite and the patterns of kernels for the argument of the command.

    Args:
        text: An existing path, or a pattern of names of bundled kernels.

    Raises:
        SuiteError: there is no such file or folder.
    """
    if os.sep in text or text.endswith(".py") or Path(text).exists():
        return suite_source(Path(text)), ("*",)
    return suite_source(None), (text,)


def exit_status(reports: Sequence[CheckReport]) -> int:
    """0 if every check passed, 1 if one failed, 2 if nothing could be checked."""
    if any(report.has_failed for report in reports):
        return 1
    return 0 if any(report.outcome is Outcome.OK for report in reports) else 2


def check_summary(reports: Sequence[CheckReport]) -> str:
    """Number of cases and layouts per outcome."""
    cases = Counter(str(report.outcome) for report in reports if report.layout is None)
    layouts = Counter(
        "refused" if report.outcome is Outcome.UNSUPPORTED else str(report.outcome)
        for report in reports
        if report.layout is not None
    )
    return "; ".join(
        f"{what}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        for what, counts in (("checked", cases), ("in other layouts", layouts))
        if counts
    )


def repeat_command(target: str, report: CheckReport, device: str | None) -> str:
    """The command that checks one case of one implementation again."""
    words = ["roofwatch", "check", target, "--case", report.case_id, "--implementation", report.implementation]
    return shlex.join([*words, *(["--device", device] if device else [])])


def to_json(target: str, reports: Sequence[CheckReport], device: str | None) -> dict[str, Any]:
    """The document that `--json` prints; docs/explanation/accuracy.md describes it."""
    return {
        "target": target,
        "exit_status": exit_status(reports),
        "reports": [
            {
                **report.model_dump(mode="json"),
                "failed": report.has_failed,
                "repeat": repeat_command(target, report, device),
            }
            for report in reports
        ],
    }


def explain_failures(target: str, reports: Sequence[CheckReport], device: str | None) -> Iterator[str]:
    """Describe the first failure of each kind of a kernel's implementation, and name the others."""
    kinds: dict[tuple[object, ...], list[CheckReport]] = {}
    for report in filter(lambda report: report.has_failed, reports):
        message = None if report.tensors else report.message
        kind = (report.case_id.partition("/")[0], report.implementation, report.outcome, report.layout is None, message)
        kinds.setdefault(kind, []).append(report)
    for first, *others in kinds.values():
        lines = ["", *explain_failure(first)]
        if others:
            names = "".join(f"\n    {_name(other)}" for other in others[:_MAX_NAMED])
            lines.append(f"  {len(others)} more of this kind:{names}" + ("\n    …" if len(others) > _MAX_NAMED else ""))
        yield "\n".join([*lines, f"  repeat, in all layouts: {repeat_command(target, first, device)}"])


def _name(report: CheckReport) -> str:
    layout = report.layout
    where = "" if layout is None else f" with {layout.tensor} {layout.arrangement.replace('_', '-')} in memory"
    return f"{report.case_id} {report.implementation}{where}"


def explain_failure(report: CheckReport) -> Iterator[str]:
    """Describe a failure, line by line."""
    yield f"{_name(report)}: {report.outcome}"
    wrong = [tensor for tensor in report.tensors if not tensor.passed]
    if report.message and not wrong:
        yield f"  {report.message}"
    for tensor in wrong:
        yield from _explain_tensor(tensor)
    if wrong and report.baseline_missing:
        yield f"  only the caps apply: {report.baseline_missing}"


def _explain_tensor(tensor: TensorReport) -> Iterator[str]:
    count = math.prod(tensor.shape)
    yield f"  {tensor.tensor} ({tensor.dtype} {list(tensor.shape)}): {tensor.wrong_count} of {count} elements are wrong"
    if tensor.where:
        yield f"    where     {tensor.where}"
    if tensor.values:
        yield f"    values    {tensor.values}"
    if tensor.nonfinite_count:
        yield f"    NaN, inf  {tensor.nonfinite_count} elements, on one side only"
    if tensor.nonfinite_count < tensor.wrong_count:
        for name, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
            error, limit = getattr(tensor.errors, quantity), getattr(tensor.limits, quantity)
            eager = "" if tensor.baseline is None else f", torch {getattr(tensor.baseline, quantity):.1e}"
            yield f"    {name}   {error:.1e}, limit {limit:.1e}{eager}"
    for element in tensor.worst:
        yield f"    {list(element.index)}  expected {element.expected:.6g}, got {element.got:.6g}"
