"""What `roofwatch check` is asked, and what it says of a failure."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.arguments import suite_source
from roofwatch.collector.accuracy.check_report import CheckReport, TensorReport
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.suite import SuiteSource


@dataclass(frozen=True)
class CheckTarget:
    """Kernels of roofwatch's own suite, or a benchmark file or folder."""

    as_typed: str
    source: SuiteSource
    kernels: tuple[str, ...] = ("*",)


def check_target(text: str) -> CheckTarget:
    """Read the argument of the command: a path if it looks like one or exists, else a pattern of kernel names.

    Raises:
        SuiteError: there is no such file or folder.
    """
    is_path = os.sep in text or text.endswith(".py") or Path(text).exists()
    if is_path:
        return CheckTarget(text, suite_source(Path(text)))
    return CheckTarget(text, suite_source(None), (text,))


def exit_status(reports: Sequence[CheckReport]) -> int:
    """0 if all that could be checked is right, 1 if something failed, 2 if nothing could be checked."""
    if any(report.has_failed for report in reports):
        return 1
    return 0 if any(report.outcome is Outcome.OK for report in reports) else 2


def summary(reports: Sequence[CheckReport]) -> str:
    """How many of each outcome, of cases and of layouts."""
    of_cases = Counter(str(report.outcome) for report in reports if report.layout is None)
    of_layouts = Counter(
        "refused" if report.outcome is Outcome.UNSUPPORTED else str(report.outcome)
        for report in reports
        if report.layout is not None
    )
    return "; ".join(
        f"{what}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        for what, counts in (("checked", of_cases), ("in other layouts", of_layouts))
        if counts
    )


def repeat_command(target: CheckTarget, report: CheckReport, device: str | None) -> str:
    """The command that checks one case of one implementation again."""
    words = ["roofwatch", "check", target.as_typed, "--case", report.case_id, "--implementation", report.implementation]
    return shlex.join([*words, *(["--device", device] if device else [])])


def to_json(target: CheckTarget, reports: Sequence[CheckReport], device: str | None) -> dict[str, Any]:
    """The document that `--json` prints; docs/explanation/accuracy.md describes it."""
    return {
        "target": target.as_typed,
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


def explanation(report: CheckReport) -> Iterator[str]:
    """What is known of a failure, line by line."""
    where = f" with {_in_words(report)}" if report.layout else ""
    yield f"{report.case_id} {report.implementation}{where}: {report.outcome}"
    wrong = [tensor for tensor in report.tensors if not tensor.passed]
    if report.message and not wrong:
        yield f"  {report.message}"
    for tensor in wrong:
        yield from _explain_tensor(tensor)
    if wrong and report.baseline_missing:
        yield f"  the caps decide alone: {report.baseline_missing}"


def _in_words(report: CheckReport) -> str:
    assert report.layout is not None
    return f"{report.layout.tensor} {report.layout.arrangement.replace('_', '-')} in memory"


def _explain_tensor(tensor: TensorReport) -> Iterator[str]:
    count = 1
    for length in tensor.shape:
        count *= length
    yield f"  {tensor.tensor} ({tensor.dtype} {list(tensor.shape)}): {tensor.wrong_count} of {count} elements are wrong"
    if tensor.where:
        yield f"    where     {tensor.where}"
    if tensor.values:
        yield f"    what      {tensor.values}"
    if tensor.unlike_count:
        yield f"    unlike    {tensor.unlike_count} are NaN or infinite in the result or in the reference alone"
    if tensor.unlike_count < tensor.wrong_count:
        for name, error, limit, baseline in (
            ("overall", tensor.rmse_ratio, tensor.rmse_limit, tensor.baseline_rmse_ratio),
            ("largest", tensor.elementwise, tensor.elementwise_limit, tensor.baseline_elementwise),
        ):
            eager = "" if baseline is None else f", eager {baseline:.1e}"
            yield f"    {name}   {error:.1e}, limit {limit:.1e}{eager}"
    for element in tensor.worst:
        yield f"    {list(element.index)}  expected {element.expected:.6g}, got {element.got:.6g}"
