"""Changes of outcomes and of compiled facts from one commit to the next. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from roofwatch.ci.causes.explain import CodeObservation, explain_outcome
from roofwatch.ci.causes.odds import Odds, weigh
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.steps import points_by_commit
from roofwatch.ci.messages import plain
from roofwatch.ci.static.facts import (
    DECISIVE_FACTS,
    CodeFacts,
    facts_in_words,
    judge_code,
    judge_facts,
    moved_facts,
)
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import (
    Cause,
    ChangePoint,
    CommitRef,
    Series,
    SeriesKey,
    SeriesPoint,
    Suspect,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Layer, metric
from roofwatch.model.verdict import Status, Verdict

OUTCOME_METRICS = frozenset({"median_ns", "rmse_ratio"})
"""One of each kind of check: all other metrics of it fail together."""

_MACHINE_DEPENDENT = frozenset(
    {Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID}
)
"""Failures that the machine may cause alone: two runs must agree."""
_MAX_MESSAGE = 200
_OCCUPANCY = "theoretical_occupancy"
"""Decides only if a block no longer fits at all, or fits again."""
_CODE_ODDS = 99.0
"""Compiling is deterministic, so what changed is the cause."""
_TOOLCHAIN_ODDS = 9.9
_Function = tuple[str, str]
"""Name and target."""


@dataclass
class _Facts:
    """Compiled facts of one function for one target at one commit."""

    point: SeriesPoint
    """Point of any fact: outcome, code hash, message and setting are the same for all."""
    values: dict[str, float] = field(default_factory=dict)
    """By metric."""
    keys: dict[str, SeriesKey] = field(default_factory=dict)
    """The series of each metric."""

    @property
    def code_hash(self) -> str | None:
        return self.point.code_hash

    @property
    def commit(self) -> CommitRef:
        return self.point.commit

    @property
    def has_compiled(self) -> bool:
        return self.point.outcome is Outcome.OK

    def value_of(self, name: str) -> float | None:
        """A fact; None if the function did not compile, whose facts say nothing."""
        if not self.has_compiled:
            return None
        return self.values.get(name)

    def verdict_on(self, head: "_Facts") -> Verdict:
        """Judge the facts of a later commit against these, without instruction counts."""
        base_facts = CodeFacts(self.values, {})
        head_facts = CodeFacts(head.values, {})
        verdict, *_ = judge_code(base_facts, head_facts)
        return verdict


class CompiledHistory:
    """All compiled facts of a project's history, by function and commit."""

    def __init__(self, series: Iterable[Series]) -> None:
        self._functions: dict[CaseKey, dict[_Function, dict[CommitRef, _Facts]]] = defaultdict(dict)
        for facts_series in series:
            if facts_series.key.definition.layer is Layer.STATIC:
                self._add(facts_series)

    def _add(self, series: Series) -> None:
        """Add the points of one fact to those of its function."""
        key = series.key
        functions = self._functions[key.case_key]
        by_commit = functions.setdefault((key.function, key.target), {})
        # several runs of one commit compile the same code, so the last one counts
        for point in series.points:
            facts = by_commit.setdefault(point.commit, _Facts(point))
            facts.point = point
            facts.keys[key.metric] = key
            if point.value is not None:
                facts.values[key.metric] = point.value

    def findings(self) -> Iterator[TrendFinding]:
        """Find what got worse or better from one commit to the next."""
        for functions in self._functions.values():
            for by_commit in functions.values():
                yield from _findings_of(by_commit)

    def code_change(
        self,
        key: SeriesKey,
        base: CommitRef,
        head: CommitRef,
        verdict: Verdict,
    ) -> CodeObservation | None:
        """Compare an implementation's machine code at two commits; None unless it is known at both.

        Only the code for the timed device counts, if it is known.
        """
        base_functions = self._compiled_at(key, base)
        head_functions = self._compiled_at(key, head)
        timed = _timed_functions(base_functions, head_functions)
        targets = {target for _, target in timed}
        # no function is known on both sides
        if not targets:
            return None
        changed_targets: set[str] = set()
        for function in base_functions.keys() | head_functions.keys():
            _, target = function
            # a function of one side alone is a change too
            if _code_hash(base_functions, function) != _code_hash(head_functions, function):
                changed_targets.add(target)
        descriptions: list[str] = []
        is_worse = False
        for function in timed:
            base_facts = base_functions[function]
            head_facts = head_functions[function]
            if base_facts.code_hash != head_facts.code_hash:
                descriptions.append(facts_in_words(base_facts.values, head_facts.values))
                is_worse |= base_facts.verdict_on(head_facts) is verdict
        return CodeObservation(
            changed_targets=len(changed_targets & targets),
            known_targets=len(targets),
            # the longest one names the most facts
            facts=max(descriptions, key=len, default=""),
            is_worse=is_worse,
        )

    def _compiled_at(self, key: SeriesKey, commit: CommitRef) -> Mapping[_Function, _Facts]:
        """The functions of a case whose code is known at a commit."""
        functions = self._functions.get(key.case_key, {})
        compiled: dict[_Function, _Facts] = {}
        for function, by_commit in functions.items():
            facts = by_commit.get(commit)
            if facts is not None and facts.code_hash is not None:
                compiled[function] = facts
        return compiled


def _timed_functions(
    base: Mapping[_Function, _Facts],
    head: Mapping[_Function, _Facts],
) -> list[_Function]:
    """Functions of both sides for the timed device; of all targets if it is not known."""
    common = sorted(base.keys() & head.keys())
    device_targets = _device_targets(head.values())
    # code for other targets says nothing about the timed device
    timed = [(name, target) for name, target in common if target in device_targets]
    return timed or common


def _code_hash(facts: Mapping[_Function, _Facts], function: _Function) -> str | None:
    """The machine code of a function; None if it is not there."""
    if function not in facts:
        return None
    return facts[function].code_hash


def _device_targets(facts: Iterable[_Facts]) -> set[str]:
    """Targets of the devices that timed the code."""
    targets: set[str] = set()
    for function in facts:
        setting = function.point.setting
        if setting is not None and setting.compute_capability:
            capability = setting.compute_capability.replace(".", "")
            targets.add(f"sm_{capability}")
    return targets


def _findings_of(by_commit: Mapping[CommitRef, _Facts]) -> Iterator[TrendFinding]:
    """Compare each commit of a function with the one before."""
    commits = sorted(by_commit)
    in_order = [by_commit[commit] for commit in commits]
    for base, head in pairwise(in_order):
        for change in _changes(base, head):
            # compiling again would give the same, so nothing needs a second measurement
            yield TrendFinding.at_commit(
                change=change,
                status=Status.CONFIRMED,
                suspects=_suspects(base, head),
            )


def _suspects(base: _Facts, head: _Facts) -> tuple[Suspect, ...]:
    """Blame the toolchain if it is known to differ, else the code."""
    base_setting = base.point.setting
    head_setting = head.point.setting
    blame_of_code = {Cause.CODE: Odds(_CODE_ODDS, "same compiler, different machine code")}
    if base_setting is None or head_setting is None:
        return weigh(blame_of_code)
    if base_setting.toolchain == head_setting.toolchain:
        return weigh(blame_of_code)
    base_versions = dict(base_setting.toolchain)
    changed = [
        f"{name} {base_versions.get(name, 'unset')} → {version}"
        for name, version in head_setting.toolchain
        if base_versions.get(name) != version
    ]
    # a version that only the base names is not in the list
    description = ", ".join(changed) or "a setting was dropped"
    sentence = f"{description} between the two compilations"
    return weigh({Cause.TOOLCHAIN: Odds(_TOOLCHAIN_ODDS, sentence)})


def _changes(base: _Facts, head: _Facts) -> Iterator[ChangePoint]:
    """Compare a function at two commits, one change for each fact that decides."""
    if not base.has_compiled and not head.has_compiled:
        return
    if base.has_compiled and head.has_compiled:
        # equal code needs no look at its facts
        if base.code_hash is not None and base.code_hash == head.code_hash:
            return
        verdict = base.verdict_on(head)
        names = list(_deciding(base.values, head.values, verdict))
        facts = facts_in_words(base.values, head.values)
        evidence = f"machine code changed: {facts}"
    else:
        # compiling began to fail, or works again
        verdict = Verdict.of_change(is_worse=not head.has_compiled)
        # all facts of the function are lost together, so one stands for them
        names = _first_fact(base, head)
        base_outcome = base.point.outcome
        outcomes = f"compiling was {base_outcome}, is {head.point.outcome}"
        message = _in_brackets(head.point.message)
        evidence = f"{outcomes}{message}"
    for name in names:
        yield ChangePoint(
            series=head.keys[name],
            commit=head.commit,
            previous_commit=base.commit,
            verdict=verdict,
            before=base.value_of(name),
            after=head.value_of(name),
            evidence=evidence,
        )


def _first_fact(base: _Facts, head: _Facts) -> list[str]:
    """The most decisive fact that both sides have; empty if they have none in common."""
    for name in (*DECISIVE_FACTS, *head.keys):
        if name in head.keys and name in base.keys:
            return [name]
    return []


def _deciding(
    base: Mapping[str, float],
    head: Mapping[str, float],
    verdict: Verdict,
) -> Iterator[str]:
    """The facts that give the verdict by themselves."""
    # other code of the same worth is no finding
    if verdict is Verdict.UNCHANGED:
        return
    for name in moved_facts(base, head):
        base_value = base[name]
        head_value = head[name]
        if name in DECISIVE_FACTS:
            # each fact by itself: an improvement must not hide behind a regression
            if judge_facts({name: base_value}, {name: head_value}) is verdict:
                yield name
        # an occupancy of 0 cannot be launched at all
        elif name == _OCCUPANCY and 0 in {base_value, head_value}:
            is_worse = metric(name).is_worse(base=base_value, head=head_value)
            if verdict is Verdict.of_change(is_worse=is_worse):
                yield name


# --- outcomes


def outcome_findings(series: Series) -> Iterator[TrendFinding]:
    """Find every change from working to failing and back in a series of one of
    `OUTCOME_METRICS`.
    """
    points = series.points
    # what another tool skipped did not fail
    if series.key.definition.layer is Layer.IMPORTED:
        points = tuple(point for point in points if point.outcome is not Outcome.UNSUPPORTED)
    # by far the most series never fail
    if all(point.outcome is Outcome.OK for point in points):
        return
    by_commit = points_by_commit(points)
    # one end for each commit, however often it was measured
    ends = [(commit, _end_of(runs)) for commit, runs in by_commit.items()]
    for position, (base_end, head_end) in enumerate(pairwise(ends), start=1):
        previous_commit, before = base_end
        commit, after = head_end
        works = after.outcome is Outcome.OK
        worked = before.outcome is Outcome.OK
        # only the change of an outcome is a finding, not each failure
        if works == worked:
            continue
        if works:
            failed = before
            earlier = "it failed at the commit before"
            failing_side = ends[:position][::-1]
        else:
            failed = after
            earlier = "it worked at the commit before"
            failing_side = ends[position:]
        # the run of failing commits that begins or ends here
        failing = takewhile(lambda end: end[1].outcome is not Outcome.OK, failing_side)
        failing_commits = [failing_commit for failing_commit, _ in failing]
        failing_runs = sum(len(by_commit[failing_commit]) for failing_commit in failing_commits)
        status = Status.CONFIRMED
        # once may be the machine's fault
        if failed.outcome in _MACHINE_DEPENDENT and failing_runs < 2:
            status = Status.UNCONFIRMED
        change = ChangePoint(
            series=series.key,
            commit=commit,
            previous_commit=previous_commit,
            verdict=Verdict.of_change(is_worse=not works),
            before=before.value,
            after=after.value,
            evidence=_outcomes_in_words(series.key, before, after),
        )
        suspects = explain_outcome(before, after, earlier)
        yield TrendFinding.at_commit(
            change=change,
            status=status,
            suspects=suspects,
        )


def _end_of(runs: Sequence[SeriesPoint]) -> SeriesPoint:
    """How a commit ended: it works if any of its runs did; else its last run counts."""
    for run in runs:
        if run.outcome is Outcome.OK:
            return run
    return runs[-1]


def _outcomes_in_words(
    key: SeriesKey,
    before: SeriesPoint,
    after: SeriesPoint,
) -> str:
    """Write how a measurement or a check ended on both sides."""
    check = "measurement"
    if key.definition.layer is Layer.ACCURACY:
        check = "accuracy"
    message = _in_brackets(after.message)
    return f"{check} was {before.outcome}, is {after.outcome}{message}"


def _in_brackets(message: str | None) -> str:
    """The message of a failure on one line, shortened."""
    if not message:
        return ""
    return f" ({plain(message, limit=_MAX_MESSAGE)})"
