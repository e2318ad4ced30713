"""The folded tables of a pull-request comment, which explain the open ones. Pure."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.messages import Row, Section, code, count_of, listed
from roofwatch.ci.report.cells import (
    both_sides,
    medians_note,
    names_of,
    roofline_text,
    why_undecided,
)
from roofwatch.ci.report.change_words import worst_first
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import groups_of_times, listed_code
from roofwatch.ci.static.comparison import (
    CodeEvidence,
)
from roofwatch.model.metrics import format_counter
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

_MAX_COUNTERS_OF_A_KERNEL = 6
# a folded table is still part of a comment's 65,536 characters
_MAX_LAUNCHES = 30
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
    sections = [
        _case_section(judgement),
        _machine_code_section(judgement),
        _evidence_section(judgement),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


def _case_section(judgement: PullRequestJudgement) -> Section:
    """List the cases that no open table names."""
    slower: list[Change[CaseEvidence]] = []
    for group in groups_of_times(judgement):
        # a group of one is whole in the open table
        if len(group) > 1:
            slower += group
    rows = [_case_row(case) for case in (*slower, *_undescribed(judgement))]
    return Section(
        title=f"{count_of(len(rows), 'case')} in full",
        columns=(
            "change (95% interval)",
            "benchmark",
            "base → head",
            "% of roofline",
            "reason",
        ),
        rows=rows,
        is_folded=True,
    )


def _undescribed(judgement: PullRequestJudgement) -> Iterator[Change[CaseEvidence]]:
    """Undecided cases that the tables of removed and new ones do not have."""
    described = {case.case_key for case in judgement.cases if is_removed(case)}
    for new in judgement.new_implementations:
        described.update((case_id, new.implementation) for case_id in new.case_ids)
    for case in worst_first(judgement.cases):
        is_described = case.case_key in described
        is_undecided = case.verdict is Verdict.INCONCLUSIVE and not is_described
        # what fails on both sides is in no open table either
        if is_undecided or case.reason is Reason.ALREADY_FAILING:
            yield case


def _case_row(case: Change[CaseEvidence]) -> Row:
    change = ""
    times = both_sides(
        name="median_ns",
        base=case.base,
        head=case.head,
    )
    # a case without times has no interval
    if case.relative_interval is not None:
        low, high = case.relative_interval
        times += medians_note(case)
        change = f"{case.relative_change:+.1%}"
        if math.isfinite(low) and math.isfinite(high):
            change += f" ({low:+.1%} to {high:+.1%})"
    return (
        change,
        names_of(case),
        times,
        roofline_text(case),
        why_undecided(case),
    )


def _machine_code_section(judgement: PullRequestJudgement) -> Section:
    """Write why changes matter, once for all targets with the same reason."""
    targets = defaultdict[tuple[str, str], list[str]](list)
    for change in listed_code(judgement):
        # without a reason there is nothing to explain
        if change.detail is None or not isinstance(change.evidence, CodeEvidence):
            continue
        if change.evidence.has_compiled:
            names = f"{code(change.subject.part)} {names_of(change)}"
            why = change.detail.quoted(code)
            target = code(change.subject.target)
            targets[names, why].append(target)
    rows = [(names, why, listed(titles)) for (names, why), titles in targets.items()]
    return Section(
        title="Why the machine code matters",
        columns=("kernel", "change", "targets"),
        rows=rows,
        is_folded=True,
    )


def _evidence_section(judgement: PullRequestJudgement) -> Section:
    """List bottlenecks of slower cases, changed launches and changed hardware counters."""
    rows = [
        *_limit_rows(judgement),
        *_launch_rows(judgement),
        *_counter_rows(judgement),
    ]
    return Section(
        title="Likely bottleneck",
        columns=("evidence", "benchmark", "base → head"),
        rows=rows,
        is_folded=True,
        text="Heuristic; does not affect the result.",
    )


def _limit_rows(judgement: PullRequestJudgement) -> Iterator[Row]:
    """What limits the slower cases, and what a diagnosis of the head finds that the base lacks."""
    for change in judgement.limit_changes:
        # once, if both sides have the same limit
        both_limits = (str(change.evidence.base), str(change.evidence.head))
        # an unchanged limit is written once
        limits = dict.fromkeys(both_limits)
        remarks = list(change.evidence.news)
        if change.detail is not None:
            remarks.insert(0, change.detail)
        findings = "; ".join(remark.quoted(code) for remark in remarks)
        yield "bottleneck", names_of(change), f"{' → '.join(limits)}: {findings}"


def _launch_rows(judgement: PullRequestJudgement) -> Iterator[Row]:
    for launch in judgement.launch_changes[:_MAX_LAUNCHES]:
        text = ""
        if launch.detail is not None:
            text = launch.detail.quoted(code)
        share = f"{launch.evidence.share:.1%} of the call"
        yield "launches", names_of(launch), f"{text} ({share})"


def _counter_rows(judgement: PullRequestJudgement) -> Iterator[Row]:
    counts_of_kernels: Counter[ChangeSubject] = Counter()
    for counter in judgement.counter_changes:
        counts_of_kernels[counter.subject] += 1
        # dozens of counters move together: the largest changes say enough
        if counts_of_kernels[counter.subject] > _MAX_COUNTERS_OF_A_KERNEL:
            continue
        size = "new"
        if math.isfinite(counter.relative_change):
            size = f"{counter.relative_change:+.1%}"
        base, head = (format_counter(counter.metric, value) for value in counter.values)
        kernel = code(counter.subject.part)
        text = f"{kernel}: {base} → {head} ({size})"
        yield code(counter.metric), names_of(counter), text


def _environment_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for name, title in _ENVIRONMENT.items():
        base = getattr(judgement.base_environment, name)
        head = getattr(judgement.head_environment, name)
        # neither side knows it
        if base is None and head is None:
            continue
        rows.append((title, _environment_cell(base), _environment_cell(head)))
    sentences = [_intervals(judgement)]
    left_out = _left_out(judgement)
    if left_out:
        sentences.append(left_out)
    if judgement.noise_floor is not None:
        remark = judgement.noise_floor.remark.quoted(code)
        sentences.append(f"{remark}.")
    return Section(
        title="Environment and noise",
        columns=("", "base", "head"),
        rows=rows,
        is_folded=True,
        text=" ".join(sentences),
    )


def _environment_cell(value: object) -> str:
    if value is None:
        return "–"
    return code(str(value))


def _intervals(judgement: PullRequestJudgement) -> str:
    """Say when a time is flagged, how noisy the times are, and what they can show."""
    sentences = [
        "Flagged only if the whole 95% confidence interval is beyond "
        f"±{THRESHOLDS.relative_change:.0%} "
        f"(false discovery rate {THRESHOLDS.false_discovery_rate:.0%})."
    ]
    intervals = [case.log_interval for case in judgement.cases if case.log_interval is not None]
    # with too few blocks, an interval is infinite
    finite = [(low, high) for low, high in intervals if math.isfinite(high)]
    half_widths = [(high - low) / 2 for low, high in finite]
    # nothing says how far two separate jobs may differ
    if not judgement.is_paired:
        sentences.append("The records are not a pair, so the noise between them is unknown.")
    elif half_widths:
        comparisons = count_of(len(half_widths), "comparison")
        half_width = math.expm1(statistics.median(half_widths))
        sentences.append(f"{comparisons}: median half-width of the interval ±{half_width:.1%}.")
    if judgement.detectable_change is not None:
        sentences.append(f"Detects slowdowns ≥ {judgement.detectable_change:.1%} with 80% power.")
    return " ".join(sentences)


def _left_out(judgement: PullRequestJudgement) -> str:
    """How many pairs of blocks were left out, and why; empty if none was."""
    pair_count = 0
    reasons: set[str] = set()
    for case in judgement.cases:
        for pair in case.evidence.left_out:
            pair_count += 1
            reasons.update(pair.base, pair.head)
    if not pair_count:
        return ""
    count = count_of(pair_count, "block pair")
    return f"{count} excluded, device throttled or shared: {listed(map(code, sorted(reasons)))}."
