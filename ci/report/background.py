"""The folded tables of a pull-request comment: what explains or completes the verdict. Pure."""

import math
import statistics
from collections import Counter, defaultdict

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.launches import LaunchMove
from roofwatch.ci.diagnosis.diagnose import BottleneckChange
from roofwatch.ci.report.findings import reason_words, worst_first
from roofwatch.ci.report.markdown import Section, code, count_of, listed
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import (
    both,
    groups_of_times,
    message_cell,
    outcome_cell,
    roofline_cell,
    weight_of_code,
)
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.db.values import Verdict

_OfACase = CaseJudgement | Change | LaunchMove | BottleneckChange
_MAX_COUNTERS_OF_A_KERNEL = 6
_MAX_LAUNCHES = 30
_COUNTER_FORMATS = {"ns": format_ns, "bytes": format_bytes, "share": "{:.1%}".format}
_ENVIRONMENT = {
    "runner_class": "runner class",
    "driver_version": "driver",
    "os": "operating system",
    "python_version": "Python",
    "torch_version": "torch",
    "triton_version": "triton",
    "cuda_version": "CUDA",
}


def background(judgement: PullRequestJudgement) -> list[Section]:
    """Write the folded tables."""
    sections = [
        _case_section(judgement),
        _machine_code_section(judgement),
        _evidence_section(judgement),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


def _case_section(judgement: PullRequestJudgement) -> Section:
    """List the cases that no open table names."""
    slower = [case for group in groups_of_times(judgement) if len(group) > 1 for case in group]
    others = [
        case
        for case in worst_first(judgement.cases)
        if case.verdict is Verdict.INCONCLUSIVE or case.reason is Reason.ALREADY_FAILING
    ]
    rows = []
    for case in (*slower, *others):
        base, head = (None if side is None else side.median_ns for side in (case.base, case.head))
        change = ""
        if case.comparison is not None:
            change, (low, high) = f"{case.comparison.relative_change:+.1%}", case.comparison.relative_interval
            change += f" ({low:+.1%} to {high:+.1%})" if math.isfinite(low) and math.isfinite(high) else ""
        row = {"change (95% interval)": change, **_subject(case), "base → head": both("median_ns", base, head)}
        rows.append(row | {"% of roofline": roofline_cell(case), "reason": _why(case)})
    return Section(f"{count_of(len(rows), 'case')} in full", rows, is_folded=True)


def _machine_code_section(judgement: PullRequestJudgement) -> Section:
    """Write why changes matter, once for all targets with the same reason."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in sorted((item for item in judgement.static if item.is_listed), key=weight_of_code):
        if item.detail is not None and item.has_compiled:
            names = " ".join(map(code, (item.function, item.case_id, item.implementation)))
            targets[names, item.detail.quoted(code)].append(code(item.target))
    rows = [{"kernel": names, "change": change, "targets": listed(found)} for (names, change), found in targets.items()]
    return Section("Why the machine code matters", rows, is_folded=True)


def _evidence_section(judgement: PullRequestJudgement) -> Section:
    """List bottlenecks of slower cases, changed launches and changed hardware counters."""
    rows = []

    def add(kind: str, item: _OfACase, text: str) -> None:
        rows.append({"evidence": kind, **_subject(item), "base → head": text})

    for limit in judgement.bottleneck_changes:
        sides = str(limit.head) if limit.base is limit.head else f"{limit.base} → {limit.head}"
        news = "; ".join(one.quoted(code) for one in (limit.headline, *limit.news))
        add("bottleneck", limit, f"{sides}: {news}")
    for move in judgement.launch_moves[:_MAX_LAUNCHES]:
        add("launches", move, f"{move.remark.quoted(code)} ({move.share:.1%} of the call)")
    shown: Counter[tuple[str, str, str, int]] = Counter()
    for one in judgement.counter_changes:
        kernel = (one.case_id, one.implementation, one.part, one.launch_index)
        shown[kernel] += 1
        if shown[kernel] <= _MAX_COUNTERS_OF_A_KERNEL:
            write = _COUNTER_FORMATS.get(one.metric.rpartition("_")[2], "{:.6g}".format)
            change = "new" if math.isinf(one.relative_change) else f"{one.relative_change:+.1%}"
            add(code(one.metric), one, f"{code(one.part)}: {write(one.base)} → {write(one.head)} ({change})")
    return Section("Likely bottleneck", rows, is_folded=True, text="Heuristic; does not affect the result.")


def _environment_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for name, title in _ENVIRONMENT.items():
        sides = [getattr(side, name) for side in (judgement.base_environment, judgement.head_environment)]
        if sides != [None, None]:
            base, head = ("–" if value is None else code(str(value)) for value in sides)
            rows.append({"": title, "base": base, "head": head})
    floor = "" if judgement.noise_floor is None else f"{judgement.noise_floor.remark.quoted(code)}."
    text = " ".join(filter(None, (_intervals(judgement), _left_out(judgement), floor)))
    return Section("Environment and noise", rows, is_folded=True, text=text)


def _intervals(judgement: PullRequestJudgement) -> str:
    limits = judgement.thresholds
    compared = [case.comparison for case in judgement.cases if case.comparison is not None]
    halves = [(high - low) / 2 for low, high in (one.log_interval for one in compared) if math.isfinite(high)]
    text = f"Flagged only if the whole 95% confidence interval is beyond ±{limits.relative_change:.0%}"
    text += f" (false discovery rate {limits.false_discovery_rate:.0%})."
    if not judgement.is_paired:
        text += " The records are not a pair, so the noise between them is unknown."
    elif halves:
        half = math.expm1(statistics.median(halves))
        text += f" {count_of(len(halves), 'comparison')}: median half-width of the interval ±{half:.1%}."
    if judgement.detectable_change is not None:
        text += f" Detects slowdowns ≥ {judgement.detectable_change:.1%} with 80% power."
    return text


def _left_out(judgement: PullRequestJudgement) -> str:
    pairs = [pair for case in judgement.cases for pair in case.left_out]
    reasons = sorted({reason for pair in pairs for reason in (*pair.base, *pair.head)})
    count = count_of(len(pairs), "block pair")
    return f"{count} excluded, device throttled or shared: {listed(map(code, reasons))}." if pairs else ""


# --- cells


def _subject(item: _OfACase) -> dict[str, str]:
    return {"benchmark": f"{code(item.case_id)} {code(item.implementation)}"}


def _why(case: CaseJudgement) -> str:
    if case.reason is Reason.ALREADY_FAILING:
        return f"failing before and after: {outcome_cell(case)} {message_cell(case)}"
    if case.detail is not None:
        return case.detail.quoted(code)
    one = case.comparison
    if case.reason is Reason.NOISE and one is not None and one.more_blocks is not None:
        return f"too noisy for ±{one.threshold:.0%}: needs about {one.more_blocks} more blocks"
    return reason_words(case.reason)
