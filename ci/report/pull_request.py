"""Judge a pull request: two records to one judgement. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofwatch.ci.ab.changes import judge_accuracy, judge_counters, judge_launches
from roofwatch.ci.ab.comparable import (
    note_on_requirements,
    notes_on,
    refuse_runner,
    refuse_whole,
)
from roofwatch.ci.ab.compare import PairedEstimate, detectable_change
from roofwatch.ci.ab.launches import LaunchEvidence, judge_profiles
from roofwatch.ci.ab.noise_floor import FloorUsed, NoiseFloor, NoiseFloorError
from roofwatch.ci.ab.prediction import (
    StepChange,
    functions_of,
    predict_steps,
    shares_of,
)
from roofwatch.ci.claims.cases import CaseEvidence, CaseRules, is_removed, judge_cases
from roofwatch.ci.claims.decide import CodeStates, Requirement, missing_evidence
from roofwatch.ci.diagnosis.diagnose import LimitEvidence, judge_limits
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.judge.ratios import LibraryEvidence, judge_library_ratios
from roofwatch.ci.messages import Remark
from roofwatch.ci.report.new_implementations import NewImplementation, find_new_implementations
from roofwatch.ci.static.analyses import analyses_of_record, judge_analyses
from roofwatch.ci.static.baseline import Baseline, apply_baseline
from roofwatch.ci.static.comparison import (
    JudgedCode,
    StaticChange,
    judge_static,
    with_prediction_decisive,
)
from roofwatch.ci.static.same_code import toolchain_of
from roofwatch.model.case_key import CaseKey
from roofwatch.model.claim import DEFAULT_POLICY, CheckPolicy
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.record import Commit, RunRecord
from roofwatch.model.source_line import SourceLine
from roofwatch.model.stored_results import StepShare
from roofwatch.model.verdict import Reason, Verdict, exit_code

# a diagnosis reads all evidence of a case; nobody reads more of them
_MAX_DIAGNOSED = 10


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
    cases: tuple[Change[CaseEvidence], ...]
    """One for each case and implementation: its result, and its time."""
    static: tuple[StaticChange, ...]
    """Functions whose machine code differs."""
    unchanged_by_target: Mapping[str, int]
    """Functions whose machine code is identical."""
    detectable_change: float | None = None
    """Smallest slowdown, as a fraction, that these blocks find with 80 % probability: median over
    the comparisons.
    """
    counter_changes: tuple[Change[None], ...] = ()
    """Evidence; the largest first."""
    launch_changes: tuple[Change[LaunchEvidence], ...] = ()
    """Evidence from profiles of both sides."""
    accuracy_changes: tuple[Change[None], ...] = ()
    """Changes among correct results; they change no verdict."""
    secondary_changes: tuple[Change[None], ...] = ()
    """Memory and host time of a launch; they count for the verdict."""
    library_ratios: tuple[Change[LibraryEvidence], ...] = ()
    """Times over the library's time, also where times do not compare; they change no verdict."""
    limit_changes: tuple[Change[LimitEvidence], ...] = ()
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
    step_predictions: tuple[StepChange, ...] = ()
    """What the changed times cost the steps of workloads; they change no verdict."""
    policy: CheckPolicy = DEFAULT_POLICY
    missing: tuple[str, ...] = ()
    """Evidence that the policy requires and the records lack."""

    @property
    def exit_code(self) -> int:
        """Exit status: 1 also if required evidence is missing."""
        if self.missing:
            return 1
        return exit_code(self.verdict)

    @property
    def compared_cases(self) -> list[Change[CaseEvidence]]:
        """The cases that the head still has."""
        return [case for case in self.cases if not is_removed(case)]

    def cases_with(self, reason: Reason) -> list[Change[CaseEvidence]]:
        """The cases with a reason, in the order of the judgement."""
        return [case for case in self.cases if case.reason is reason]


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
    # before anything is judged: a wrong floor would change every verdict
    if noise_floor is not None:
        if reason := noise_floor.why_of_other_runner(head):
            raise NoiseFloorError(reason)
        noise_floor.require_same_sampling(head.preset)
    pairing = Pairing(base, head)
    is_paired = pairing.is_interleaved
    refusals = refuse_whole(pairing)
    time_refusals = refuse_runner(base.environment.runner_class, head.environment.runner_class)
    # code and results of different machines compare, times do not
    has_times = not refusals and not time_refusals
    launches = []
    if has_times:
        launches = judge_profiles(pairing)
    static = JudgedCode()
    baseline_notes: tuple[Remark, ...] = ()
    if not refusals:
        static, baseline_notes = _judge_static(pairing, baseline or {}, policy)
    code = CodeStates.of(pairing, static.changes)
    rules = CaseRules(
        code=code,
        launches=launches,
        noise_floor=noise_floor,
        is_refused=bool(refusals),
        has_times=has_times,
    )
    cases = judge_cases(pairing, rules)
    accuracy: list[Change[None]] = []
    secondary: list[Change[None]] = []
    if not refusals:
        accuracy = judge_accuracy(pairing)
        # a wrong or failing case has nothing worth comparing
        working_keys = [case.case_key for case in filter(_works, cases)]
        secondary = judge_launches(pairing, working_keys)
    changes: list[Change[Any]] = [*cases, *static.changes, *secondary]
    counts = Counter(_counted_as(change, policy) for change in changes)
    counts[Verdict.UNCHANGED.value] += sum(static.unchanged_by_target.values())
    comparisons = [
        case.evidence.comparison for case in cases if case.evidence.comparison is not None
    ]
    thresholds = [comparison.threshold for comparison in comparisons]
    requirements = [
        _requirement(pairing, case, code) for case in cases if case.evidence.head is not None
    ]
    counter_changes: tuple[Change[None], ...] = ()
    if has_times:
        counter_changes = tuple(judge_counters(pairing))
    library_ratios: tuple[Change[LibraryEvidence], ...] = ()
    if not refusals:
        library_ratios = tuple(judge_library_ratios(pairing))
    detectable_change = None
    if is_paired:
        detectable_change = _detectable_change(comparisons)
    floor_used = None
    if noise_floor is not None:
        floor_used = FloorUsed.of(noise_floor, thresholds)
    predictions: tuple[StepChange, ...] = ()
    shares = [*shares_of(base.imported), *steps]
    # times of separate jobs predict nothing
    if is_paired and shares:
        predictions = predict_steps(cases, functions_of(head.static_facts), shares)
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
        notes=(*notes_on(pairing), *_partial_notes(head, cases), *baseline_notes),
        cases=tuple(cases),
        static=static.changes,
        unchanged_by_target=static.unchanged_by_target,
        detectable_change=detectable_change,
        counter_changes=counter_changes,
        launch_changes=tuple(launches),
        accuracy_changes=tuple(accuracy),
        secondary_changes=tuple(secondary),
        library_ratios=library_ratios,
        limit_changes=tuple(judge_limits(pairing, _slowest(cases))),
        suite=head.suite,
        source_lines=head.source_lines,
        skipped=head.skipped,
        dependencies=note_on_requirements(pairing),
        new_implementations=find_new_implementations(pairing, _new_implementation_keys(cases)),
        noise_floor=floor_used,
        step_predictions=predictions,
        policy=policy,
        missing=missing_evidence(policy, requirements, is_refused=not has_times),
    )


def _partial_notes(head: RunRecord, cases: Sequence[Change[CaseEvidence]]) -> Iterator[Remark]:
    """Say that a job ended at its time limit, and how far it came."""
    if not head.is_partial:
        return
    compared = [case for case in cases if not is_removed(case)]
    timed_count = sum(case.log_interval is not None for case in compared)
    yield Remark(
        f"measuring stopped at its time limit, with {timed_count} of {len(compared)} timed; "
        "the others are missing"
    )


def _works(case: Change[CaseEvidence]) -> bool:
    sides = (case.evidence.base, case.evidence.head)
    return all(side is not None and side.failure is None for side in sides)


def _requirement(
    pairing: Pairing,
    case: Change[CaseEvidence],
    code: CodeStates,
) -> Requirement:
    """What a policy may require of a case, and whether it was done."""
    key = case.case_key
    side = case.evidence.head
    assert side is not None
    names = (case.subject.kernel, case.implementation)
    is_jitted = any(
        line.is_jitted and (line.kernel, line.implementation) == names
        for line in pairing.head.source_lines
    )
    is_compiled = key in code.compiled
    if case.reason is Reason.NEW_CASE:
        _, head_results = pairing.of(key)
        is_compiled = head_results.is_compiled
    return Requirement(
        claim=case.evidence.claimed,
        is_checked=side.accuracy is Outcome.OK,
        is_compiled=is_compiled or not is_jitted,
        is_timed=side.median_ns is not None,
    )


def _new_implementation_keys(cases: Sequence[Change[CaseEvidence]]) -> list[CaseKey]:
    """Return new cases whose implementation has no other cases; a new shape is only a new case."""
    existing = {
        (case.subject.kernel, case.implementation)
        for case in cases
        if case.reason is not Reason.NEW_CASE
    }
    new = [case.subject for case in cases if case.reason is Reason.NEW_CASE]
    return [
        subject.case_key
        for subject in new
        if (subject.kernel, subject.implementation) not in existing
    ]


def _judge_static(
    pairing: Pairing,
    baseline: Baseline,
    policy: CheckPolicy,
) -> tuple[JudgedCode, tuple[Remark, ...]]:
    """Compare machine code and analyses, and apply the baseline; with notes on its entries."""
    base = pairing.base
    head = pairing.head
    judged = judge_static(
        base.static_facts,
        head.static_facts,
        base_toolchain=toolchain_of(base.environment),
        head_toolchain=toolchain_of(head.environment),
        head_cases=[measured.case_key for measured in head.measurements],
    )
    analyses = analyses_of_record(head)
    code_changes = judged.changes
    if policy.predicted_fails:
        code_changes = tuple(map(with_prediction_decisive, code_changes))
    changes = (*code_changes, *judge_analyses(analyses_of_record(base), analyses))
    applied = apply_baseline(baseline, changes, (*head.static_facts, *analyses))
    return replace(judged, changes=applied.changes), applied.notes


def _detectable_change(comparisons: Sequence[PairedEstimate]) -> float | None:
    """Median of what each comparison would have detected; None without any."""
    changes = [
        detectable_change(
            comparison.block_deviation,
            comparison.block_count,
            threshold=comparison.threshold,
        )
        for comparison in comparisons
        if comparison.block_deviation is not None
    ]
    if not changes:
        return None
    return statistics.median(changes)


def _slowest(cases: Sequence[Change[CaseEvidence]]) -> list[CaseKey]:
    """The cases that became slower, the most first, as many as are diagnosed."""
    slower = [
        (-case.log_ratio, case.case_key)
        for case in cases
        if case.verdict is Verdict.REGRESSED and case.log_interval is not None
    ]
    return [key for _, key in sorted(slower)[:_MAX_DIAGNOSED]]


def _counted_as(change: Change[Any], policy: CheckPolicy) -> str:
    """Return the verdict; `new` or `removed` for a benchmark of only one side, `same code` if only
    its time is open, or `not timed` if the policy lets it pass.
    """
    # the policy lets what was not timed pass
    if change.reason is Reason.NOT_TIMED and policy.untimed_passes:
        return "not timed"
    if change.reason is Reason.NEW_CASE:
        return "new"
    if isinstance(change.evidence, CaseEvidence):
        if is_removed(change):
            return "removed"
        if change.reason is Reason.ALREADY_FAILING:
            return "still failing"
        # its times do not decide, and its code is the same
        if change.reason is Reason.SAME_CODE and change.verdict is Verdict.INCONCLUSIVE:
            return "same code"
    return change.verdict.value


def _overall(counts: Mapping[str, int], *, is_refused: bool) -> Verdict:
    """The verdict of the whole, by the worst that was found."""
    if counts[Verdict.REGRESSED]:
        return Verdict.REGRESSED
    # what fails on both sides was not compared
    uncompared_count = counts["removed"] + counts["still failing"]
    compared_count = sum(counts[verdict] for verdict in Verdict)
    nothing_remains = uncompared_count > 0 and compared_count == 0
    if counts[Verdict.INCONCLUSIVE] or is_refused or nothing_remains:
        return Verdict.INCONCLUSIVE
    if counts[Verdict.IMPROVED]:
        return Verdict.IMPROVED
    return Verdict.UNCHANGED
