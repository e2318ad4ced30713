"""Compiled facts of a history: exact, so neighbouring commits are compared. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from roofwatch.ci.causes.explain import CodeMove
from roofwatch.ci.causes.suspects import Odds, weigh
from roofwatch.ci.history.outcome_changes import in_brackets
from roofwatch.ci.history.trend_finding import Status, TrendFinding, window_of
from roofwatch.ci.static.facts import DECISIVE_FACTS, CodeFacts, facts_in_words, judge_code, judge_facts, moved_facts
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer, metric
from roofwatch.db.values import Cause, ChangePoint, CommitRef, RunSetting, Series, SeriesKey, Suspect, Verdict

_ROOM = "theoretical_occupancy"
"""Decides only where a block no longer fits at all, or fits again."""
_KNOWN_ODDS = 99.0
"""Odds of the one thing that differs where compiling is deterministic."""
_Function = tuple[str, str, str, str, str]
"""Project, case id, implementation, function, target."""


@dataclass
class _Facts:
    """What one commit's compiler made of one function for one target."""

    outcome: Outcome
    code_hash: str | None
    message: str | None
    setting: RunSetting | None
    values: dict[str, float] = field(default_factory=dict)
    keys: dict[str, SeriesKey] = field(default_factory=dict)


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
                    yield TrendFinding(
                        change=change,
                        status=Status.CONFIRMED,
                        suspects=_suspects(before, after),
                        window=window_of(change),
                        reach=window_of(change),
                    )

    def move(self, key: SeriesKey, base: CommitRef, head: CommitRef, verdict: Verdict) -> CodeMove | None:
        """What became of an implementation's machine code between two commits; None where it is not known on both.

        Where the code for the device that was timed is known, that alone counts.
        """
        before, after = self._known(key, base), self._known(key, head)
        own = {facts.setting.compute_capability for facts in after.values() if facts.setting is not None}
        own_targets = {f"sm_{capability.replace('.', '')}" for capability in own if capability}
        both = before.keys() & after.keys()
        timed = {function for function in both if function[4] in own_targets} or both
        targets = {function[4] for function in timed}
        if not targets:
            return None
        hashes = [
            {target: {known[function].code_hash for function in known if function[4] == target} for target in targets}
            for known in (before, after)
        ]
        moved = [function for function in sorted(timed) if before[function].code_hash != after[function].code_hash]
        words = [facts_in_words(before[function].values, after[function].values) for function in moved]
        return CodeMove(
            changed_targets=sum(hashes[0][target] != hashes[1][target] for target in targets),
            known_targets=len(targets),
            facts=max(words, key=len, default=""),
            is_worse=any(_verdict(before[function], after[function]) is verdict for function in moved),
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
        facts = by_commit.get(point.commit)
        if facts is None:
            facts = _Facts(point.outcome, point.code_hash, point.message, point.setting)
            by_commit[point.commit] = facts
        facts.outcome, facts.code_hash = point.outcome, point.code_hash
        facts.message, facts.setting = point.message, point.setting
        facts.keys[series.key.metric] = series.key
        if point.value is not None:
            facts.values[series.key.metric] = point.value


def _verdict(before: _Facts, after: _Facts) -> Verdict:
    return judge_code(CodeFacts(before.values, {}), CodeFacts(after.values, {}))[0]


def _suspects(before: _Facts, after: _Facts) -> tuple[Suspect, ...]:
    there, here = before.setting, after.setting
    if there is not None and here is not None and there.toolchain != here.toolchain:
        old = dict(there.toolchain)
        moved = [
            f"{name} {old.get(name, 'unset')} → {value}" for name, value in here.toolchain if old.get(name) != value
        ]
        sentence = f"{', '.join(moved) or 'a setting was dropped'} between the two compilations"
        return weigh({Cause.TOOLCHAIN: Odds(_KNOWN_ODDS / 10, sentence)})
    return weigh({Cause.CODE: Odds(_KNOWN_ODDS, "one toolchain compiled other machine code from it")})


def _changes(before: _Facts, after: _Facts, previous: CommitRef, commit: CommitRef) -> Iterator[ChangePoint]:
    works = after.outcome is Outcome.OK
    if (before.outcome is Outcome.OK) != works:
        metrics = [name for name in (*DECISIVE_FACTS, *after.keys) if name in after.keys and name in before.keys]
        if not metrics:
            return
        yield ChangePoint(
            series=after.keys[metrics[0]],
            commit=commit,
            previous_commit=previous,
            verdict=Verdict.IMPROVED if works else Verdict.REGRESSED,
            before=before.values.get(metrics[0]) if works is False else None,
            after=after.values.get(metrics[0]) if works else None,
            evidence=f"compiling was {before.outcome}, is {after.outcome}{in_brackets(after.message)}",
        )
        return
    if not works or (before.code_hash is not None and before.code_hash == after.code_hash):
        return
    verdict = _verdict(before, after)
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
