"""Compares compiled facts of two commits, or of one commit under two toolchains, function by
function.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roofwatch.ci.judge.change import Change, ChangeSubject, log_ratio_of
from roofwatch.ci.messages import Remark
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.explanation import explain, tile_lengths
from roofwatch.ci.static.facts import code_facts, fact_values, judge_code, moved_facts
from roofwatch.ci.static.matching import by_subject_and_target, compiles, matched
from roofwatch.ci.static.prediction import (
    TimePrediction,
    compare_calls,
    compare_estimates,
    describe,
)
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import Cause
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict

_WORDS = {
    Reason.NEW_CASE: "new",
    Reason.REMOVED_CASE: "gone",
    Reason.ACCEPTED: "accepted",
    Reason.TARGET_LOST: "lost",
    Reason.OFFSET_OVERFLOW: "unsafe",
    Reason.ALREADY_FAILING: "unsafe before and after",
}
ALL_LAUNCHES = "all launches"
"""Part of a change of a whole call."""
_MAX_SPILLED = 0.1
"""Local memory that is moved, relative to global memory: with more of it, spills decide."""
_OUTWEIGHED = frozenset({Reason.SPILLS_CHANGED, Reason.ACCESS_WIDTH_CHANGED})
"""Reasons whose cost the cycle model knows, with all that changed beside them."""


@dataclass(frozen=True)
class CodeEvidence:
    """One function for one target, compiled on both sides."""

    base: StaticFacts | None
    head: StaticFacts | None

    @property
    def has_compiled(self) -> bool:
        return compiles(self.base) and compiles(self.head)

    @property
    def has_failed(self) -> bool:
        """Whether both sides were compiled in vain."""
        if self.base is None or self.head is None:
            return False
        return not compiles(self.base) and not compiles(self.head)

    @property
    def is_same(self) -> bool:
        """Whether both sides have the same machine code and launch."""
        if self.base is None or self.head is None:
            return False
        has_same_facts = not moved_facts(fact_values(self.base), fact_values(self.head))
        return self.base.code_hash == self.head.code_hash and has_same_facts

    @property
    def prediction(self) -> TimePrediction | None:
        """What the cycle model says; None if it knows nothing about a side."""
        # a function of one side alone has nothing to compare
        if self.base is None or self.head is None:
            return None
        if self.base.estimate is None or self.head.estimate is None:
            return None
        base_occupancy = self.base.theoretical_occupancy
        head_occupancy = self.head.theoretical_occupancy
        return compare_estimates(
            self.base.estimate,
            self.head.estimate,
            has_other_warps=self.base.thread_count != self.head.thread_count,
            has_other_occupancy=base_occupancy != head_occupancy,
            has_other_tiles=tile_lengths(self.base) != tile_lengths(self.head),
        )

    @property
    def moved_facts(self) -> dict[str, tuple[float, float]]:
        """Facts that differ, with both values, decisive ones first; empty unless both compiled."""
        if self.base is None or self.head is None or not self.has_compiled:
            return {}
        base = fact_values(self.base)
        head = fact_values(self.head)
        names = moved_facts(base, head)
        return {name: (base[name], head[name]) for name in names}


StaticChange = Change[CodeEvidence | AnalysisEvidence]
"""A function whose code or launch differs, or what is proven of a case or counted in it."""


def moved_facts_of(change: StaticChange) -> dict[str, tuple[float, float]]:
    if isinstance(change.evidence, CodeEvidence):
        return change.evidence.moved_facts
    return {}


def word_of(change: StaticChange) -> str:
    """The reason in a word where it has one, else the verdict."""
    if change.reason in _WORDS:
        return _WORDS[change.reason]
    if change.verdict is Verdict.UNCHANGED:
        return "changed"
    return str(change.verdict).replace("_", " ")


def is_listed(change: StaticChange) -> bool:
    """Whether reports list it; new functions and changed code with equal facts are only counted."""
    if change.reason is Reason.NEW_CASE:
        return False
    if change.verdict is not Verdict.UNCHANGED:
        return True
    if change.reason in {Reason.ACCEPTED, Reason.ALREADY_FAILING}:
        return True
    return bool(moved_facts_of(change))


@dataclass(frozen=True)
class JudgedCode:
    """Changes of compiled functions, and what did not change."""

    changes: tuple[StaticChange, ...] = ()
    """Functions whose machine code or launch differs."""
    unchanged_by_target: Mapping[str, int] = field(default_factory=dict)
    """Number of functions with identical machine code."""
    gone: tuple[CaseKey, ...] = ()
    """Cases and implementations that only the base has."""


def judge_static(
    base: Sequence[StaticFacts],
    head: Sequence[StaticFacts],
    *,
    base_toolchain: Mapping[str, str] | None = None,
    head_toolchain: Mapping[str, str] | None = None,
    head_cases: Iterable[CaseKey] = (),
) -> JudgedCode:
    """Judge compiled facts.

    Compiler versions in the facts take precedence over those of a whole side. `head_cases` are
    cases and implementations that the head has, even if it did not compile them.
    """
    base_groups = by_subject_and_target(base)
    head_groups = by_subject_and_target(head)
    compiled_cases = {(case_id, implementation) for case_id, implementation, _ in head_groups}
    cases_of_head = compiled_cases | set(head_cases)
    changes: list[Change[CodeEvidence]] = []
    unchanged: Counter[str] = Counter()
    gone: dict[CaseKey, None] = {}
    for group in sorted(base_groups.keys() | head_groups.keys()):
        case_id, implementation, target = group
        base_functions = base_groups.get(group, {})
        head_functions = head_groups.get(group, {})
        # a deleted case is no loss of a target
        if not head_functions and (case_id, implementation) not in cases_of_head:
            gone[case_id, implementation] = None
            continue
        pairs = matched(base_functions, head_functions)
        if any(base_facts is None or head_facts is None for _, base_facts, head_facts in pairs):
            changes += _judge_call(group, base_functions, head_functions)
        for function, base_facts, head_facts in pairs:
            evidence = CodeEvidence(base_facts, head_facts)
            # what fails on both sides is no change
            if evidence.has_failed:
                continue
            if evidence.is_same:
                unchanged[target] += 1
                continue
            subject = ChangeSubject(
                case_id=case_id,
                implementation=implementation,
                part=function,
                target=target,
            )
            change = _judge_function(
                subject,
                evidence,
                is_target_compiled=bool(head_functions),
                cause=_cause_of(evidence, base_toolchain or {}, head_toolchain or {}),
            )
            changes.append(change)
    return JudgedCode(
        changes=tuple(changes),
        unchanged_by_target=dict(sorted(unchanged.items())),
        gone=tuple(gone),
    )


def _judge_function(
    subject: ChangeSubject,
    evidence: CodeEvidence,
    *,
    is_target_compiled: bool,
    cause: Cause,
) -> Change[CodeEvidence]:
    """Judge a function by its facts, then by what the cycle model predicts for them."""
    verdict, reason = _judge(
        evidence.base,
        evidence.head,
        is_target_compiled=is_target_compiled,
        cause=cause,
    )
    verdict, reason = _with_prediction(verdict, reason, evidence)
    return code_change(
        subject,
        evidence,
        verdict=verdict,
        reason=reason,
        cause=cause,
        detail=_detail(evidence),
    )


def code_change(
    subject: ChangeSubject,
    evidence: CodeEvidence,
    *,
    verdict: Verdict,
    reason: Reason,
    cause: Cause = Cause.CODE,
    detail: Remark | None = None,
) -> Change[CodeEvidence]:
    """Make the change of a function; its metric is the first fact that differs."""
    # the most decisive fact stands for the change
    facts = iter(evidence.moved_facts.items())
    name, values = next(facts, ("code_hash", None))
    base, head = values or (None, None)
    log_ratio = 0.0
    if base is not None and head is not None:
        log_ratio = log_ratio_of(base, head)
    return Change(
        subject=subject,
        metric=name,
        base=base,
        head=head,
        log_ratio=log_ratio,
        verdict=verdict,
        reason=reason,
        cause=cause,
        detail=detail,
        evidence=evidence,
    )


def with_prediction_decisive(change: StaticChange) -> StaticChange:
    """Count a predicted slowdown as a regression, for a project that wants it so."""
    if change.verdict is not Verdict.PREDICTED_SLOWER:
        return change
    return replace(change, verdict=Verdict.REGRESSED)


def _judge_call(
    group: tuple[str, str, str],
    base: Mapping[str, StaticFacts],
    head: Mapping[str, StaticFacts],
) -> list[Change[CodeEvidence]]:
    """Judge a call whose sides launch other functions by the predicted sum of their times."""
    if base and head:
        call = compare_calls(base, head)
    else:
        call = None
    if call is None or call.change.verdict is Verdict.UNCHANGED:
        return []
    case_id, implementation, target = group
    return [
        Change(
            subject=ChangeSubject(
                case_id=case_id,
                implementation=implementation,
                part=ALL_LAUNCHES,
                target=target,
            ),
            metric="code_hash",
            log_ratio=call.change.log_ratio,
            log_interval=call.change.log_interval,
            verdict=call.change.verdict,
            reason=Reason.TIME_PREDICTED,
            cause=Cause.CODE,
            detail=call.detail,
            evidence=CodeEvidence(None, None),
        )
    ]


def _with_prediction(
    verdict: Verdict,
    reason: Reason,
    evidence: CodeEvidence,
) -> tuple[Verdict, Reason]:
    """Let the cycle model speak where no fact decides, or against one that it outweighs."""
    prediction = evidence.prediction
    if prediction is None:
        predicted = Verdict.UNCHANGED
    else:
        predicted = prediction.verdict
    # the model sees no difference
    if predicted is Verdict.UNCHANGED:
        return verdict, reason
    is_opposite = verdict.is_change and (
        (verdict is Verdict.REGRESSED) == (predicted is Verdict.PREDICTED_FASTER)
    )
    if verdict is Verdict.UNCHANGED or (is_opposite and _is_outweighed(reason, evidence)):
        return predicted, Reason.TIME_PREDICTED
    return verdict, reason


def _is_outweighed(reason: Reason, evidence: CodeEvidence) -> bool:
    """Whether the rest of a change outweighs the fact that speaks against it."""
    prediction = evidence.prediction
    if reason not in _OUTWEIGHED or prediction is None or _spills_much(evidence):
        return False
    # a false green costs more than a false alarm, so only a gain needs more than a verdict
    is_faster = prediction.verdict is Verdict.PREDICTED_FASTER
    return prediction.outweighs_spills or not is_faster


def _spills_much(evidence: CodeEvidence) -> bool:
    """Whether a side moves so much local memory that the model's latencies matter."""
    for facts in (evidence.base, evidence.head):
        if facts is None or facts.estimate is None:
            return True
        if facts.estimate.local_bytes_moved > _MAX_SPILLED * facts.estimate.requested_bytes:
            return True
    return False


def _cause_of(
    evidence: CodeEvidence,
    base_toolchain: Mapping[str, str],
    head_toolchain: Mapping[str, str],
) -> Cause:
    """The toolchain if it differs, else the code."""
    base = evidence.base
    head = evidence.head
    # code of one side alone was not made twice
    if base is None or head is None:
        return Cause.CODE
    is_changed = _toolchains_differ(
        base,
        head,
        base_toolchain,
        head_toolchain,
    )
    if is_changed:
        return Cause.TOOLCHAIN
    return Cause.CODE


def _toolchains_differ(
    base: StaticFacts,
    head: StaticFacts,
    base_toolchain: Mapping[str, str],
    head_toolchain: Mapping[str, str],
) -> bool:
    """Return whether different compilers made two functions. One that failed before it reached a
    compiler does not name any.
    """
    # without versions in the facts, those of the whole run count
    if not base.toolchain or not head.toolchain:
        return base_toolchain != head_toolchain
    return {**base_toolchain, **base.toolchain} != {**head_toolchain, **head.toolchain}


# --- judging a pair


def _judge(
    base: StaticFacts | None,
    head: StaticFacts | None,
    *,
    is_target_compiled: bool,
    cause: Cause,
) -> tuple[Verdict, Reason]:
    """Judge one function for one target: whether it compiles comes before its facts."""
    # fusing two kernels removes one, which is no loss; losing the whole target is
    if head is None:
        if is_target_compiled:
            return Verdict.UNCHANGED, Reason.REMOVED_CASE
        return Verdict.INCONCLUSIVE, Reason.TARGET_LOST
    if not compiles(head):
        # a new kernel may need what the target does not have
        if base is None and head.outcome is Outcome.UNSUPPORTED:
            return Verdict.INCONCLUSIVE, Reason.NEW_CASE
        if compiles(base):
            return Verdict.REGRESSED, Reason.TARGET_LOST
        return Verdict.REGRESSED, Reason.FAILED
    if base is None:
        return Verdict.INCONCLUSIVE, Reason.NEW_CASE
    if not compiles(base):
        return Verdict.IMPROVED, Reason.FIXED
    verdict, reason = judge_code(code_facts(base), code_facts(head))
    # equal code may still be launched with another grid
    if verdict is Verdict.UNCHANGED and base.code_hash == head.code_hash:
        return verdict, Reason.LAUNCH_CHANGED
    # another compiler changes code that nobody touched
    if verdict is Verdict.UNCHANGED and cause is Cause.TOOLCHAIN:
        return verdict, Reason.TOOLCHAIN_CHANGED
    return verdict, reason


def _detail(evidence: CodeEvidence) -> Remark | None:
    """Explain a change by its facts, or by the message of the side that did not compile."""
    base = evidence.base
    head = evidence.head
    if base is not None and head is not None and evidence.has_compiled:
        return _with_estimate(explain(base, head), evidence)
    for side in (head, base):
        if side is None or compiles(side):
            continue
        if not side.message:
            return None
        return Remark("{}", (side.message,))
    return None


def _with_estimate(facts: Remark | None, evidence: CodeEvidence) -> Remark | None:
    """Put what the cycle model says before the facts, if it says that the time changes."""
    prediction = evidence.prediction
    # facts that do not change the time need no estimate
    if prediction is None or prediction.verdict is Verdict.UNCHANGED:
        return facts
    assert evidence.base is not None
    assert evidence.head is not None
    assert evidence.base.estimate is not None
    assert evidence.head.estimate is not None
    estimate = describe(evidence.base.estimate, evidence.head.estimate, prediction)
    if facts is None:
        return Remark(estimate)
    return Remark(f"{estimate} (estimate); {facts.template}", facts.words)
