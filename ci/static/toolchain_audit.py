"""One suite compiled under several versions of Triton: what each upgrade does to its machine code, as Markdown too.

An upgrade also moves what decides nothing by itself, registers for example; that is summed up over all functions, since
it shows which way a compiler goes.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.message import Remark
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.markdown import code, folded, table
from roofwatch.ci.static.comparison import Place, StaticComparison, StaticJudgement, compare_static, place_of
from roofwatch.ci.static.facts import FACTS, fact_values
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

_NOT_FAILURES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
_OF_THE_MACHINE = frozenset({Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})
"""Say nothing of a compiler: what was not compiled for such a reason is not compared."""
_MAX_MESSAGE = 240
_FOLDED_ABOVE = 25


@dataclass(frozen=True)
class Build:
    """A suite as one version of Triton compiled it."""

    triton: str
    versions: dict[str, str]
    """Of what else was there, by name."""
    facts: tuple[StaticFacts, ...]

    @property
    def compilers(self) -> dict[str, str]:
        """Versions by name of what compiled the functions; several of one where targets differ in it."""
        found = defaultdict(set)
        for facts in self.facts:
            for name, version in facts.toolchain.items():
                found[name].add(version)
        return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}

    @property
    def failed(self) -> tuple[StaticFacts, ...]:
        """What should have compiled, and did not."""
        return tuple(facts for facts in self.facts if facts.outcome not in _NOT_FAILURES)

    @property
    def tried(self) -> tuple[StaticFacts, ...]:
        """What a compiler answered for."""
        return tuple(facts for facts in self.facts if facts.outcome not in _OF_THE_MACHINE)

    @property
    def is_whole(self) -> bool:
        """Whether the machine could try all of it."""
        return len(self.tried) == len(self.facts)

    @property
    def compile_s(self) -> float:
        """Time that compiling took, as far as it is known."""
        return sum(map(_compile_ns, self.facts)) / 1e9


@dataclass(frozen=True)
class Move:
    """A fact of one function, before and after; neither is zero."""

    place: Place
    before: float
    after: float

    @property
    def factor(self) -> float:
        return max(self.before, self.after) / min(self.before, self.after)


@dataclass(frozen=True)
class Drift:
    """One fact over all functions that both versions compile for a target, whose machine code differs."""

    target: str
    fact: str
    more_count: int
    fewer_count: int
    same_count: int
    mean_ratio: float | None
    """Geometric mean of after / before; None where one is zero."""
    most: Move | None
    """The one by the largest factor."""


@dataclass(frozen=True)
class Upgrade:
    """From one build to another."""

    base: Build
    head: Build
    comparison: StaticComparison

    @property
    def title(self) -> str:
        return f"{self.base.triton} → {self.head.triton}"

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(facts.target for build in (self.base, self.head) for facts in build.facts))

    @property
    def worse(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.REGRESSED)

    @property
    def better(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.IMPROVED)

    @property
    def occupancy_moved(self) -> tuple[StaticJudgement, ...]:
        """Functions of which only the number of warps that can be resident moved; the most lost first."""
        moved = [item for item in self._judged(Verdict.UNCHANGED) if _occupancy_change(item)]
        return tuple(sorted(moved, key=lambda item: (_occupancy_change(item), item.place)))

    def counts(self, target: str) -> dict[str, int]:
        """Functions of a target: `worse`, `better`, `other code` and `same code`."""
        items = [item for item in self.comparison.judged if item.target == target]
        verdicts = [item.verdict for item in items]
        return {
            "worse": verdicts.count(Verdict.REGRESSED),
            "better": verdicts.count(Verdict.IMPROVED),
            "other code": sum(item.reason in {Reason.TOOLCHAIN_MOVED, Reason.LAUNCH_MOVED} for item in items),
            "same code": self.comparison.unchanged_by_target.get(target, 0),
        }

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """Facts that moved at least once, target by target."""
        return tuple(drift for target in self.targets for drift in self._drifts(target))

    @property
    def compile_time_ratio(self) -> float | None:
        """Head / base of the time to compile what both compiled and timed; None where nothing is."""
        base, head = ({place_of(facts): _compile_ns(facts) for facts in side.facts} for side in (self.base, self.head))
        both = [place for place, time_ns in base.items() if time_ns and head.get(place)]
        return sum(head[place] for place in both) / sum(base[place] for place in both) if both else None

    def _judged(self, verdict: Verdict) -> tuple[StaticJudgement, ...]:
        items = [item for item in self.comparison.judged if item.verdict is verdict]
        return tuple(sorted(items, key=lambda item: (item.reason.value, item.place)))

    def _drifts(self, target: str) -> Iterator[Drift]:
        pairs = [
            (item.place, fact_values(item.base), fact_values(item.head))
            for item in self.comparison.judged
            if item.target == target and item.base is not None and item.head is not None
        ]
        for fact in FACTS:
            moves = [Move(place, old[fact], new[fact]) for place, old, new in pairs if fact in old and fact in new]
            if any(move.before != move.after for move in moves):
                yield _drift(target, fact, moves)


def judge_upgrades(builds: Sequence[Build]) -> tuple[Upgrade, ...]:
    """Every build against the one before it."""
    return tuple(_upgrade(base, head) for base, head in pairwise(builds))


def judge_whole_way(builds: Sequence[Build]) -> Upgrade | None:
    """The last build against the first; None where that is a single upgrade, which is judged already."""
    return _upgrade(builds[0], builds[-1]) if len(builds) > 2 else None


def _upgrade(base: Build, head: Build) -> Upgrade:
    comparison = compare_static(
        base.tried, head.tried, base_toolchain={"triton": base.triton}, head_toolchain={"triton": head.triton}
    )
    return Upgrade(base, head, comparison)


def _compile_ns(facts: StaticFacts) -> int:
    return sum(facts.compile_ns.values())


def _occupancy_change(item: StaticJudgement) -> float:
    if item.base is None or item.head is None:
        return 0.0
    before, after = item.base.theoretical_occupancy, item.head.theoretical_occupancy
    return 0.0 if before is None or after is None else after - before


def _drift(target: str, fact: str, moves: Sequence[Move]) -> Drift:
    ratios = [move.after / move.before for move in moves if move.before and move.after]
    moved = [move for move in moves if move.before and move.after and move.before != move.after]
    return Drift(
        target=target,
        fact=fact,
        more_count=sum(move.after > move.before for move in moves),
        fewer_count=sum(move.after < move.before for move in moves),
        same_count=sum(move.after == move.before for move in moves),
        mean_ratio=math.exp(statistics.fmean(map(math.log, ratios))) if len(ratios) == len(moves) else None,
        most=max(moved, key=lambda move: move.factor, default=None),
    )


# --- as Markdown


def audit_to_markdown(
    builds: Sequence[Build], upgrades: Sequence[Upgrade], whole_way: Upgrade | None, *, command: str, made_on: str
) -> str:
    """The report of an audit.

    Args:
        builds: The versions, in the order of their release.
        upgrades: Each against the one before.
        whole_way: The last against the first, if there are more than two.
        command: Repeats the audit.
        made_on: The day.
    """
    every = [*upgrades, *([whole_way] if whole_way else [])]
    lines = [f"Made on {made_on} by", "", "```sh", command, "```", "", *_builds(builds), "", *_summary(every), ""]
    for upgrade in upgrades:
        lines += [f"## {upgrade.title}", ""]
        ratio = upgrade.compile_time_ratio
        if ratio is not None:
            lines += [f"Time in the compiler, over what both compile and measured once: {ratio - 1:+.0%}.", ""]
        lines += [*_table_of("Worse", upgrade.worse), *_table_of("Better", upgrade.better)]
        lines += _table_of("Occupancy that moved, with nothing that decides", upgrade.occupancy_moved)
        lines += _drifts(upgrade.drifts)
    if whole_way:
        lines += [f"## The whole way, {whole_way.title}", ""]
        lines += [*_table_of("Worse", whole_way.worse), *_table_of("Better", whole_way.better)]
        lines += _drifts(whole_way.drifts)
    lines += _failures(builds)
    return "\n".join(lines).rstrip() + "\n"


def _builds(builds: Sequence[Build]) -> Sequence[str]:
    columns = list(dict.fromkeys(["triton", *(name for one in builds for name in {**one.versions, **one.compilers})]))
    rows = []
    for build in builds:
        known = {**build.versions, **build.compilers, "triton": build.triton}
        compiled = sum(facts.code_hash is not None for facts in build.facts)
        time = f"{build.compile_s:.0f} s" if build.compile_s else "–"
        versions = [code(known[name]) if name in known else "–" for name in columns]
        rows.append([*versions, str(compiled), str(len(build.failed)), time])
    return table([*columns, "functions compiled", "failed", "time in the compiler"], rows)


def _summary(upgrades: Sequence[Upgrade]) -> Iterator[str]:
    """Per upgrade and target: worse / better / other machine code / the same."""
    targets = list(dict.fromkeys(target for upgrade in upgrades for target in upgrade.targets))
    yield from ("## Summary", "")
    yield "Functions that are worse / better / other machine code that is neither / the same machine code."
    yield ""
    rows = [
        [upgrade.title, *(" / ".join(map(str, upgrade.counts(target).values())) for target in targets)]
        for upgrade in upgrades
    ]
    yield from table(["upgrade", *map(code, targets)], rows)


def _table_of(heading: str, items: Sequence[StaticJudgement]) -> Iterator[str]:
    if not items:
        yield from (f"**{heading}:** none.", "")
        return
    targets = defaultdict(list)  # what is said alike of several targets is told once
    for item in items:
        targets[code(item.function), code(item.case_id), _what(item)].append(code(item.target))
    rows = [[function, case_id, " ".join(named), what] for (function, case_id, what), named in targets.items()]
    lines = table(["kernel", "case", "targets", "what moved"], rows)
    title = f"{heading} ({len(items)})"
    yield from folded(title, lines) if len(rows) > _FOLDED_ABOVE else (f"**{title}**", "", *lines)
    yield ""


def _what(item: StaticJudgement) -> str:
    if item.head is not None and item.head.message:
        return _message(item.head)
    if item.base is not None and item.base.message:
        return f"compiles now; before: {_message(item.base)}"
    return (item.detail or Remark(str(item.reason))).quoted(code)


def _message(facts: StaticFacts) -> str:
    return f"{facts.outcome}: {code(facts.message or '', limit=_MAX_MESSAGE)}"


def _drifts(drifts: Sequence[Drift]) -> Iterator[str]:
    """A row for each fact and a column for each target: the mean change, and how many have more and less."""
    if not drifts:
        return
    targets = list(dict.fromkeys(drift.target for drift in drifts))
    by_fact: dict[str, dict[str, Drift]] = defaultdict(dict)
    for drift in drifts:
        by_fact[drift.fact][drift.target] = drift
    rows = [
        [
            metric(fact).title,
            *(_drift_cell(by_target[target]) if target in by_target else "" for target in targets),
            _furthest(fact, by_target.values()),
        ]
        for fact, by_target in by_fact.items()
    ]
    yield "**Over all functions with other machine code**: mean change, and how many have ↑ more and ↓ less"
    yield ""
    yield from table(["fact", *map(code, targets), "furthest"], rows)
    yield ""


def _drift_cell(drift: Drift) -> str:
    mean = "" if drift.mean_ratio is None else f"{drift.mean_ratio - 1:+.1%}, "
    return f"{mean}{drift.more_count}↑ {drift.fewer_count}↓"


def _furthest(fact: str, drifts: Iterable[Drift]) -> str:
    moves = [drift.most for drift in drifts if drift.most is not None]
    if not moves:
        return ""
    most = max(moves, key=lambda move: move.factor)
    before, after = (metric(fact).format(value) for value in (most.before, most.after))
    return f"{before} → {after}: {code(most.place.function)} on {code(most.place.target)}"


def _failures(builds: Sequence[Build]) -> Iterator[str]:
    yield from ("## What did not compile", "")
    found: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for build in builds:
        for facts in build.failed:
            place = (code(facts.function), code(facts.case_id), _message(facts))
            found[place][build.triton].append(code(facts.target))
    if not found:
        yield "Everything compiled under every version for every target that its kernel supports."
        return
    if not all(build.is_whole for build in builds):
        yield "What ran out of memory or time did so on the machine that compiled, and is not compared."
        yield ""
    rows = [
        [function, case_id, "; ".join(f"{triton}: {' '.join(named)}" for triton, named in targets.items()), message]
        for (function, case_id, message), targets in found.items()
    ]
    yield from table(["kernel", "case", "Triton: targets", "message"], rows)
