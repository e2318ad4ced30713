"""Compiled facts of two commits, or of one commit under two toolchains, function by function. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.message import Remark
from roofwatch.ci.reason import Reason
from roofwatch.ci.static.explanation import explain
from roofwatch.ci.static.facts import code_facts, fact_values, judge_code, moved_facts
from roofwatch.collector.record.machine import Environment, Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Cause, Verdict

_KINDS = {
    Reason.NEW_CASE: "new",
    Reason.REMOVED_CASE: "gone",
    Reason.ACCEPTED: "accepted",
    Reason.TARGET_LOST: "lost",
}


@dataclass(frozen=True, order=True)
class Place:
    """Which machine code: of one function of an implementation, for one target."""

    case_id: str
    implementation: str
    function: str
    target: str

    @property
    def subject(self) -> tuple[str, str]:
        """The case and the implementation that launches it."""
        return self.case_id, self.implementation


def place_of(facts: StaticFacts) -> Place:
    """Where facts belong."""
    return Place(facts.case_id, facts.implementation, facts.function, facts.target)


@dataclass(frozen=True)
class StaticJudgement:
    """One compiled function for one target, where base and head differ."""

    case_id: str
    implementation: str
    function: str
    target: str
    verdict: Verdict
    reason: Reason
    base: StaticFacts | None
    head: StaticFacts | None
    cause: Cause = Cause.CODE
    """`toolchain` where other compilers made the two sides, whatever else differs."""
    detail: Remark | None = None
    """What moved and why that matters, or what was accepted."""

    @property
    def place(self) -> Place:
        return Place(self.case_id, self.implementation, self.function, self.target)

    @property
    def has_compiled(self) -> bool:
        """On both sides."""
        return self.base is not None and self.head is not None and _works(self.base) and _works(self.head)

    @property
    def word(self) -> str:
        """What it is called among others: the verdict, and what there is no verdict on by its kind."""
        if self.reason in _KINDS:
            return _KINDS[self.reason]
        return "changed" if self.verdict is Verdict.UNCHANGED else str(self.verdict)

    @property
    def moved_facts(self) -> tuple[str, ...]:
        """Names of facts that differ, the decisive ones first; none unless both sides compiled."""
        if self.base is None or self.head is None or not self.has_compiled:
            return ()
        return moved_facts(fact_values(self.base), fact_values(self.head))

    @property
    def is_told(self) -> bool:
        """Whether it is more than a count: what is new, and other machine code with the same facts, is only counted."""
        if self.reason is Reason.NEW_CASE:
            return False
        return self.verdict is not Verdict.UNCHANGED or self.reason is Reason.ACCEPTED or bool(self.moved_facts)


@dataclass(frozen=True)
class StaticComparison:
    """All that two sets of compiled facts say of each other."""

    judged: tuple[StaticJudgement, ...]
    """Only functions whose machine code or launch differs."""
    unchanged_by_target: Mapping[str, int]
    """Functions whose machine code is the same, byte for byte."""
    gone: tuple[tuple[str, str], ...]
    """Cases and implementations that only the base has."""


def compare_static(
    base: Sequence[StaticFacts],
    head: Sequence[StaticFacts],
    *,
    base_toolchain: Mapping[str, str] | None = None,
    head_toolchain: Mapping[str, str] | None = None,
    known: Iterable[tuple[str, str]] = (),
) -> StaticComparison:
    """Compare compiled facts.

    Equal machine code is the same code, whoever compiled it. Other machine code is changed code under equal
    toolchains alone; under different ones the facts are still compared, and what moved is the toolchain's doing as
    far as anybody can tell.

    Args:
        base: What to compare against.
        head: What is new.
        base_toolchain: What compiled all of the base, by name; what facts say of themselves comes before it.
        head_toolchain: The same of the head.
        known: Cases and implementations that the head has, whether or not it compiled them.
    """
    there, here = _by_subject_and_target(base), _by_subject_and_target(head)
    still_there = {(case_id, implementation) for case_id, implementation, _ in here} | set(known)
    judged: list[StaticJudgement] = []
    unchanged: Counter[str] = Counter()
    gone: dict[tuple[str, str], None] = {}
    for key in sorted(there.keys() | here.keys()):
        case_id, implementation, target = key
        before, after = there.get(key, {}), here.get(key, {})
        if not after and (case_id, implementation) not in still_there:
            gone[case_id, implementation] = None
            continue
        for name, old, new in _matched(before, after):
            cause = Cause.CODE
            if old is not None and new is not None:
                if not (_works(old) or _works(new)):
                    continue
                if _is_same(old, new):
                    unchanged[target] += 1
                    continue
                if {**(base_toolchain or {}), **old.toolchain} != {**(head_toolchain or {}), **new.toolchain}:
                    cause = Cause.TOOLCHAIN
            verdict, reason = _judge(old, new, is_target_compiled=bool(after), cause=cause)
            judged.append(
                StaticJudgement(
                    case_id=case_id,
                    implementation=implementation,
                    function=name,
                    target=target,
                    verdict=verdict,
                    reason=reason,
                    base=old,
                    head=new,
                    cause=cause,
                    detail=_detail(old, new),
                )
            )
    return StaticComparison(tuple(judged), dict(sorted(unchanged.items())), tuple(gone))


def toolchain_of(environment: Environment) -> dict[str, str]:
    """What an environment says of the compilers that every function met."""
    versions = {} if environment.triton_version is None else {"triton": environment.triton_version}
    return {**versions, **environment.compile_knobs}


def is_same_machine_code(
    base: Iterable[StaticFacts], head: Iterable[StaticFacts], *, own_target: str | None = None
) -> bool:
    """Whether two sides of one case and implementation are the same code.

    Args:
        base: All that is known of it.
        head: The same of the head.
        own_target: What the device runs: if it was compiled it alone counts, else all targets must agree.
    """
    there, here = ({(facts.target, facts.function): facts.code_hash for facts in side} for side in (base, head))
    if any(target == own_target for target, _ in here):
        there, here = (
            {(target, name): code for (target, name), code in side.items() if target == own_target}
            for side in (there, here)
        )
    return bool(here) and there == here and None not in here.values()


# --- which function is which


def _by_subject_and_target(facts: Sequence[StaticFacts]) -> dict[tuple[str, str, str], dict[str, StaticFacts]]:
    grouped: dict[tuple[str, str, str], dict[str, StaticFacts]] = defaultdict(dict)
    for one in facts:
        grouped[one.case_id, one.implementation, one.target][one.function] = one
    return grouped


def _matched(
    before: Mapping[str, StaticFacts], after: Mapping[str, StaticFacts]
) -> list[tuple[str, StaticFacts | None, StaticFacts | None]]:
    """Pairs of functions with their name at the head.

    By name and code, then by code alone (renamed, or numbered otherwise), then by name; one that is left over on each
    side is taken for a renamed one. Where a whole launch fails or is not supported, there is one entry in the name of
    the implementation: it stands for all functions of the other side.
    """
    old, new = dict(before), dict(after)
    pairs: list[tuple[str, StaticFacts | None, StaticFacts | None]] = []

    def take(there: str, here: str) -> None:
        pairs.append((here, old.pop(there), new.pop(here)))

    for name in sorted(old.keys() & new.keys()):
        if old[name].code_hash is not None and old[name].code_hash == new[name].code_hash:
            take(name, name)
    names_by_code = {facts.code_hash: name for name, facts in sorted(old.items(), reverse=True) if _works(facts)}
    for name in sorted(new):
        there = names_by_code.pop(new[name].code_hash, None)
        if there is not None:
            take(there, name)
    for name in sorted(old.keys() & new.keys()):
        take(name, name)
    if not pairs and (stand_in := _stand_in(new)) is not None and any(map(_works, old.values())):
        return [(name, facts, stand_in) for name, facts in sorted(old.items())]
    if not pairs and (stand_in := _stand_in(old)) is not None and any(map(_works, new.values())):
        return [(name, stand_in, facts) for name, facts in sorted(new.items())]
    if len(old) == len(new) == 1:
        take(*old, *new)
    pairs += [(name, None, facts) for name, facts in new.items()]
    pairs += [(name, facts, None) for name, facts in old.items()]
    return sorted(pairs, key=lambda pair: (pair[2] is None, pair[0]))


def _stand_in(functions: Mapping[str, StaticFacts]) -> StaticFacts | None:
    only = next(iter(functions.values())) if len(functions) == 1 else None
    return only if only is not None and not _works(only) and only.function == only.implementation else None


# --- what became of it


def _works(facts: StaticFacts) -> bool:
    return facts.outcome is Outcome.OK


def _is_same(base: StaticFacts, head: StaticFacts) -> bool:
    return base.code_hash == head.code_hash and not moved_facts(fact_values(base), fact_values(head))


def _judge(
    base: StaticFacts | None, head: StaticFacts | None, *, is_target_compiled: bool, cause: Cause
) -> tuple[Verdict, Reason]:
    if head is None:
        # fusing two kernels removes one, which is no loss; a target that nothing is compiled for any more is
        if is_target_compiled:
            return Verdict.UNCHANGED, Reason.REMOVED_CASE
        return Verdict.INCONCLUSIVE, Reason.TARGET_LOST
    base_works = base is not None and _works(base)
    if not _works(head):
        if base is None and head.outcome is Outcome.UNSUPPORTED:
            return Verdict.INCONCLUSIVE, Reason.NEW_CASE
        return Verdict.REGRESSED, Reason.TARGET_LOST if base_works else Reason.FAILED
    if base is None:
        return Verdict.INCONCLUSIVE, Reason.NEW_CASE
    if not base_works:
        return Verdict.IMPROVED, Reason.FIXED
    verdict, reason = judge_code(code_facts(base), code_facts(head))
    if verdict is Verdict.UNCHANGED and base.code_hash == head.code_hash:
        return verdict, Reason.LAUNCH_MOVED
    if verdict is Verdict.UNCHANGED and cause is Cause.TOOLCHAIN:
        return verdict, Reason.TOOLCHAIN_MOVED
    return verdict, reason


def _detail(base: StaticFacts | None, head: StaticFacts | None) -> Remark | None:
    if base is not None and head is not None and _works(base) and _works(head):
        return explain(base, head)
    failed = next((side for side in (head, base) if side is not None and not _works(side)), None)
    return Remark("{}", (failed.message,)) if failed is not None and failed.message else None
