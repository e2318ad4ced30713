"""What may be claimed about a case: the one place that decides it, for every output. Pure.

What was not measured is called not measured. `unchanged` needs times of both sides, from one job;
without times, only identical code (sources and machine code) is no change.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.pairing import CaseResults, Pairing, SideResult
from roofwatch.ci.static.comparison import StaticChange
from roofwatch.ci.static.same_code import has_one_toolchain
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.claim import CheckPolicy, Claim, ClaimKind, CodeState, RequiredEvidence
from roofwatch.model.history import Regression
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.metrics import Layer
from roofwatch.model.verdict import Reason, Verdict

_TIMED_WORDS = {
    Verdict.REGRESSED: "slower",
    Verdict.IMPROVED: "faster",
    Verdict.UNCHANGED: "time unchanged",
}
_IMPORTED_WORDS = {
    Verdict.REGRESSED: "worse",
    Verdict.IMPROVED: "better",
    Verdict.UNCHANGED: "unchanged",
    Verdict.INCONCLUSIVE: "undecided",
}
_CODE_WORDS = {
    CodeState.SAME: "same code",
    CodeState.CHANGED: "code changed",
    CodeState.UNKNOWN: "code not compared",
}
_OF_RESULTS = frozenset({Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED, Reason.ALREADY_FAILING})
"""Reasons for which the results decide, whatever the time."""
# messages of kernels that need one name it
_NAMES_A_GPU = re.compile(r"\b(CPU|GPUs?|CUDA|NVIDIA)\b")


# --- code


@dataclass(frozen=True)
class CodeStates:
    """Whether cases run the same code on both sides."""

    changed: frozenset[CaseKey]
    """Cases with machine code or launch configurations that differ."""
    compiled: frozenset[CaseKey]
    """Cases that were compiled on both sides."""
    base_sources: Mapping[str, str]
    """Digests by kernel, and of a pair by `kernel/implementation` too."""
    head_sources: Mapping[str, str]
    equal_in_one_job: frozenset[CaseKey] = frozenset()
    """Cases that one job measured on both sides with the same recorded code and machine."""

    @classmethod
    def of(cls, pairing: Pairing, changes: Iterable[StaticChange]) -> "CodeStates":
        """Compare the sources and the machine code of both sides by case."""
        base = pairing.base
        head = pairing.head
        is_one_toolchain = has_one_toolchain(base.environment, head.environment)
        compiled = _compiled(pairing.base_results) & _compiled(pairing.head_results)
        head_sources: dict[str, str] = {}
        # equal sources are no evidence of equal code if another torch runs them
        if is_one_toolchain:
            head_sources = {**head.source_digests, **head.implementation_digests}
        equal_in_one_job: set[CaseKey] = set()
        if pairing.is_interleaved:
            base_code = base.run_code
            head_code = head.run_code
            equal_in_one_job.update(
                key for key in pairing.head_results if base_code.is_same(head_code, key)
            )
        return cls(
            changed=frozenset(change.case_key for change in changes),
            compiled=frozenset(compiled),
            base_sources={**base.source_digests, **base.implementation_digests},
            head_sources=head_sources,
            equal_in_one_job=frozenset(equal_in_one_job),
        )

    def state(self, key: CaseKey) -> CodeState:
        """Compare machine code where it was compiled, else the sources, if both sides have them."""
        if key in self.changed:
            return CodeState.CHANGED
        kernel = kernel_of(key[0])
        base = self.base_sources.get(kernel)
        head = self.head_sources.get(kernel)
        if base is None or head is None:
            return CodeState.UNKNOWN
        # an edit of one implementation leaves the others as they were
        of_implementation = f"{kernel}/{key[1]}"
        base = self.base_sources.get(of_implementation, base)
        head = self.head_sources.get(of_implementation, head)
        if base == head:
            return CodeState.SAME
        return CodeState.CHANGED

    def is_control(self, key: CaseKey) -> bool:
        """Whether a difference of its times would come from the machine, not from the change."""
        # equal sources may still be compiled or launched differently
        return key in self.equal_in_one_job and self.state(key) is CodeState.SAME


def _compiled(results: Mapping[CaseKey, CaseResults]) -> set[CaseKey]:
    return {key for key, case_results in results.items() if case_results.is_compiled}


# --- one case


@dataclass(frozen=True)
class Ruling:
    """What the outcomes alone decide about a case."""

    verdict: Verdict
    reason: Reason
    detail: str = ""


def judge_untimed(code: CodeState) -> Ruling:
    """Judge a case that works on both sides and has no time on one of them."""
    if code is CodeState.SAME:
        return Ruling(Verdict.UNCHANGED, Reason.SAME_CODE)
    return Ruling(Verdict.INCONCLUSIVE, Reason.NOT_TIMED)


def judge_outcomes(
    base: SideResult | None,
    head: SideResult | None,
    code: CodeState,
) -> Ruling | None:
    """Judge a case by its outcomes; None if it works and was timed on both sides."""
    if head is None:
        return Ruling(Verdict.INCONCLUSIVE, Reason.REMOVED_CASE)
    if head.failure is not None:
        # what failed before is not the change's fault
        if base is not None and base.failure is not None:
            return Ruling(Verdict.UNCHANGED, Reason.ALREADY_FAILING)
        if head.failure is Outcome.INCORRECT:
            return Ruling(Verdict.REGRESSED, Reason.WRONG_RESULT)
        return Ruling(Verdict.REGRESSED, Reason.FAILED)
    if base is None:
        return Ruling(Verdict.INCONCLUSIVE, Reason.NEW_CASE)
    if base.failure is not None:
        return Ruling(Verdict.IMPROVED, Reason.FIXED)
    # without a check, a fast head may be a wrong one
    if base.accuracy is Outcome.OK and head.accuracy is not Outcome.OK:
        detail = "results were checked at the base, not at the head"
        return Ruling(
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.NOT_COMPARABLE,
            detail=detail,
        )
    if base.measured is not Outcome.OK:
        return judge_untimed(code)
    if head.measured is Outcome.UNSUPPORTED:
        detail = "measured at the base, unsupported at the head"
        return Ruling(
            verdict=Verdict.REGRESSED,
            reason=Reason.FAILED,
            detail=detail,
        )
    if head.measured is not Outcome.OK:
        detail = "timed at the base, not at the head"
        return Ruling(
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.REMOVED_CASE,
            detail=detail,
        )
    return None


def why_untimed(
    side: SideResult,
    environment: Environment,
    *,
    is_compiled: bool,
) -> str:
    """Say why a working case has no time, without words of the record."""
    is_cpu = environment.device_kind == "cpu"
    if side.measured is None:
        if is_cpu and is_compiled:
            return "no GPU"
        return "not timed in this run"
    if is_cpu and (is_compiled or _NAMES_A_GPU.search(side.message or "")):
        return "no GPU"
    return "unsupported here"


def claim_of(
    verdict: Verdict,
    reason: Reason,
    base: SideResult | None,
    head: SideResult | None,
    *,
    code: CodeState,
    is_compiled: bool,
    why: str = "",
) -> Claim:
    """Decide what may be claimed about a case.

    Args:
        verdict: On the case.
        reason: Of the verdict.
        base: Results of the base; None if it lacks the case.
        head: Results of the head.
        code: Whether both sides run the same code.
        is_compiled: Whether both sides were compiled.
        why: Why it has no time.
    """
    is_timed = _is_timed(base) and _is_timed(head)
    kind = ClaimKind.NOT_MEASURED
    text = reason_words(reason)
    # results were judged, whatever the times are
    if reason in _OF_RESULTS:
        kind = ClaimKind.CHECKED_ONLY
    elif is_timed and reason is Reason.SAME_CODE:
        kind = ClaimKind.TIMED_UNDECIDED
        text = "same code; the times do not decide"
    elif is_timed and verdict is Verdict.INCONCLUSIVE:
        kind = ClaimKind.TIMED_UNDECIDED
        text = f"undecided: {reason_words(reason)}"
    elif is_timed:
        kind = ClaimKind.TIMED
        text = _TIMED_WORDS[verdict]
    elif reason in {Reason.NOT_TIMED, Reason.SAME_CODE}:
        kind = ClaimKind.CHECKED_ONLY
        if is_compiled:
            kind = ClaimKind.COMPILED_ONLY
        elif not (_is_correct(base) and _is_correct(head)):
            kind = ClaimKind.NOT_MEASURED
        text = f"time not measured ({why}); {_CODE_WORDS[code]}"
    elif reason is Reason.REMOVED_CASE and head is not None:
        text = "undecided: timed at the base only"
    elif reason is Reason.NOT_COMPARABLE:
        text = "undecided: not comparable"
    return Claim(
        kind=kind,
        verdict=verdict,
        reason=reason,
        code=code,
        text=text,
    )


def _is_timed(side: SideResult | None) -> bool:
    return side is not None and side.median_ns is not None


def _is_correct(side: SideResult | None) -> bool:
    return side is not None and side.accuracy is Outcome.OK


def claim_of_regression(regression: Regression) -> str:
    """Say what the stored evidence of a regression proves, in the words of a case."""
    times = [point for point in regression.change_points if point.series.metric == "median_ns"]
    layers = {point.series.definition.layer for point in regression.change_points}
    # a case that began to fail has no time on one side
    if any(point.before is not None and point.after is not None for point in times):
        text = _TIMED_WORDS.get(regression.verdict, "undecided")
        # a single step in a history may still be noise
        if regression.is_confirmed:
            return text
        return f"{text}, not confirmed by a pair"
    if times or Layer.ACCURACY in layers:
        if regression.verdict is Verdict.IMPROVED:
            return reason_words(Reason.FIXED)
        return reason_words(Reason.FAILED)
    if layers <= {Layer.STATIC, Layer.OPERATORS}:
        return f"time not measured; {_CODE_WORDS[CodeState.CHANGED]}"
    if layers == {Layer.IMPORTED}:
        return f"{_IMPORTED_WORDS[regression.verdict]}, by values of another tool"
    return "time unchanged or not measured; other values changed"


# --- what a check requires


@dataclass(frozen=True)
class Requirement:
    """One case of the head, as far as a check can require evidence of it."""

    claim: Claim
    is_checked: bool
    """The head's result was checked and is right."""
    is_compiled: bool
    """Both sides compiled, or the implementation is not compiled at all."""
    is_timed: bool
    """The head has a time."""


def missing_evidence(
    policy: CheckPolicy,
    cases: Iterable[Requirement],
    *,
    is_refused: bool,
) -> tuple[str, ...]:
    """Say which required evidence is missing, in words; nothing if it is all there."""
    # no policy requires evidence
    if not policy.requires:
        return ()
    if is_refused:
        return ("comparable records",)
    listed = list(cases)
    missing = []
    for evidence in RequiredEvidence:
        count = sum(not _has(evidence, case) for case in listed)
        if evidence in policy.requires and count:
            missing.append(f"{evidence} of {count} of {len(listed)}")
    return tuple(missing)


def _has(evidence: RequiredEvidence, case: Requirement) -> bool:
    """Whether a case has a kind of evidence that a policy requires."""
    claim = case.claim
    # a new case has no base that could lack something
    is_new = claim.reason is Reason.NEW_CASE
    if evidence is RequiredEvidence.ACCURACY:
        return case.is_checked
    if evidence is RequiredEvidence.CODE:
        return case.is_compiled and (is_new or claim.code is not CodeState.UNKNOWN)
    if is_new:
        return case.is_timed
    if claim.reason is Reason.SAME_CODE:
        return True
    return claim.verdict is not Verdict.INCONCLUSIVE
