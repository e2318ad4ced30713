"""What may be claimed about the cases of two stored runs that are not a pair. Pure."""

from collections import defaultdict
from collections.abc import Mapping

from roofwatch.ci.ab.comparable import refuse_harness, refuse_method, refuse_runner
from roofwatch.ci.claims.decide import CodeStates, claim_of, judge_outcomes, why_untimed
from roofwatch.ci.judge.change import CaseKey
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.static.comparison import has_one_toolchain
from roofwatch.model.claim import Claim
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import MeasuredCase, RunDetail
from roofwatch.model.verdict import Reason, Verdict


def claims_of_runs(base: RunDetail, head: RunDetail) -> dict[CaseKey, Claim]:
    """Decide about every case and implementation of two runs, as for their records: outcomes and
    code count, times decide nothing.
    """
    code = _code(base, head)
    base_cases = {(case.case_id, case.implementation): case for case in base.cases}
    head_cases = {(case.case_id, case.implementation): case for case in head.cases}
    return {
        key: _claim(key, base_cases.get(key), head_cases.get(key), base, head, code)
        for key in base_cases | head_cases
    }


def _claim(
    key: CaseKey,
    base_case: MeasuredCase | None,
    head_case: MeasuredCase | None,
    base: RunDetail,
    head: RunDetail,
    code: CodeStates,
) -> Claim:
    sides = _result(base_case), _result(head_case)
    is_compiled = key in code.compiled
    why = ""
    for side, run in zip(sides, (base, head), strict=True):
        has_no_time = side is not None and side.median_ns is None and side.failure is None
        if side is not None and has_no_time and run.environment is not None:
            why = why_untimed(side, run.environment, is_compiled=is_compiled)
    verdict, reason = Verdict.INCONCLUSIVE, Reason.NOT_COMPARABLE
    if not refuse_harness(base.summary.harness_version, head.summary.harness_version):
        ruling = judge_outcomes(*sides, code.state(key))
        if ruling is not None:
            verdict, reason = ruling.verdict, ruling.reason
        elif _may_be_compared(base_case, head_case, base, head):
            reason = Reason.NOT_PAIRED
    return claim_of(
        verdict,
        reason,
        *sides,
        code=code.state(key),
        is_compiled=is_compiled,
        why=why,
    )


def _may_be_compared(
    base_case: MeasuredCase | None, head_case: MeasuredCase | None, base: RunDetail, head: RunDetail
) -> bool:
    if base_case is None or head_case is None:
        return False
    runners = base.summary.runner_class, head.summary.runner_class
    return not refuse_runner(*runners) and refuse_method(base_case, head_case) is None


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
    base_hashes, head_hashes = _hashes(base), _hashes(head)
    both = base_hashes.keys() & head_hashes.keys()
    changed = {key for key in both if base_hashes[key] != head_hashes[key]}
    is_one_toolchain = (
        base.environment is not None
        and head.environment is not None
        and has_one_toolchain(base.environment, head.environment)
    )
    return CodeStates(
        changed=frozenset(changed),
        compiled=frozenset(both),
        base_sources=base.source_digests,
        head_sources=head.source_digests if is_one_toolchain else {},
    )


def _hashes(run: RunDetail) -> dict[CaseKey, _Hashes]:
    """Return the code of each case and implementation that was compiled."""
    hashes = defaultdict[CaseKey, dict[tuple[str, str], str | None]](dict)
    for row in run.static_rows:
        if row.outcome is Outcome.OK:
            hashes[row.case_id, row.implementation][row.function, row.target] = row.code_hash
    return dict(hashes)
