"""Judge of cases: results and times of a pairing to one change for each case. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.ab.clock import (
    CyclesEvidence,
    LeftOut,
    block_pairs,
    compare_cycles,
    is_clock_move,
)
from roofwatch.ci.ab.comparable import (
    refuse_host_bound,
    refuse_method,
    refuse_timing,
    refused_reason,
)
from roofwatch.ci.ab.compare import PairedEstimate, alpha_at, compare, control_false_discoveries
from roofwatch.ci.ab.launches import LaunchEvidence, find_flips, may_explain
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.ci.claims.decide import CodeStates, claim_of, judge_outcomes, why_untimed
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.judge.pairing import CaseResults, Pairing, SideResult
from roofwatch.ci.messages import Remark
from roofwatch.ci.static.same_code import has_one_toolchain, is_same_machine_code
from roofwatch.model.case_key import CaseKey
from roofwatch.model.claim import Claim
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Cause
from roofwatch.model.machine import Environment
from roofwatch.model.measurement import Measurement
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

_OF_NOISE = frozenset({Reason.NOISE, Reason.TOO_FEW_BLOCKS, Reason.MULTIPLICITY})


@dataclass(frozen=True)
class CaseEvidence:
    """What both records know about a case and implementation."""

    base: SideResult | None
    """None if the record has no result of it."""
    head: SideResult | None
    comparison: PairedEstimate | None = None
    """Of the times, before false-discovery control."""
    cycles: CyclesEvidence | None = None
    """None if the clock was not read."""
    left_out: tuple[LeftOut, ...] = ()
    """Pairs of blocks that are not compared."""
    flips: tuple[Remark, ...] = ()
    """Changed choices of the autotuner."""
    claim: Claim | None = None
    """What may be claimed; set when the judgement is complete."""
    why_untimed: str = ""
    """Why a working case has no time, without words of the record."""

    @property
    def claimed(self) -> Claim:
        assert self.claim is not None, "set when the judgement is complete"
        return self.claim


def is_removed(case: Change[CaseEvidence]) -> bool:
    """Whether the head no longer has the benchmark; the others are judged all the same."""
    return case.reason is Reason.REMOVED_CASE and case.evidence.head is None


@dataclass(frozen=True)
class CaseRules:
    """What the judge of cases needs to know beside the pairing."""

    code: CodeStates
    launches: Sequence[Change[LaunchEvidence]]
    """Launches that differ, which may explain a change of time."""
    noise_floor: NoiseFloor | None
    is_refused: bool
    """Nothing of the two records is compared."""
    has_times: bool
    """Their times may be compared."""


def judge_cases(pairing: Pairing, rules: CaseRules) -> list[Change[CaseEvidence]]:
    """Judge every case and implementation: by its results first, then by its times."""
    keys = set(filter(pairing.has_run, pairing.keys))
    # code is compared without a run of the case
    if not rules.is_refused:
        keys |= rules.code.compiled
    cases = [_judge_case(pairing, key, rules) for key in sorted(keys)]
    cases = _settle_times(pairing, cases, rules)
    environments = pairing.base.environment, pairing.head.environment
    judged: list[Change[CaseEvidence]] = []
    for case in cases:
        case = replace(case, cause=_cause_of(pairing, case))
        judged.append(with_claim(case, rules.code, *environments))
    return judged


def _judge_case(
    pairing: Pairing,
    key: CaseKey,
    rules: CaseRules,
) -> Change[CaseEvidence]:
    base, head = pairing.of(key)
    evidence = CaseEvidence(base=_summary(base), head=_summary(head))
    # what was only compiled works as far as anyone knows
    if evidence.base is evidence.head is None:
        evidence = CaseEvidence(base=CaseResults().summary, head=CaseResults().summary)
    case = Change(
        subject=ChangeSubject(*key),
        metric="median_ns",
        base=base.median_ns,
        head=head.median_ns,
        verdict=Verdict.INCONCLUSIVE,
        reason=refused_reason(pairing),
        evidence=evidence,
    )
    if rules.is_refused:
        return case
    # a wrong result counts however fast it is
    ruling = judge_outcomes(evidence.base, evidence.head, rules.code.state(key))
    if ruling is not None:
        detail = None
        if ruling.detail:
            detail = Remark(ruling.detail)
        return replace(
            case,
            verdict=ruling.verdict,
            reason=ruling.reason,
            detail=detail,
        )
    if not rules.has_times or base.measurement is None or head.measurement is None:
        return case
    threshold = THRESHOLDS.relative_change
    # a noisy runner cannot show changes as small as the usual threshold
    if rules.noise_floor is not None:
        threshold = rules.noise_floor.threshold(head.measurement)
    return _judge_times(
        case=case,
        base=base.measurement,
        head=head.measurement,
        threshold=threshold,
        is_paired=pairing.is_interleaved,
    )


def _summary(results: CaseResults) -> SideResult | None:
    if not results.has_run:
        return None
    return results.summary


def _judge_times(
    case: Change[CaseEvidence],
    base: Measurement,
    head: Measurement,
    *,
    threshold: float,
    is_paired: bool,
) -> Change[CaseEvidence]:
    if refuse_method(base, head) is None and not is_paired:
        # whatever else is wrong with the times, separate runs decide nothing
        case = replace(case, reason=Reason.NOT_PAIRED)
    refusal = refuse_timing(base, head)
    if refusal is not None:
        return replace(case, detail=refusal)
    refusal = refuse_host_bound(base, head)
    if refusal is not None:
        if is_paired:
            reason = Reason.HOST_BOUND
        else:
            reason = case.reason
        return replace(
            case,
            reason=reason,
            detail=refusal,
        )
    pairs = block_pairs(base, head)
    if pairs.are_too_few:
        reason = case.reason
        if is_paired:
            reason = Reason.THROTTLED
        return replace(
            case,
            reason=reason,
            detail=pairs.remark,
            evidence=replace(case.evidence, left_out=pairs.left_out),
        )
    comparison = compare(
        [block.samples_ns for block in pairs.base],
        [block.samples_ns for block in pairs.head],
        threshold=threshold,
        # blocks that are left out were part of the interim analyses
        error_rate=alpha_at(len(base.blocks)),
    )
    evidence = replace(
        case.evidence,
        comparison=comparison,
        cycles=compare_cycles(pairs, threshold=threshold),
        left_out=pairs.left_out,
        flips=find_flips(base, head),
    )
    return replace(
        case,
        base=comparison.base_ns,
        head=comparison.head_ns,
        log_ratio=comparison.log_ratio,
        log_interval=comparison.log_interval,
        evidence=evidence,
    )


def _settle_times(
    pairing: Pairing,
    cases: Sequence[Change[CaseEvidence]],
    rules: CaseRules,
) -> list[Change[CaseEvidence]]:
    """Set the verdicts of compared times, with control of false discoveries and checks for other
    causes.
    """
    comparisons = (case.evidence.comparison for case in cases)
    compared = [comparison for comparison in comparisons if comparison is not None]
    family = iter(control_false_discoveries(compared, THRESHOLDS.false_discovery_rate))
    launches = group_by(rules.launches, lambda launch: launch.case_key)
    settled: list[Change[CaseEvidence]] = []
    for case in cases:
        if case.evidence.comparison is not None:
            is_control = rules.code.is_control(case.case_key)
            case = _settle(
                pairing=pairing,
                case=case,
                comparison=next(family),
                launches=launches.get(case.case_key, []),
                is_control=is_control,
            )
            # more blocks would say more about the machine, and nothing about the change
            if is_control and case.reason in _OF_NOISE:
                case = replace(case, reason=Reason.SAME_CODE)
        settled.append(case)
    return settled


def _settle(
    pairing: Pairing,
    case: Change[CaseEvidence],
    comparison: PairedEstimate,
    launches: Sequence[Change[LaunchEvidence]],
    *,
    is_control: bool,
) -> Change[CaseEvidence]:
    cycles = case.evidence.cycles
    # the difference of two jobs is in no interval
    if not pairing.is_interleaved:
        return replace(
            case,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.NOT_PAIRED,
        )
    # a kernel that takes the same cycles at a lower clock has not regressed
    if cycles is not None and is_clock_move(comparison, cycles):
        return replace(
            case,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.CLOCK_CHANGED,
            detail=cycles.remark,
        )
    case = replace(
        case,
        verdict=comparison.verdict,
        reason=comparison.reason,
    )
    # after autotuning chose another configuration, identical code means nothing: every
    # configuration is compiled
    has_flipped = bool(case.evidence.flips)
    # equal code may still be launched differently
    has_other_cause = has_flipped or may_explain(launches, comparison.log_ratio)
    if not case.is_decided or has_other_cause:
        return case
    # the same code cannot be slower by itself: host, clock or configuration changed
    if is_same_machine_code(pairing, case.case_key):
        return replace(
            case,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.SAME_MACHINE_CODE,
        )
    if is_control:
        return replace(
            case,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.SAME_SOURCES,
        )
    return case


def with_claim(
    case: Change[CaseEvidence],
    code: CodeStates,
    base_environment: Environment | None,
    head_environment: Environment | None,
) -> Change[CaseEvidence]:
    """Add what may be claimed about a judged case, and why it has no time."""
    key = case.case_key
    evidence = case.evidence
    is_compiled = key in code.compiled
    why = ""
    sides = ((evidence.base, base_environment), (evidence.head, head_environment))
    for side, environment in sides:
        if side is None or environment is None:
            continue
        # the side without a time says why
        if side.median_ns is None and side.failure is None:
            why = why_untimed(side, environment, is_compiled=is_compiled)
    claim = claim_of(
        case.verdict,
        case.reason,
        evidence.base,
        evidence.head,
        code=code.state(key),
        is_compiled=is_compiled,
        why=why,
    )
    claimed_evidence = replace(
        evidence,
        claim=claim,
        why_untimed=why,
    )
    return replace(case, evidence=claimed_evidence)


def _cause_of(pairing: Pairing, case: Change[CaseEvidence]) -> Cause | None:
    """`toolchain` if equal sources changed their time with another toolchain; else not known."""
    base = pairing.base
    head = pairing.head
    if not case.is_decided or has_one_toolchain(base.environment, head.environment):
        return None
    digest = base.source_digests.get(case.subject.kernel)
    head_digest = head.source_digests.get(case.subject.kernel)
    # without a digest, the source may have changed as well
    if digest is None or digest != head_digest:
        return None
    return Cause.TOOLCHAIN
