"""Judge of the cases of two stored runs that are not a pair. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from roofwatch.ci.ab.comparable import refuse_harness, refuse_method, refuse_runner
from roofwatch.ci.claims.cases import CaseEvidence, with_claim
from roofwatch.ci.claims.decide import CodeStates, judge_outcomes
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.static.same_code import has_one_toolchain
from roofwatch.model.case_key import CaseKey
from roofwatch.model.claim import CodeState
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import TIME
from roofwatch.model.stored_results import MeasuredCase, RunDetail
from roofwatch.model.verdict import Reason, Verdict


def judge_runs(base: RunDetail, head: RunDetail) -> list[Change[CaseEvidence]]:
    """Judge every case and implementation of two runs, as for their records: outcomes and code
    count, times decide nothing.
    """
    code = _code(base, head)
    base_cases = {case.case_key: case for case in base.cases}
    head_cases = {case.case_key: case for case in head.cases}
    changes: list[Change[CaseEvidence]] = []
    for key in base_cases | head_cases:
        base_case = base_cases.get(key)
        head_case = head_cases.get(key)
        change = Change(
            subject=ChangeSubject(*key),
            metric=TIME.key,
            base=_median_ns(base_case),
            head=_median_ns(head_case),
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.NOT_COMPARABLE,
            evidence=CaseEvidence(base=_result(base_case), head=_result(head_case)),
        )
        # another harness times another thing, so not even outcomes are judged
        if not refuse_harness(base.summary.harness_version, head.summary.harness_version):
            is_comparable = _may_be_compared(
                base_case,
                head_case,
                base,
                head,
            )
            change = _judge(change, code.state(key), has_comparable_times=is_comparable)
        changes.append(
            with_claim(
                case=change,
                code=code,
                base_environment=base.environment,
                head_environment=head.environment,
            )
        )
    return changes


def _judge(
    change: Change[CaseEvidence],
    code: CodeState,
    *,
    has_comparable_times: bool,
) -> Change[CaseEvidence]:
    ruling = judge_outcomes(change.evidence.base, change.evidence.head, code)
    if ruling is not None:
        return replace(
            change,
            verdict=ruling.verdict,
            reason=ruling.reason,
        )
    if has_comparable_times:
        return replace(change, reason=Reason.NOT_PAIRED)
    return change


def _may_be_compared(
    base_case: MeasuredCase | None,
    head_case: MeasuredCase | None,
    base: RunDetail,
    head: RunDetail,
) -> bool:
    if base_case is None or head_case is None:
        return False
    runners = base.summary.runner_class, head.summary.runner_class
    if refuse_runner(*runners):
        return False
    return refuse_method(base_case, head_case) is None


def _median_ns(case: MeasuredCase | None) -> float | None:
    if case is None:
        return None
    return case.median_ns


def _result(case: MeasuredCase | None) -> SideResult | None:
    if case is None:
        return None
    return SideResult(
        measured=case.outcome,
        accuracy=case.accuracy_outcome,
        message=case.message,
        median_ns=case.median_ns,
        utilisation=case.utilisation,
        rmse_ratio=case.rmse_ratio,
    )


_Hashes = Mapping[tuple[str, str], str | None]
"""Code hash by function and target."""


def _code(base: RunDetail, head: RunDetail) -> CodeStates:
    base_hashes = _hashes(base)
    head_hashes = _hashes(head)
    both = base_hashes.keys() & head_hashes.keys()
    # a function of one side alone has nothing to compare
    changed = {key for key in both if base_hashes[key] != head_hashes[key]}
    is_one_toolchain = (
        base.environment is not None
        and head.environment is not None
        and has_one_toolchain(base.environment, head.environment)
    )
    # equal sources excuse no code that another compiler made
    head_sources: Mapping[str, str] = {}
    if is_one_toolchain:
        head_sources = head.source_digests
    return CodeStates(
        changed=frozenset(changed),
        compiled=frozenset(both),
        base_sources=base.source_digests,
        head_sources=head_sources,
    )


def _hashes(run: RunDetail) -> dict[CaseKey, _Hashes]:
    """Return the code of each case and implementation that was compiled."""
    hashes = defaultdict[CaseKey, dict[tuple[str, str], str | None]](dict)
    for row in run.static_rows:
        if row.outcome is Outcome.OK:
            hashes[row.case_key][row.function, row.target] = row.code_hash
    return dict(hashes)
