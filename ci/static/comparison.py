"""Compares compiled facts of two commits, or of one commit under two toolchains, function by
function.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.judge.change import CaseKey
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.messages import Remark
from roofwatch.ci.static.analyses import Analysis, judge_analysis
from roofwatch.ci.static.explanation import explain
from roofwatch.ci.static.facts import code_facts, fact_values, judge_code, moved_facts
from roofwatch.model.history import Cause
from roofwatch.model.machine import Environment, Outcome
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


@dataclass(frozen=True, order=True)
class FunctionKey:
    """Identifies the machine code of one function for one target."""

    case_id: str
    implementation: str
    function: str
    target: str

    @property
    def kernel(self) -> str:
        return self.case_id.split("/")[0]

    @property
    def subject(self) -> tuple[str, str]:
        return self.case_id, self.implementation


def function_key(facts: StaticFacts | Analysis) -> FunctionKey:
    return FunctionKey(facts.case_id, facts.implementation, facts.function, facts.target)


@dataclass(frozen=True)
class StaticJudgement(FunctionKey):
    """Verdict on one function for one target whose code or launch differs."""

    verdict: Verdict
    reason: Reason
    base: StaticFacts | None
    head: StaticFacts | None
    cause: Cause = Cause.CODE
    """`toolchain` if different compilers made the two sides."""
    detail: Remark | None = None
    analysis: Analysis | None = None
    """The head's, if this is about offsets or operators; base and head are None then."""

    @property
    def key(self) -> FunctionKey:
        return FunctionKey(self.case_id, self.implementation, self.function, self.target)

    @property
    def has_compiled(self) -> bool:
        return _compiles(self.base) and _compiles(self.head)

    @property
    def word(self) -> str:
        if self.reason in _WORDS:
            return _WORDS[self.reason]
        return "changed" if self.verdict is Verdict.UNCHANGED else str(self.verdict)

    @property
    def moved_facts(self) -> tuple[str, ...]:
        """Names of facts that differ, decisive ones first; empty unless both sides compiled."""
        if self.base is None or self.head is None or not self.has_compiled:
            return ()
        return moved_facts(fact_values(self.base), fact_values(self.head))

    @property
    def is_listed(self) -> bool:
        """Whether reports list it; new functions and changed code with equal facts are only
        counted.
        """
        if self.reason is Reason.NEW_CASE:
            return False
        return (
            self.verdict is not Verdict.UNCHANGED
            or self.reason in {Reason.ACCEPTED, Reason.ALREADY_FAILING}
            or bool(self.moved_facts)
        )


@dataclass(frozen=True)
class StaticComparison:
    judged: tuple[StaticJudgement, ...]
    """Functions whose machine code or launch differs."""
    unchanged_by_target: Mapping[str, int]
    """Number of functions with identical machine code."""
    gone: tuple[tuple[str, str], ...]
    """Cases and implementations that only the base has."""


def compare_analyses(
    base: Sequence[Analysis], head: Sequence[Analysis]
) -> tuple[StaticJudgement, ...]:
    """Compare what is known about offsets and operators; only what decides differs is judged."""
    by_key = {function_key(analysis): analysis for analysis in base}
    judged: list[StaticJudgement] = []
    for analysis in sorted(head, key=function_key):
        found = judge_analysis(by_key.get(function_key(analysis)), analysis)
        if found is not None:
            judged.append(
                StaticJudgement(
                    case_id=analysis.case_id,
                    implementation=analysis.implementation,
                    function=analysis.function,
                    target=analysis.target,
                    verdict=found.verdict,
                    reason=found.reason,
                    base=None,
                    head=None,
                    detail=found.detail,
                    analysis=analysis,
                )
            )
    return tuple(judged)


def compare_static(
    base: Sequence[StaticFacts],
    head: Sequence[StaticFacts],
    *,
    base_toolchain: Mapping[str, str] | None = None,
    head_toolchain: Mapping[str, str] | None = None,
    known: Iterable[tuple[str, str]] = (),
) -> StaticComparison:
    """Compare compiled facts.

    Compiler versions in the facts take precedence over those of a whole side. `known` are cases and
    implementations that the head has, even if it did not compile them.
    """
    old_groups, new_groups = _by_subject_and_target(base), _by_subject_and_target(head)
    head_subjects = {(case_id, implementation) for case_id, implementation, _ in new_groups} | set(
        known
    )
    judged: list[StaticJudgement] = []
    unchanged: Counter[str] = Counter()
    gone: dict[tuple[str, str], None] = {}
    for key in sorted(old_groups.keys() | new_groups.keys()):
        case_id, implementation, target = key
        old_functions, new_functions = old_groups.get(key, {}), new_groups.get(key, {})
        if not new_functions and (case_id, implementation) not in head_subjects:
            gone[case_id, implementation] = None
            continue
        for function, old, new in _matched(old_functions, new_functions):
            cause = Cause.CODE
            if old is not None and new is not None:
                if not (_compiles(old) or _compiles(new)):
                    continue
                if old.code_hash == new.code_hash and not moved_facts(
                    fact_values(old), fact_values(new)
                ):
                    unchanged[target] += 1
                    continue
                if _toolchains_differ(old, new, base_toolchain or {}, head_toolchain or {}):
                    cause = Cause.TOOLCHAIN
            verdict, reason = _judge(old, new, is_target_compiled=bool(new_functions), cause=cause)
            detail = _detail(old, new)
            judged.append(
                StaticJudgement(
                    case_id,
                    implementation,
                    function,
                    target,
                    verdict,
                    reason,
                    old,
                    new,
                    cause,
                    detail,
                )
            )
    return StaticComparison(tuple(judged), dict(sorted(unchanged.items())), tuple(gone))


def _toolchains_differ(
    base: StaticFacts,
    head: StaticFacts,
    base_toolchain: Mapping[str, str],
    head_toolchain: Mapping[str, str],
) -> bool:
    """Return whether different compilers made two functions. One that failed before it reached a
    compiler does not name any.
    """
    if not base.toolchain or not head.toolchain:
        return base_toolchain != head_toolchain
    return {**base_toolchain, **base.toolchain} != {**head_toolchain, **head.toolchain}


def toolchain_of(environment: Environment) -> dict[str, str]:
    """Return compiler versions and settings that hold for all functions of a run."""
    versions = {} if environment.triton_version is None else {"triton": environment.triton_version}
    return {**versions, **environment.compile_knobs}


def has_one_toolchain(base: Environment, head: Environment) -> bool:
    """Whether equal sources mean equal code: compilers, their settings and torch are the same."""
    is_one_torch = base.torch_version == head.torch_version
    return is_one_torch and toolchain_of(base) == toolchain_of(head)


def is_same_machine_code(pairing: Pairing, key: CaseKey) -> bool:
    """Return whether the same machine code of an implementation ran on a GPU on both sides."""
    environment = pairing.head.environment
    # the interpreter and other releases of Triton run something else than this code
    if environment.device_kind == "cpu":
        return False
    if pairing.base.environment.triton_version != environment.triton_version:
        return False
    base, head = pairing.of(key)
    base_code = machine_code(pairing.base.environment, base.code)
    head_code = machine_code(environment, head.code)
    return bool(head_code) and base_code == head_code and None not in head_code.values()


def machine_code(
    environment: Environment, functions: Iterable[StaticFacts]
) -> dict[tuple[str, str], str | None]:
    """Code hash of each compiled function by target and name, None if it failed.

    If the device's target was compiled, only its code counts; otherwise that of all targets.
    """
    codes = {(facts.target, facts.function): facts.code_hash for facts in functions}
    device_target = f"sm_{(environment.compute_capability or '').replace('.', '')}"
    of_device = {key: code for key, code in codes.items() if key[0] == device_target}
    return of_device or codes


# --- matching functions

_Pair = tuple[str, StaticFacts | None, StaticFacts | None]


def _by_subject_and_target(
    facts: Sequence[StaticFacts],
) -> dict[tuple[str, str, str], dict[str, StaticFacts]]:
    grouped: dict[tuple[str, str, str], dict[str, StaticFacts]] = defaultdict(dict)
    for one in facts:
        grouped[one.case_id, one.implementation, one.target][one.function] = one
    return grouped


def _matched(base: Mapping[str, StaticFacts], head: Mapping[str, StaticFacts]) -> list[_Pair]:
    """Pair functions by name and code, then by code (renamed), then by name; a single one left per
    side is renamed.

    If a whole launch failed, its one entry has the name of the implementation and is paired with
    every function.
    """
    old, new = dict(base), dict(head)
    pairs: list[_Pair] = []

    def take(old_name: str, new_name: str) -> None:
        pairs.append((new_name, old.pop(old_name), new.pop(new_name)))

    for name in sorted(old.keys() & new.keys()):
        if old[name].code_hash is not None and old[name].code_hash == new[name].code_hash:
            take(name, name)
    names_by_code = {
        facts.code_hash: name
        for name, facts in sorted(old.items(), reverse=True)
        if _compiles(facts)
    }
    for name in sorted(new):
        old_name = names_by_code.pop(new[name].code_hash, None)
        if old_name is not None:
            take(old_name, name)
    for name in sorted(old.keys() & new.keys()):
        take(name, name)
    if not pairs:
        if (failed := _failed_launch(new)) is not None and any(map(_compiles, old.values())):
            return [(name, facts, failed) for name, facts in sorted(old.items())]
        if (failed := _failed_launch(old)) is not None and any(map(_compiles, new.values())):
            return [(name, failed, facts) for name, facts in sorted(new.items())]
    if len(old) == len(new) == 1:
        take(*old, *new)
    pairs += [(name, None, facts) for name, facts in new.items()]
    pairs += [(name, facts, None) for name, facts in old.items()]
    return sorted(pairs, key=lambda pair: (pair[2] is None, pair[0]))


def _failed_launch(functions: Mapping[str, StaticFacts]) -> StaticFacts | None:
    only = next(iter(functions.values())) if len(functions) == 1 else None
    return (
        only
        if only is not None and not _compiles(only) and only.function == only.implementation
        else None
    )


# --- judging a pair


def _compiles(facts: StaticFacts | None) -> bool:
    return facts is not None and facts.outcome is Outcome.OK


def _judge(
    base: StaticFacts | None, head: StaticFacts | None, *, is_target_compiled: bool, cause: Cause
) -> tuple[Verdict, Reason]:
    if head is None:  # fusing two kernels removes one, which is no loss; losing the whole target is
        if is_target_compiled:
            return Verdict.UNCHANGED, Reason.REMOVED_CASE
        return Verdict.INCONCLUSIVE, Reason.TARGET_LOST
    if not _compiles(head):
        if base is None and head.outcome is Outcome.UNSUPPORTED:
            return Verdict.INCONCLUSIVE, Reason.NEW_CASE
        return Verdict.REGRESSED, Reason.TARGET_LOST if _compiles(base) else Reason.FAILED
    if base is None:
        return Verdict.INCONCLUSIVE, Reason.NEW_CASE
    if not _compiles(base):
        return Verdict.IMPROVED, Reason.FIXED
    verdict, reason = judge_code(code_facts(base), code_facts(head))
    if verdict is Verdict.UNCHANGED and base.code_hash == head.code_hash:
        return verdict, Reason.LAUNCH_CHANGED
    if verdict is Verdict.UNCHANGED and cause is Cause.TOOLCHAIN:
        return verdict, Reason.TOOLCHAIN_CHANGED
    return verdict, reason


def _detail(base: StaticFacts | None, head: StaticFacts | None) -> Remark | None:
    if base is not None and head is not None and _compiles(base) and _compiles(head):
        return explain(base, head)
    failed = next((side for side in (head, base) if side is not None and not _compiles(side)), None)
    return Remark("{}", (failed.message,)) if failed is not None and failed.message else None
