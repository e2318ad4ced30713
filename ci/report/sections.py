"""The tables of a pull-request comment: times, results, launches and evidence. Pure."""

import math
import statistics
from collections import Counter

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.launches import LaunchMove
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR
from roofwatch.ci.diagnosis.diagnose import BottleneckChange
from roofwatch.ci.report.findings import REASON_WORDS, reason_words, worst_first
from roofwatch.ci.report.markdown import Section, code, count_of
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.static_sections import static_changes, static_evidence, verdict_cell
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric
from roofwatch.collector.record.record import SAME_SOURCES
from roofwatch.db.values import Verdict

_CHANGE = "change (95 % interval)"
_MAX_COUNTERS_OF_A_KERNEL = 6
_MAX_LAUNCHES = 30
_RESULTS = frozenset({Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED})
_SKIP_WORDS: dict[str, str] = {SAME_SOURCES: "no module that it uses changed"}
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


def changes(judgement: PullRequestJudgement) -> list[Section]:
    """Write what to look at, the most severe first; nothing if nothing changed."""
    sections = [
        _result_section(judgement),
        _time_section(judgement),
        _autotuning_section(judgement),
        *static_changes(judgement),
        _secondary_section(judgement),
        _accuracy_section(judgement),
    ]
    return [section for section in sections if section.rows]


def background(judgement: PullRequestJudgement) -> list[Section]:
    """Write what explains or completes the verdict, folded."""
    sections = [
        static_evidence(judgement),
        _undecided_section(judgement),
        _failing_section(judgement),
        _new_section(judgement),
        _evidence_section(judgement),
        _left_out_section(judgement),
        _skipped_section(judgement),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


# --- changes


def _result_section(judgement: PullRequestJudgement) -> Section:
    rows = [
        {
            "verdict": verdict_cell(case.verdict),
            **_subject(case),
            **_outcomes(case),
            "error, base → head": _error_change(case),
            "message": _message(case),
        }
        for case in worst_first(case for case in judgement.cases if case.reason in _RESULTS)
    ]
    return Section("Results", rows)


def _time_section(judgement: PullRequestJudgement) -> Section:
    timed = worst_first(case for case in judgement.cases if case.reason is Reason.BEYOND_THRESHOLD)
    return Section("Time", [{"verdict": verdict_cell(case.verdict), **_times(case)} for case in timed])


def _autotuning_section(judgement: PullRequestJudgement) -> Section:
    changed = [case for case in judgement.cases if case.verdict is not Verdict.UNCHANGED]
    rows = [{**_subject(case), "configuration": flip.quoted(code)} for case in changed for flip in case.flips]
    return Section("Autotuning", rows)


def _secondary_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for one in judgement.secondary_changes:
        change = "nothing before" if math.isinf(one.relative_change) else f"{one.relative_change:+.1%}"
        if one.relative_interval is not None:
            low, high = one.relative_interval
            change += f" ({low:+.1%} to {high:+.1%})"
        row = {"verdict": verdict_cell(one.verdict), "metric": metric(one.metric).title, **_subject(one)}
        rows.append(row | {"base → head": _both(one.metric, one.base, one.head), _CHANGE: change})
    return Section("Memory and host of a launch", rows, text="Device times are judged separately.")


def _accuracy_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for one in judgement.accuracy_changes:
        factor = f"× {math.exp(one.log_ratio):.2g}"
        if math.isinf(one.log_ratio):
            factor = "no longer exact" if one.head else "exact now"
        error = _both("rmse_ratio", one.base, one.head)
        row = {"change": reason_words(one.reason), **_subject(one), "result": code(one.part)}
        rows.append(row | {"error, base → head": error, "factor": factor})
    return Section("Accuracy, within tolerance", rows, text="Both sides are correct. No verdict uses this.")


# --- background


def _undecided_section(judgement: PullRequestJudgement) -> Section:
    undecided = [case for case in judgement.cases if case.verdict is Verdict.INCONCLUSIVE]
    shown = [case for case in undecided if case.reason not in {Reason.NEW_CASE, Reason.REMOVED_CASE}]
    rows = [{"reason": _why_undecided(case), **_times(case)} for case in worst_first(shown)]
    return Section(f"{len(rows)} inconclusive", rows, is_folded=True)


def _failing_section(judgement: PullRequestJudgement) -> Section:
    failing = [case for case in judgement.cases if case.reason is Reason.ALREADY_FAILING]
    rows = [{**_subject(case), **_outcomes(case), "message": _message(case)} for case in failing]
    return Section(f"{len(rows)} failing before and after this change", rows, is_folded=True)


def _new_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for case in judgement.cases:
        if case.reason is Reason.NEW_CASE and case.head is not None:
            time = _value("median_ns", case.head.median_ns, missing="")
            error = _value("rmse_ratio", case.head.rmse_ratio, missing="")
            rows.append({**_subject(case), "time": time, "error": error})
    return Section(f"{len(rows)} new, without a base to compare with", rows, is_folded=True)


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
    text = "From profiles and hardware counters, recorded apart from the times. No verdict uses it."
    return Section("Evidence", rows, is_folded=True, text=text)


def _left_out_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for case in judgement.cases:
        for pair in case.left_out:
            base, head = (code(", ".join(reasons)) if reasons else "–" for reasons in (pair.base, pair.head))
            rows.append({**_subject(case), "pair": str(pair.position + 1), "base": base, "head": head})
    heading = f"{count_of(len(rows), 'block pair')} excluded: the device was throttled or shared"
    return Section(heading, rows, is_folded=True)


def _skipped_section(judgement: PullRequestJudgement) -> Section:
    rows = [
        {"kernel": code(one.kernel), "reason": _SKIP_WORDS.get(one.reason) or code(one.reason)}
        for one in judgement.skipped
    ]
    heading = f"{count_of(len(rows), 'kernel')} not measured because this change cannot affect them"
    return Section(heading, rows, is_folded=True)


def _environment_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for name, title in _ENVIRONMENT.items():
        sides = [getattr(side, name) for side in (judgement.base_environment, judgement.head_environment)]
        if sides != [None, None]:
            base, head = ("–" if value is None else code(str(value)) for value in sides)
            rows.append({"": title, "base": base, "head": head})
    text = " ".join(filter(None, (_intervals(judgement), _floor_used(judgement))))
    return Section("Environment and noise", rows, is_folded=True, text=text)


def _intervals(judgement: PullRequestJudgement) -> str:
    threshold = f"Threshold ±{judgement.thresholds.relative_change:.0%}"
    if not judgement.is_paired:
        return f"{threshold}. The records are not a pair, so the noise between them is unknown."
    compared = [case.comparison for case in judgement.cases if case.comparison is not None]
    ends = [one.log_interval for one in compared if math.isfinite(one.log_interval[1])]
    if not ends:
        return f"{threshold}; no interval was measured."
    halves = [math.expm1((high - low) / 2) for low, high in ends]
    blocks = sorted({one.block_count for one in compared})
    text = (
        f"{threshold}: a verdict needs the whole 95 % interval beyond it, at a false discovery rate of "
        f"{judgement.thresholds.false_discovery_rate:.0%}. {count_of(len(halves), 'comparison')} of "
        f"{' to '.join(map(str, dict.fromkeys((blocks[0], blocks[-1]))))} blocks per side: median half-width of the "
        f"interval ±{statistics.median(halves):.1%}, maximum ±{max(halves):.1%}."
    )
    smallest = judgement.detectable_change
    return text if smallest is None else f"{text} A slowdown of {smallest:.1%} is found with 80 % probability."


def _floor_used(judgement: PullRequestJudgement) -> str:
    floor = judgement.noise_floor
    if floor is None:
        return ""
    origin = f"Calibration of {floor.measured_at:%Y-%m-%d} (commit {code(floor.commit_sha[:8])}): "
    if floor.most is None:
        return f"{origin}no case needs a larger threshold."
    count = count_of(floor.case_count, "case")
    return f"{origin}{count} with {FLOOR_FACTOR:g} times the noise floor as threshold, up to ±{floor.most:.1%}."


# --- cells


_OfACase = CaseJudgement | Change | LaunchMove | BottleneckChange


def _subject(item: _OfACase) -> dict[str, str]:
    return {"case": code(item.case_id), "implementation": code(item.implementation)}


def _value(name: str, value: float | None, missing: str = "–") -> str:
    return missing if value is None else metric(name).format(value)


def _both(name: str, base: float | None, head: float | None) -> str:
    return f"{_value(name, base)} → {_value(name, head)}"


def _times(case: CaseJudgement) -> dict[str, str]:
    comparison, times, change, roof = case.comparison, "", "", ""
    if comparison is not None:
        times = _both("median_ns", comparison.base_ns, comparison.head_ns)
        change, (low, high) = f"{comparison.relative_change:+.1%}", comparison.relative_interval
        if math.isfinite(low) and math.isfinite(high):
            change = f"**{change}** ({low:+.1%} to {high:+.1%})"
        if case.base and case.head and None not in (case.base.utilisation, case.head.utilisation):
            bound = f" ({case.head.bound})" if case.head.bound else ""
            roof = _both("utilisation", case.base.utilisation, case.head.utilisation) + bound
    return {**_subject(case), "base → head": times, _CHANGE: change, "of the roof": roof}


def _outcomes(case: CaseJudgement) -> dict[str, str]:
    sides = {"base": case.base, "head": case.head}
    return {
        name: "–" if side is None else str(side.failure or side.measured or side.accuracy)
        for name, side in sides.items()
    }


def _message(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    side = case.base if case.reason is Reason.FIXED else case.head
    return code(side.message) if side is not None and side.message else ""


def _error_change(case: CaseJudgement) -> str:
    base, head = (None if side is None else side.rmse_ratio for side in (case.base, case.head))
    if base is None and head is None:
        return ""
    tensor = case.head.worst_tensor if case.head is not None else None
    return _both("rmse_ratio", base, head) + (f" ({code(tensor)})" if tensor else "")


def _why_undecided(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    if case.reason is Reason.NOISE and case.comparison is not None and case.comparison.more_blocks is not None:
        return f"too noisy: {case.comparison.more_blocks} more blocks may help"
    return REASON_WORDS[case.reason]
