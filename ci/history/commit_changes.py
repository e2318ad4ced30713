"""What changed from one commit to the next and needs no test: outcomes, and facts of compiled code. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from roofwatch.ci.causes.explain import CodeChange, explain_outcome
from roofwatch.ci.causes.suspects import Odds, weigh
from roofwatch.ci.history.finding import Status, TrendFinding
from roofwatch.ci.static.facts import DECISIVE_FACTS, CodeFacts, facts_in_words, judge_code, judge_facts, moved_facts
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer, metric
from roofwatch.db.values import (
    Cause,
    ChangePoint,
    CommitRef,
    Series,
    SeriesKey,
    SeriesPoint,
    Suspect,
    Verdict,
)

OUTCOME_METRICS = frozenset({"median_ns", "rmse_ratio"})
"""One of each kind of check: all other metrics of it fail together."""

_MACHINE_DEPENDENT = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.INVALID})
"""Failures that the machine can cause alone: believed when two runs agree."""
_MAX_MESSAGE = 200
_ROOM = "theoretical_occupancy"
"""Decides only where a block no longer fits at all, or fits again."""
_KNOWN_ODDS = 99.0
"""Odds of the one thing that differs where compiling is deterministic."""
_Function = tuple[str, str, str, str, str]
"""Project, case id, implementation, function, target."""


@dataclass
class _Facts:
    """What one commit's compiler made of one function for one target."""

    point: SeriesPoint
    """Of any of its facts: outcome, code hash, message and setting are the same for all."""
    values: dict[str, float] = field(default_factory=dict)
    keys: dict[str, SeriesKey] = field(default_factory=dict)

    @property
    def code_hash(self) -> str | None:
        return self.point.code_hash

    def verdict_on(self, after: _Facts) -> Verdict:
        return judge_code(CodeFacts(self.values, {}), CodeFacts(after.values, {}))[0]


class CompiledHistory:
    """All compiled facts of a history, by function and commit."""

    def __init__(self, series: Iterable[Series]) -> None:
        collected: dict[_Function, dict[CommitRef, _Facts]] = defaultdict(dict)
        for one in series:
            key = one.key
            if key.definition.layer is Layer.STATIC:
                by_commit = collected[key.project, key.case_id, key.implementation, key.function, key.target]
                _add(by_commit, one)
        self._functions = {function: dict(sorted(by_commit.items())) for function, by_commit in collected.items()}
        self._targets: dict[tuple[str, str, str], list[_Function]] = defaultdict(list)
        for function in self._functions:
            self._targets[function[:3]].append(function)

    def findings(self) -> Iterator[TrendFinding]:
        """What got worse or better from one commit to the next."""
        for by_commit in self._functions.values():
            for (previous, before), (commit, after) in pairwise(by_commit.items()):
                for change in _changes(before, after, previous, commit):
                    yield TrendFinding.at_commit(change, Status.CONFIRMED, _suspects(before, after))

    def code_change(self, key: SeriesKey, base: CommitRef, head: CommitRef, verdict: Verdict) -> CodeChange | None:
        """What became of an implementation's machine code between two commits; None where it is not known on both.

        Where the code for the device that was timed is known, that alone counts.
        """
        before, after = self._known(key, base), self._known(key, head)
        own = {facts.point.setting.compute_capability for facts in after.values() if facts.point.setting is not None}
        own_targets = {f"sm_{capability.replace('.', '')}" for capability in own if capability}
        both = before.keys() & after.keys()
        timed = {function for function in both if function[4] in own_targets} or both
        targets = {function[4] for function in timed}
        if not targets:
            return None
        changed = {
            function[4]
            for function in {*before, *after}
            if function[4] in targets and _hash_of(before, function) != _hash_of(after, function)
        }
        moved = [function for function in sorted(timed) if before[function].code_hash != after[function].code_hash]
        words = [facts_in_words(before[function].values, after[function].values) for function in moved]
        return CodeChange(
            changed_targets=len(changed),
            known_targets=len(targets),
            facts=max(words, key=len, default=""),
            is_worse=any(before[function].verdict_on(after[function]) is verdict for function in moved),
        )

    def _known(self, key: SeriesKey, commit: CommitRef) -> Mapping[_Function, _Facts]:
        return {
            function: facts
            for function in self._targets.get((key.project, key.case_id, key.implementation), ())
            if (facts := self._functions[function].get(commit)) is not None and facts.code_hash is not None
        }


def _add(by_commit: dict[CommitRef, _Facts], series: Series) -> None:
    for point in series.points:
        # several runs of one commit compile the same code: the last one counts
        facts = by_commit.setdefault(point.commit, _Facts(point))
        facts.point = point
        facts.keys[series.key.metric] = series.key
        if point.value is not None:
            facts.values[series.key.metric] = point.value


def _hash_of(known: Mapping[_Function, _Facts], function: _Function) -> str | None:
    return known[function].code_hash if function in known else None


def _suspects(before: _Facts, after: _Facts) -> tuple[Suspect, ...]:
    there, here = before.point.setting, after.point.setting
    if there is not None and here is not None and there.toolchain != here.toolchain:
        old = dict(there.toolchain)
        moved = [
            f"{name} {old.get(name, 'unset')} → {value}" for name, value in here.toolchain if old.get(name) != value
        ]
        sentence = f"{', '.join(moved) or 'a setting was dropped'} between the two compilations"
        return weigh({Cause.TOOLCHAIN: Odds(_KNOWN_ODDS / 10, sentence)})
    return weigh({Cause.CODE: Odds(_KNOWN_ODDS, "one toolchain compiled other machine code from it")})


def _changes(before: _Facts, after: _Facts, previous: CommitRef, commit: CommitRef) -> Iterator[ChangePoint]:
    outcome, message = after.point.outcome, after.point.message
    works = outcome is Outcome.OK
    if (before.point.outcome is Outcome.OK) != works:
        name = next((name for name in (*DECISIVE_FACTS, *after.keys) if name in after.keys and name in before.keys), "")
        if name:
            yield ChangePoint(
                series=after.keys[name],
                commit=commit,
                previous_commit=previous,
                verdict=Verdict.IMPROVED if works else Verdict.REGRESSED,
                before=None if works else before.values.get(name),
                after=after.values.get(name) if works else None,
                evidence=f"compiling was {before.point.outcome}, is {outcome}{_in_brackets(message)}",
            )
        return
    if not works or (before.code_hash is not None and before.code_hash == after.code_hash):
        return
    verdict = before.verdict_on(after)
    for name in _deciding(before.values, after.values, verdict):
        yield ChangePoint(
            series=after.keys[name],
            commit=commit,
            previous_commit=previous,
            verdict=verdict,
            before=before.values[name],
            after=after.values[name],
            evidence=f"machine code changed: {facts_in_words(before.values, after.values)}",
        )


def _deciding(before: Mapping[str, float], after: Mapping[str, float], verdict: Verdict) -> Iterator[str]:
    """The facts that decide by themselves, and the way the verdict says."""
    if verdict is Verdict.UNCHANGED:
        return
    for name in moved_facts(before, after):
        if name in DECISIVE_FACTS:
            if judge_facts({name: before[name]}, {name: after[name]}) is verdict:
                yield name
        elif name == _ROOM and 0 in (before[name], after[name]):
            is_worse = metric(name).is_worse(base=before[name], head=after[name])
            if is_worse is (verdict is Verdict.REGRESSED):
                yield name


# --- outcomes


def outcome_findings(series: Series) -> Iterator[TrendFinding]:
    """Every change from working to failing and back in a series of one of `OUTCOME_METRICS`."""
    if all(point.outcome is Outcome.OK for point in series.points):
        return
    what = "accuracy" if series.key.definition.layer is Layer.ACCURACY else "measurement"
    by_commit = points_by_commit(series.points)
    # a commit works if any of its runs did; else the last one says how it ended
    ends = [
        (commit, next((point for point in points if point.outcome is Outcome.OK), points[-1]))
        for commit, points in by_commit.items()
    ]
    for position, ((previous, before), (commit, after)) in enumerate(pairwise(ends), start=1):
        if (before.outcome is Outcome.OK) == (after.outcome is Outcome.OK):
            continue
        is_broken = after.outcome is not Outcome.OK
        # the run of failing commits that this change begins or ends
        spell = takewhile(
            lambda end: end[1].outcome is not Outcome.OK, ends[position:] if is_broken else reversed(ends[:position])
        )
        failing_runs = sum(len(by_commit[other]) for other, _ in spell)
        outcome = (after if is_broken else before).outcome
        change = ChangePoint(
            series=series.key,
            commit=commit,
            previous_commit=previous,
            verdict=Verdict.REGRESSED if is_broken else Verdict.IMPROVED,
            before=before.value,
            after=after.value,
            evidence=f"{what} was {before.outcome}, is {after.outcome}{_in_brackets(after.message)}",
        )
        is_sure = outcome not in _MACHINE_DEPENDENT or failing_runs >= 2
        suspects = explain_outcome([before], [after], f"it {'worked' if is_broken else 'failed'} at the commit before")
        yield TrendFinding.at_commit(change, Status.CONFIRMED if is_sure else Status.UNCONFIRMED, suspects)


def points_by_commit(points: Iterable[SeriesPoint]) -> dict[CommitRef, list[SeriesPoint]]:
    """Points of each commit, commits in the order of the branch."""
    grouped: dict[CommitRef, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        grouped[point.commit].append(point)
    return dict(sorted(grouped.items()))


def _in_brackets(message: str | None) -> str:
    """What a failure said, on one line and short enough for a sentence."""
    if not message:
        return ""
    line = " ".join(message.split())
    return f" ({line[:_MAX_MESSAGE]}…)" if len(line) > _MAX_MESSAGE else f" ({line})"
