"""Judge a pull request: two records to one judgement. Pure."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.ab.changes import (
    Change,
    find_accuracy_changes,
    find_counter_changes,
    find_secondary_changes,
)
from roofwatch.ci.ab.clock import (
    CycleComparison,
    LeftOut,
    block_pairs,
    compare_cycles,
    is_clock_move,
)
from roofwatch.ci.ab.comparable import (
    Key,
    SideResult,
    SideResults,
    are_paired,
    note_on_requirements,
    notes_on,
    refuse_host_bound,
    refuse_method,
    refuse_runner,
    refuse_timing,
    refuse_whole,
    refused_reason,
)
from roofwatch.ci.ab.compare import (
    Comparison,
    alpha_at,
    compare,
    control_false_discoveries,
    detectable_change,
)
from roofwatch.ci.ab.launches import LaunchMove, find_flips, find_launch_moves, may_explain
from roofwatch.ci.ab.noise_floor import FloorUsed, NoiseFloor, NoiseFloorError
from roofwatch.ci.ab.prediction import (
    KernelChange,
    StepPrediction,
    functions_of,
    predict_steps,
    shares_of,
)
from roofwatch.ci.claims.decide import (
    CodeComparison,
    Requirement,
    claim_of,
    judge_outcomes,
    missing_evidence,
    why_untimed,
)
from roofwatch.ci.diagnosis.diagnose import BottleneckChange, bottleneck_changes
from roofwatch.ci.messages import Remark
from roofwatch.ci.report.new_implementations import NewImplementation, find_new_implementations
from roofwatch.ci.static.analyses import analyses_of_record
from roofwatch.ci.static.baseline import Baseline, apply_baseline
from roofwatch.ci.static.comparison import (
    StaticComparison,
    StaticJudgement,
    compare_analyses,
    compare_static,
    has_one_toolchain,
    is_same_machine_code,
    toolchain_of,
)
from roofwatch.model.claim import DEFAULT_POLICY, CheckPolicy, Claim
from roofwatch.model.history import Cause
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import Commit, RunRecord, SourceLine
from roofwatch.model.results import StaticFacts
from roofwatch.model.stored_results import StepShare
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict, exit_code

_MAX_DIAGNOSED = 10
_CHANGED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


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
    """Comparison of the times, before false-discovery control."""
    detail: Remark | None = None
    cycles: CycleComparison | None = None
    """None if the clock was not read."""
    left_out: tuple[LeftOut, ...] = ()
    """Pairs of blocks that are not compared."""
    flips: tuple[Remark, ...] = ()
    """Changed choices of the autotuner."""
    claim: Claim | None = None
    """What may be claimed; set when the judgement is complete."""
    why_untimed: str = ""
    """Why a working case has no time, without words of the record."""
    cause: Cause | None = None
    """`toolchain` if equal sources changed their time with another toolchain; else not known."""

    @property
    def key(self) -> Key:
        return self.case_id, self.implementation

    @property
    def times_ns(self) -> tuple[float | None, float | None]:
        """Times of base and head: of the compared blocks if any are compared."""
        if self.comparison is not None:
            return self.comparison.base_ns, self.comparison.head_ns
        base, head = (None if side is None else side.median_ns for side in (self.base, self.head))
        return base, head

    @property
    def is_removed(self) -> bool:
        """Whether the head no longer has the benchmark; the others are judged all the same."""
        return self.reason is Reason.REMOVED_CASE and self.head is None

    @property
    def claimed(self) -> Claim:
        assert self.claim is not None, "set when the judgement is complete"
        return self.claim


@dataclass(frozen=True)
class PullRequestJudgement:
    project: str
    base: Commit
    head: Commit
    base_environment: Environment
    head_environment: Environment
    is_paired: bool
    """Base and head were measured in one job, blocks interleaved."""
    verdict: Verdict
    """The most severe: regressed, inconclusive, improved, unchanged."""
    counts: Mapping[str, int]
    """Cases, compiled functions and secondary changes by verdict; cases of one side count as `new`
    or `removed`.
    """
    refusals: tuple[Remark, ...]
    """Why the records or their times are not compared."""
    notes: tuple[Remark, ...]
    """Other differences that may explain a change."""
    cases: tuple[CaseJudgement, ...]
    static: tuple[StaticJudgement, ...]
    """Functions whose machine code differs."""
    unchanged_by_target: Mapping[str, int]
    """Functions whose machine code is identical."""
    detectable_change: float | None = None
    """Smallest slowdown, as a fraction, that these blocks find with 80 % probability: median over
    the comparisons.
    """
    counter_changes: tuple[Change, ...] = ()
    """Evidence; the largest first."""
    launch_moves: tuple[LaunchMove, ...] = ()
    """Evidence from profiles of both sides."""
    accuracy_changes: tuple[Change, ...] = ()
    """Changes among correct results; they change no verdict."""
    secondary_changes: tuple[Change, ...] = ()
    """Memory and host time of a launch; they count for the verdict."""
    bottleneck_changes: tuple[BottleneckChange, ...] = ()
    """Evidence for the slower cases, the slowest first."""
    suite: str | None = None
    """Benchmark file or folder of the head, from the root of its repository."""
    source_lines: tuple[SourceLine, ...] = ()
    """Lines of the head's functions."""
    skipped: tuple[str, ...] = ()
    """Kernels that the change cannot affect."""
    dependencies: Remark | None = None
    """Which required packages differ, and with which both sides ran."""
    noise_floor: FloorUsed | None = None
    new_implementations: tuple[NewImplementation, ...] = ()
    """Those that the base lacks, against the others of the head; they change no verdict."""
    step_predictions: tuple[StepPrediction, ...] = ()
    """What the changed times cost the steps of workloads; they change no verdict."""
    policy: CheckPolicy = DEFAULT_POLICY
    missing: tuple[str, ...] = ()
    """Evidence that the policy requires and the records lack."""

    @property
    def exit_code(self) -> int:
        """Exit status: 1 also if required evidence is missing."""
        return 1 if self.missing else exit_code(self.verdict)


def judge_pull_request(
    base: RunRecord,
    head: RunRecord,
    *,
    baseline: Baseline | None = None,
    noise_floor: NoiseFloor | None = None,
    steps: Sequence[StepShare] = (),
    policy: CheckPolicy = DEFAULT_POLICY,
) -> PullRequestJudgement:
    """Judge a head record against its base.

    Records of different projects or harness versions are not compared, nor are times of different
    runner classes. Times that were not measured as a pair are inconclusive. Outcomes, accuracy and
    compiled code need no pair.

    Args:
        base: The record to compare against.
        head: The new record.
        baseline: Accepted regressions of compiled code.
        noise_floor: Of the runner; raises the threshold of noisy cases.
        steps: Shares of functions in steps of workloads on the runner, added to those of the base.
        policy: How missing evidence counts.

    Raises:
        NoiseFloorError: the noise floor is of another runner, project, harness or preset than the
        head.
    """
    if noise_floor is not None:
        if reason := noise_floor.why_of_other_runner(head):
            raise NoiseFloorError(reason)
        noise_floor.require_same_sampling(head.preset)
    refusals, is_paired = refuse_whole(base, head), are_paired(base, head)
    time_refusals = refuse_runner(base.environment.runner_class, head.environment.runner_class)
    has_times = not refusals and not time_refusals
    launch_moves = find_launch_moves(base.profiles, head.profiles) if has_times else ()
    static = StaticComparison((), {}, ())
    baseline_notes: tuple[Remark, ...] = ()
    accuracy: tuple[Change, ...] = ()
    secondary: tuple[Change, ...] = ()
    if not refusals:
        static, baseline_notes = _judge_static(base, head, baseline or {})
    code = CodeComparison.of(base, head, static.judged)
    cases = _judge_cases(
        base,
        head,
        noise_floor,
        code,
        is_refused=bool(refusals),
        has_times=has_times,
        is_paired=is_paired,
    )
    cases = _settle_times(cases, base, head, launch_moves, is_paired=is_paired)
    cases = [_with_claim(case, base, head, code) for case in cases]
    if not refusals:
        accuracy = find_accuracy_changes(base, head)
        working = [
            case.key
            for case in cases
            if all(side and side.failure is None for side in (case.base, case.head))
        ]
        secondary = find_secondary_changes(base, head, working, is_paired=is_paired and has_times)
    judged: list[CaseJudgement | StaticJudgement | Change] = [*cases, *static.judged, *secondary]
    counts = Counter(_counted_as(one, policy) for one in judged)
    counts[Verdict.UNCHANGED.value] += sum(static.unchanged_by_target.values())
    compared = [case.comparison for case in cases if case.comparison is not None]
    thresholds = [one.threshold for one in compared]
    return PullRequestJudgement(
        project=head.project,
        base=base.commit,
        head=head.commit,
        base_environment=base.environment,
        head_environment=head.environment,
        is_paired=is_paired,
        verdict=_overall(counts, is_refused=not has_times),
        counts=dict(counts),
        refusals=(*refusals, *time_refusals),
        notes=(*notes_on(base, head, is_paired=is_paired), *baseline_notes),
        cases=tuple(cases),
        static=static.judged,
        unchanged_by_target=static.unchanged_by_target,
        detectable_change=_detectable_change(compared) if is_paired else None,
        counter_changes=find_counter_changes(base.counters, head.counters) if has_times else (),
        launch_moves=launch_moves,
        accuracy_changes=accuracy,
        secondary_changes=secondary,
        bottleneck_changes=bottleneck_changes(base, head, _slowest(cases)),
        suite=head.suite,
        source_lines=head.source_lines,
        skipped=head.skipped,
        dependencies=note_on_requirements(base, head),
        new_implementations=find_new_implementations(head, _new_implementation_keys(cases)),
        noise_floor=None if noise_floor is None else FloorUsed.of(noise_floor, thresholds),
        step_predictions=_predict(cases, head.static_facts, [*shares_of(base.imported), *steps])
        if is_paired
        else (),
        policy=policy,
        missing=missing_evidence(
            policy,
            [_requirement(case, head, code) for case in cases if case.head is not None],
            is_refused=not has_times,
        ),
    )


def _with_claim(
    case: CaseJudgement, base: RunRecord, head: RunRecord, code: CodeComparison
) -> CaseJudgement:
    is_compiled = case.key in code.compiled
    why = ""
    # the side without a time says why
    for side, record in ((case.base, base), (case.head, head)):
        if side is not None and side.median_ns is None and side.failure is None:
            why = why_untimed(side, record.environment, is_compiled=is_compiled)
    claim = claim_of(
        case.verdict,
        case.reason,
        case.base,
        case.head,
        code=code.state(case.key),
        is_compiled=is_compiled,
        why=why,
    )
    return replace(case, claim=claim, why_untimed=why, cause=_cause_of(case, base, head))


def _cause_of(case: CaseJudgement, base: RunRecord, head: RunRecord) -> Cause | None:
    is_changed = case.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}
    if not is_changed or has_one_toolchain(base.environment, head.environment):
        return None
    kernel = case.case_id.partition("/")[0]
    base_digest = base.source_digests.get(kernel)
    is_same_source = base_digest is not None and base_digest == head.source_digests.get(kernel)
    return Cause.TOOLCHAIN if is_same_source else None


def _requirement(case: CaseJudgement, head: RunRecord, code: CodeComparison) -> Requirement:
    names = (case.case_id.partition("/")[0], case.implementation)
    is_jitted = any(
        line.is_jitted and (line.kernel, line.implementation) == names for line in head.source_lines
    )
    is_new = case.reason is Reason.NEW_CASE
    compiled_at_head = any(
        (one.case_id, one.implementation) == case.key and one.outcome is Outcome.OK
        for one in head.static_facts
    )
    assert case.head is not None
    return Requirement(
        claim=case.claimed,
        is_checked=case.head.accuracy is Outcome.OK,
        is_compiled=not is_jitted or (compiled_at_head if is_new else case.key in code.compiled),
        is_timed=case.head.median_ns is not None,
    )


def _new_implementation_keys(cases: Iterable[CaseJudgement]) -> list[Key]:
    """Return new cases whose implementation has no other cases; a new shape is only a new case."""
    listed = list(cases)
    existing = {
        (case.case_id.partition("/")[0], case.implementation)
        for case in listed
        if case.reason is not Reason.NEW_CASE
    }
    new = [case for case in listed if case.reason is Reason.NEW_CASE]
    return [
        case.key
        for case in new
        if (case.case_id.partition("/")[0], case.implementation) not in existing
    ]


def _predict(
    cases: Iterable[CaseJudgement], facts: Iterable[StaticFacts], shares: Sequence[StepShare]
) -> tuple[StepPrediction, ...]:
    if not shares:
        return ()
    changes = [
        KernelChange(
            *case.key,
            one.relative_change,
            *one.relative_interval,
            case.reason is Reason.BEYOND_THRESHOLD,
        )
        for case in cases
        if (one := case.comparison) is not None and math.isfinite(one.relative_interval[1])
    ]
    return predict_steps(changes, functions_of(facts), shares)


def _judge_static(
    base: RunRecord, head: RunRecord, baseline: Baseline
) -> tuple[StaticComparison, tuple[Remark, ...]]:
    compared = compare_static(
        base.static_facts,
        head.static_facts,
        base_toolchain=toolchain_of(base.environment),
        head_toolchain=toolchain_of(head.environment),
        known=[(measured.case_id, measured.implementation) for measured in head.measurements],
    )
    analyses = analyses_of_record(head)
    judged = (*compared.judged, *compare_analyses(analyses_of_record(base), analyses))
    applied = apply_baseline(baseline, judged, (*head.static_facts, *analyses))
    return replace(compared, judged=applied.judged), applied.notes


def _detectable_change(compared: Sequence[Comparison]) -> float | None:
    found = [
        detectable_change(one.block_deviation, one.block_count, threshold=one.threshold)
        for one in compared
        if one.block_deviation is not None
    ]
    return statistics.median(found) if found else None


def _slowest(cases: Sequence[CaseJudgement]) -> list[Key]:
    slower = [
        (-case.comparison.log_ratio, case.key)
        for case in cases
        if case.verdict is Verdict.REGRESSED and case.comparison is not None
    ]
    return [key for _, key in sorted(slower)[:_MAX_DIAGNOSED]]


def _counted_as(item: CaseJudgement | StaticJudgement | Change, policy: CheckPolicy) -> str:
    """Return the verdict, `new` or `removed` for a benchmark of only one side, or `not timed` if
    the policy lets it pass.
    """
    if item.reason is Reason.NOT_TIMED and policy.untimed_passes:
        return "not timed"
    if item.reason is Reason.NEW_CASE:
        return "new"
    if isinstance(item, CaseJudgement) and item.is_removed:
        return "removed"
    if isinstance(item, CaseJudgement) and item.reason is Reason.ALREADY_FAILING:
        return "still failing"
    return item.verdict.value


def _overall(counts: Mapping[str, int], *, is_refused: bool) -> Verdict:
    if counts[Verdict.REGRESSED]:
        return Verdict.REGRESSED
    # what fails on both sides was not compared
    uncompared_count = counts["removed"] + counts["still failing"]
    nothing_remains = uncompared_count > 0 and not any(counts[verdict] for verdict in Verdict)
    if counts[Verdict.INCONCLUSIVE] or is_refused or nothing_remains:
        return Verdict.INCONCLUSIVE
    return Verdict.IMPROVED if counts[Verdict.IMPROVED] else Verdict.UNCHANGED


# --- cases


def _judge_cases(
    base: RunRecord,
    head: RunRecord,
    noise_floor: NoiseFloor | None,
    code: CodeComparison,
    *,
    is_refused: bool,
    has_times: bool,
    is_paired: bool,
) -> list[CaseJudgement]:
    base_results, head_results = SideResults(base), SideResults(head)
    measured_keys = base_results.keys | head_results.keys
    compiled_keys = set() if is_refused else code.compiled
    cases = []
    for key in sorted(measured_keys | compiled_keys):
        base_side, head_side = base_results.result(key), head_results.result(key)
        if key not in measured_keys:  # only compiled
            base_side = head_side = SideResult.of(None, None)
        case = CaseJudgement(
            *key, Verdict.INCONCLUSIVE, refused_reason(base, head), base_side, head_side
        )
        decided = None
        if not is_refused:
            decided = judge_outcomes(base_side, head_side, code.state(key))
        if decided is not None:
            verdict, reason, text = decided
            case = replace(
                case, verdict=verdict, reason=reason, detail=Remark(text) if text else None
            )
        elif has_times:
            measured = head_results.measurements[key]
            threshold = (
                THRESHOLDS.relative_change
                if noise_floor is None
                else noise_floor.threshold(measured)
            )
            case = _judge_times(
                case, base_results.measurements[key], measured, threshold, is_paired=is_paired
            )
        cases.append(case)
    return cases


def _judge_times(
    case: CaseJudgement,
    base: Measurement,
    head: Measurement,
    threshold: float,
    *,
    is_paired: bool,
) -> CaseJudgement:
    if refuse_method(base, head) is None and not is_paired:
        # whatever else is wrong with the times, separate runs decide nothing
        case = replace(case, reason=Reason.NOT_PAIRED)
    refusal = refuse_timing(base, head)
    if refusal is not None:
        return replace(case, detail=refusal)
    refusal = refuse_host_bound(base, head)
    if refusal is not None:
        reason = Reason.HOST_BOUND if is_paired else case.reason
        return replace(case, reason=reason, detail=refusal)
    pairs = block_pairs(base, head)
    if pairs.are_too_few:
        reason = Reason.THROTTLED if is_paired else case.reason
        return replace(case, reason=reason, detail=pairs.remark, left_out=pairs.left_out)
    comparison = compare(
        [block.samples_ns for block in pairs.base],
        [block.samples_ns for block in pairs.head],
        threshold=threshold,
        error_rate=alpha_at(
            len(base.blocks)
        ),  # blocks that are left out were part of the interim analyses
    )
    return replace(
        case,
        comparison=comparison,
        cycles=compare_cycles(pairs, threshold=threshold),
        left_out=pairs.left_out,
        flips=find_flips(base, head),
    )


def _settle_times(
    cases: Sequence[CaseJudgement],
    base: RunRecord,
    head: RunRecord,
    launch_moves: Iterable[LaunchMove],
    *,
    is_paired: bool,
) -> list[CaseJudgement]:
    """Set the verdicts of compared times, with control of false discoveries and checks for other
    causes.
    """
    launched = defaultdict[Key, list[LaunchMove]](list)
    for move in launch_moves:
        launched[move.case_id, move.implementation].append(move)
    compared = [(case, case.comparison) for case in cases if case.comparison is not None]
    family = control_false_discoveries(
        [one for _, one in compared], THRESHOLDS.false_discovery_rate
    )
    settled = {case.key: case for case in cases}
    for (case, _), one in zip(compared, family, strict=True):
        verdict, reason, detail = one.verdict, one.reason, case.detail
        # after autotuning chose another configuration, identical code means nothing: every
        # configuration is compiled
        has_other_cause = bool(case.flips) or may_explain(launched[case.key], one.log_ratio)
        if not is_paired:
            verdict, reason = Verdict.INCONCLUSIVE, Reason.NOT_PAIRED
        elif case.cycles is not None and is_clock_move(one, case.cycles):
            verdict, reason, detail = Verdict.INCONCLUSIVE, Reason.CLOCK_CHANGED, case.cycles.remark
        elif (
            verdict in _CHANGED
            and not has_other_cause
            and is_same_machine_code(base, head, *case.key)
        ):
            verdict, reason = Verdict.INCONCLUSIVE, Reason.SAME_MACHINE_CODE
        settled[case.key] = replace(case, verdict=verdict, reason=reason, detail=detail)
    return list(settled.values())
