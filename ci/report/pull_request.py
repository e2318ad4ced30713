"""A pull request: two records to one judgement, from the files alone. Pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.ab.changes import Change, find_accuracy_changes, find_counter_changes, find_secondary_changes
from roofwatch.ci.ab.clock import CycleComparison, LeftOut, block_pairs, compare_cycles, is_clock_move
from roofwatch.ci.ab.comparable import (
    Key,
    SideResult,
    SideResults,
    are_paired,
    notes_on,
    refuse_times,
    refuse_timing,
    refuse_whole,
)
from roofwatch.ci.ab.compare import Comparison, alpha_at, compare, control_false_discoveries, detectable_change
from roofwatch.ci.ab.launches import Flip, LaunchMove, find_flips, find_launch_moves, may_explain
from roofwatch.ci.ab.noise_floor import FloorUsed, NoiseFloor
from roofwatch.ci.diagnosis.diagnose import BottleneckChange, bottleneck_changes
from roofwatch.ci.message import Remark
from roofwatch.ci.reason import Reason
from roofwatch.ci.static.baseline import Baseline, hold
from roofwatch.ci.static.comparison import (
    StaticComparison,
    StaticJudgement,
    compare_static,
    is_same_machine_code,
    toolchain_of,
)
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.machine import Environment, Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import Commit, RunRecord, SkippedKernel, SourceLine
from roofwatch.db.values import Verdict

_MAX_DIAGNOSED = 10
_MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


@dataclass(frozen=True)
class CaseJudgement:
    """One case and implementation, base against head."""

    case_id: str
    implementation: str
    verdict: Verdict
    reason: Reason
    base: SideResult | None
    head: SideResult | None
    comparison: Comparison | None = None
    """The numbers behind a verdict on times; its own verdict is what the samples alone say."""
    detail: Remark | None = None
    """What the reason leaves open, for example which timer differs."""
    cycles: CycleComparison | None = None
    """The same in clock cycles, where the clock was read."""
    left_out: tuple[LeftOut, ...] = ()
    """Pairs of blocks that are not in the comparison."""
    flips: tuple[Flip, ...] = ()
    """What the autotuner chose otherwise: it may be why the time moved."""


@dataclass(frozen=True)
class PullRequestJudgement:
    """All that is said about one pull request."""

    project: str
    base: Commit
    head: Commit
    base_environment: Environment
    head_environment: Environment
    is_paired: bool
    """Base and head were measured in one job, blocks interleaved."""
    verdict: Verdict
    """The gravest: regressed, then what could not be told, then improved."""
    counts: Mapping[str, int]
    """Cases, compiled functions and what moved beside times by verdict; new cases count as `new`."""
    refusals: tuple[Remark, ...]
    """Why these records, or their times, are not compared."""
    notes: tuple[Remark, ...]
    """What else differs and may explain a move."""
    cases: tuple[CaseJudgement, ...]
    static: tuple[StaticJudgement, ...]
    """Only functions whose machine code differs."""
    unchanged_by_target: Mapping[str, int]
    """Functions whose machine code is the same, byte for byte."""
    thresholds: Thresholds
    detectable_change: float | None = None
    """Smallest slowdown that the blocks at hand find four times in five, as a fraction: median over the comparisons of
    a pair; None where none says how far blocks lie apart."""
    counter_changes: tuple[Change, ...] = ()
    """Of kernels that were counted on both sides, the most first; they decide nothing."""
    launch_moves: tuple[LaunchMove, ...] = ()
    """What cases that were profiled on both sides launch otherwise; it decides nothing."""
    accuracy_changes: tuple[Change, ...] = ()
    """Right results that are less accurate than before, or more; by themselves they move no verdict."""
    secondary_changes: tuple[Change, ...] = ()
    """Memory of a launch, and the host's time of one, that moved: they count as compiled facts do."""
    bottleneck_changes: tuple[BottleneckChange, ...] = ()
    """What binds the cases that got slower, the slowest first; it decides nothing."""
    source_lines: tuple[SourceLine, ...] = ()
    """Where the head's functions stand."""
    skipped: tuple[SkippedKernel, ...] = ()
    """Kernels that the change cannot touch, and that were not measured for it."""
    noise_floor: FloorUsed | None = None
    """Of the runner, where one was known."""


def judge_pull_request(
    base: RunRecord,
    head: RunRecord,
    thresholds: Thresholds | None = None,
    *,
    baseline: Baseline | None = None,
    noise_floor: NoiseFloor | None = None,
) -> PullRequestJudgement:
    """Judge a head record against its base.

    Records of different projects or harness versions are refused whole; of different runner classes, their times
    are. Times of records that were not measured as a pair are shown, but decide nothing: the difference between two
    jobs is in no interval. Outcomes, accuracy and compiled facts need no pair.

    Args:
        base: What to compare against.
        head: What is new.
        thresholds: The defaults if left out.
        baseline: Compiled facts that are accepted though they are worse than before; none if left out.
        noise_floor: Of the runner: where three times the floor of a case is more than the threshold, that counts.

    Raises:
        NoiseFloorError: the noise floor is of another runner, project, harness or preset than the head.
    """
    limits = thresholds or Thresholds()
    if noise_floor is not None:
        noise_floor.require_same_runner(head)
        noise_floor.require_same_sampling(head.preset)
    refusals, time_refusals, is_paired = refuse_whole(base, head), refuse_times(base, head), are_paired(base, head)
    can_compare = not refusals
    can_compare_times = can_compare and not time_refusals
    launch_moves = find_launch_moves(base.profiles, head.profiles) if can_compare_times else ()
    cases, static = _refused_cases(base, head), StaticComparison((), {}, ())
    baseline_notes: tuple[Remark, ...] = ()
    accuracy: tuple[Change, ...] = ()
    secondary: tuple[Change, ...] = ()
    if can_compare:
        cases = _judge_cases(cases, base, head, limits, noise_floor, has_times=can_compare_times)
        cases = _settle_family(cases, base, head, limits, launch_moves, is_paired=is_paired)
        static, baseline_notes = _judge_static(base, head, baseline or Baseline())
        accuracy = find_accuracy_changes(base, head, relative_change=limits.error_relative_change)
        has_pairs = is_paired and can_compare_times
        secondary = find_secondary_changes(base, head, _working(cases), limits, is_paired=has_pairs)
    counts = Counter([*map(_kind, cases), *map(_kind, static.judged), *(change.verdict.value for change in secondary)])
    counts[Verdict.UNCHANGED.value] += sum(static.unchanged_by_target.values())
    compared = [case.comparison for case in cases if case.comparison is not None]
    return PullRequestJudgement(
        project=head.project,
        base=base.commit,
        head=head.commit,
        base_environment=base.environment,
        head_environment=head.environment,
        is_paired=is_paired,
        verdict=_overall(counts, is_refused=not can_compare_times),
        counts=dict(counts),
        refusals=(*refusals, *time_refusals),
        notes=(*notes_on(base, head, is_paired=is_paired), *baseline_notes),
        cases=tuple(cases),
        static=static.judged,
        unchanged_by_target=static.unchanged_by_target,
        thresholds=limits,
        detectable_change=_detectable_change(compared) if is_paired else None,
        counter_changes=find_counter_changes(base.counters, head.counters) if can_compare_times else (),
        launch_moves=launch_moves,
        accuracy_changes=accuracy,
        secondary_changes=secondary,
        bottleneck_changes=bottleneck_changes(base, head, _slowest(cases)),
        source_lines=head.source_lines,
        skipped=head.skipped,
        noise_floor=None
        if noise_floor is None
        else FloorUsed.of(noise_floor, [one.threshold for one in compared], least=limits.relative_change),
    )


def _judge_static(base: RunRecord, head: RunRecord, baseline: Baseline) -> tuple[StaticComparison, tuple[Remark, ...]]:
    compared = compare_static(
        base.static_facts,
        head.static_facts,
        base_toolchain=toolchain_of(base.environment),
        head_toolchain=toolchain_of(head.environment),
        known=[(measured.case_id, measured.implementation) for measured in head.measurements],
    )
    held = hold(baseline, compared.judged, head.static_facts)
    return replace(compared, judged=held.judged), held.notes


def _detectable_change(compared: Sequence[Comparison]) -> float | None:
    found = [
        detectable_change(one.block_deviation, one.block_count, threshold=one.threshold)
        for one in compared
        if one.block_deviation is not None
    ]
    return statistics.median(found) if found else None


def _slowest(cases: Sequence[CaseJudgement]) -> list[Key]:
    """The cases that got slower and are worth a diagnosis."""
    slower = [
        (-case.comparison.log_ratio, (case.case_id, case.implementation))
        for case in cases
        if case.verdict is Verdict.REGRESSED and case.comparison is not None
    ]
    return [key for _, key in sorted(slower)[:_MAX_DIAGNOSED]]


def _working(cases: Sequence[CaseJudgement]) -> list[Key]:
    """The cases with right results on both sides, as far as they were checked."""
    return [
        (case.case_id, case.implementation)
        for case in cases
        if all(side is not None and side.failure is None for side in (case.base, case.head))
    ]


def _kind(judged: CaseJudgement | StaticJudgement) -> str:
    return "new" if judged.reason is Reason.NEW_CASE else judged.verdict.value


def _overall(counts: Mapping[str, int], *, is_refused: bool) -> Verdict:
    if counts[Verdict.REGRESSED]:
        return Verdict.REGRESSED
    if counts[Verdict.INCONCLUSIVE] or is_refused:
        return Verdict.INCONCLUSIVE
    return Verdict.IMPROVED if counts[Verdict.IMPROVED] else Verdict.UNCHANGED


# --- cases


def _refused_cases(base: RunRecord, head: RunRecord) -> list[CaseJudgement]:
    there, here = SideResults(base), SideResults(head)
    return [
        CaseJudgement(*key, Verdict.INCONCLUSIVE, Reason.NOT_COMPARABLE, there.result(key), here.result(key))
        for key in sorted(there.keys | here.keys)
    ]


def _judge_cases(
    cases: Iterable[CaseJudgement],
    base: RunRecord,
    head: RunRecord,
    thresholds: Thresholds,
    noise_floor: NoiseFloor | None,
    *,
    has_times: bool,
) -> list[CaseJudgement]:
    """Each case by its outcomes and times; without comparable times, what only they could decide stays refused."""
    there, here = SideResults(base).measurements, SideResults(head).measurements
    judged = []
    for refused in cases:
        key = refused.case_id, refused.implementation
        case = _judge_outcomes(refused)
        if case is None and has_times:
            threshold = thresholds.relative_change
            if noise_floor is not None:
                threshold = noise_floor.threshold(here[key], least=threshold)
            case = _judge_times(refused, there[key], here[key], threshold)
        judged.append(case or refused)
    return judged


def _judge_outcomes(case: CaseJudgement) -> CaseJudgement | None:
    """A case by its outcomes alone; None if it works and was timed on both sides, so that the times decide."""
    base, head = case.base, case.head

    def judged(verdict: Verdict, reason: Reason, detail: str | None = None) -> CaseJudgement:
        return replace(case, verdict=verdict, reason=reason, detail=None if detail is None else Remark(detail))

    if head is None:
        return judged(Verdict.INCONCLUSIVE, Reason.REMOVED_CASE)
    if head.failure is not None:
        if base is not None and base.failure is not None:
            return judged(Verdict.UNCHANGED, Reason.ALREADY_FAILING)
        is_wrong = head.failure is Outcome.INCORRECT
        return judged(Verdict.REGRESSED, Reason.WRONG_RESULT if is_wrong else Reason.FAILED)
    if base is None:
        return judged(Verdict.INCONCLUSIVE, Reason.NEW_CASE)
    if base.failure is not None:
        return judged(Verdict.IMPROVED, Reason.FIXED)
    if base.accuracy is Outcome.OK and head.accuracy is not Outcome.OK:
        return judged(
            Verdict.INCONCLUSIVE, Reason.NOT_COMPARABLE, "its results were checked at the base, not at the head"
        )
    if base.measured is Outcome.OK and head.measured is not Outcome.OK:
        if head.measured is Outcome.UNSUPPORTED:
            return judged(
                Verdict.REGRESSED, Reason.FAILED, "it could be measured at the base, and is not supported now"
            )
        return judged(Verdict.INCONCLUSIVE, Reason.REMOVED_CASE, "it was timed at the base, not at the head")
    if base.measured is not Outcome.OK or head.measured is not Outcome.OK:
        return judged(Verdict.UNCHANGED, Reason.NOT_TIMED)
    return None


def _judge_times(case: CaseJudgement, base: Measurement, head: Measurement, threshold: float) -> CaseJudgement:
    refusal = refuse_timing(base, head)
    if refusal is not None:
        return replace(case, detail=refusal)
    if base.is_hidden_by_host or head.is_hidden_by_host:
        detail = Remark(
            f"{base.timer} times hold what the device waits for its host: --timer cupti counts the device alone"
        )
        return replace(case, reason=Reason.HOST_BOUND, detail=detail)
    pairs = block_pairs(base, head)
    if pairs.are_too_few:
        return replace(case, reason=Reason.THROTTLED, detail=pairs.remark, left_out=pairs.left_out)
    comparison = compare(
        [block.samples_ns for block in pairs.base],
        [block.samples_ns for block in pairs.head],
        threshold=threshold,
        # a block that is left out has been looked at too
        error_rate=alpha_at(len(base.blocks)),
    )
    return replace(
        case,
        verdict=comparison.verdict,
        reason=comparison.reason,
        comparison=comparison,
        cycles=compare_cycles(pairs, threshold=threshold),
        left_out=pairs.left_out,
        flips=find_flips(base, head),
    )


def _settle_family(
    cases: Sequence[CaseJudgement],
    base: RunRecord,
    head: RunRecord,
    thresholds: Thresholds,
    launch_moves: Iterable[LaunchMove],
    *,
    is_paired: bool,
) -> list[CaseJudgement]:
    """Withdraw verdicts that the samples alone do not carry: many comparisons, no pair, or the same machine code."""
    family = [case.comparison for case in cases if case.comparison is not None]
    launched = defaultdict[Key, list[LaunchMove]](list)
    for move in launch_moves:
        launched[move.case_id, move.implementation].append(move)
    survivors = iter(control_false_discoveries(family, thresholds.false_discovery_rate))
    settled = []
    for case in cases:
        if case.comparison is None:
            settled.append(case)
            continue
        survivor = next(survivors)
        verdict, reason, detail = survivor.verdict, survivor.reason, case.detail
        if not is_paired:
            verdict, reason = Verdict.INCONCLUSIVE, Reason.NOT_PAIRED
        elif case.cycles is not None and is_clock_move(survivor, case.cycles):
            verdict, reason, detail = Verdict.INCONCLUSIVE, Reason.CLOCK_MOVED, case.cycles.remark
        elif (
            verdict in _MOVED
            and not case.flips  # every configuration is compiled, and another one of them ran
            and not may_explain(launched[case.case_id, case.implementation], survivor.log_ratio)
            and _is_same_machine_code(base, head, (case.case_id, case.implementation))
        ):
            verdict, reason = Verdict.INCONCLUSIVE, Reason.SAME_MACHINE_CODE
        settled.append(replace(case, verdict=verdict, reason=reason, detail=detail))
    return settled


def _is_same_machine_code(base: RunRecord, head: RunRecord, key: Key) -> bool:
    """Whether what ran on a GPU was the same code on both sides, as far as we compile it ourselves."""
    environment = head.environment
    if environment.device_kind == "cpu" or base.environment.triton_version != environment.triton_version:
        return False
    there, here = (
        [facts for facts in record.static_facts if (facts.case_id, facts.implementation) == key]
        for record in (base, head)
    )
    own_target = f"sm_{(environment.compute_capability or '').replace('.', '')}"
    return is_same_machine_code(there, here, own_target=own_target)
