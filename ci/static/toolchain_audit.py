"""Compares the machine code of one suite under several versions of Triton; writes the result as Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.message import Remark
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.markdown import code, folded, table
from roofwatch.ci.static.comparison import StaticComparison, StaticJudgement, compare_static
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

_NOT_FAILURES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
_MACHINE_FAILURES = frozenset({Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})
"""Failures that do not depend on the compiler; such functions are not compared."""
_MAX_MESSAGE = 240
_FOLDED_ABOVE = 25


@dataclass(frozen=True)
class Build:
    """A suite compiled under one version of Triton.

    Args:
        triton: The version.
        versions: Other versions by name.
        facts: All functions.
    """

    triton: str
    versions: dict[str, str]
    facts: tuple[StaticFacts, ...]

    @property
    def compilers(self) -> dict[str, str]:
        """Versions of the compilers by name; several if they differ by target."""
        found = defaultdict(set)
        for facts in self.facts:
            for name, version in facts.toolchain.items():
                found[name].add(version)
        return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}

    @property
    def failed(self) -> tuple[StaticFacts, ...]:
        return tuple(facts for facts in self.facts if facts.outcome not in _NOT_FAILURES)

    @property
    def tried(self) -> tuple[StaticFacts, ...]:
        """All functions except those for which the machine lacked memory or time."""
        return tuple(facts for facts in self.facts if facts.outcome not in _MACHINE_FAILURES)

    @property
    def is_whole(self) -> bool:
        return len(self.tried) == len(self.facts)


@dataclass(frozen=True)
class Upgrade:
    """The change from one build to the next."""

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

    def counts(self, target: str) -> dict[str, int]:
        """Count the functions of a target."""
        items = [item for item in self.comparison.judged if item.target == target]
        verdicts = [item.verdict for item in items]
        return {
            "worse": verdicts.count(Verdict.REGRESSED),
            "better": verdicts.count(Verdict.IMPROVED),
            "other code": sum(item.reason in {Reason.TOOLCHAIN_MOVED, Reason.LAUNCH_MOVED} for item in items),
            "same code": self.comparison.unchanged_by_target.get(target, 0),
        }

    def _judged(self, verdict: Verdict) -> tuple[StaticJudgement, ...]:
        items = [item for item in self.comparison.judged if item.verdict is verdict]
        return tuple(sorted(items, key=lambda item: (item.reason.value, item.place)))


def judge_upgrades(builds: Sequence[Build]) -> tuple[Upgrade, ...]:
    """Compare every build with the one before it."""
    upgrades = []
    for base, head in pairwise(builds):
        compared = compare_static(
            base.tried, head.tried, base_toolchain={"triton": base.triton}, head_toolchain={"triton": head.triton}
        )
        upgrades.append(Upgrade(base, head, compared))
    return tuple(upgrades)


def audit_to_markdown(builds: Sequence[Build], upgrades: Sequence[Upgrade], *, command: str, date: str) -> str:
    """Write the report.

    Args:
        builds: In release order.
        upgrades: Result of `judge_upgrades`.
        command: Command that repeats the audit.
        date: Day of the audit.
    """
    targets = list(dict.fromkeys(target for upgrade in upgrades for target in upgrade.targets))
    counts = [
        [upgrade.title, *(" / ".join(map(str, upgrade.counts(target).values())) for target in targets)]
        for upgrade in upgrades
    ]
    lines = [f"Created on {date} by", "", "```sh", command, "```", "", *_builds(builds), "", "## Summary", ""]
    lines += ["Number of functions: worse / better / other machine code, neither worse nor better / same code.", ""]
    lines += [*table(["upgrade", *map(code, targets)], counts), ""]
    for upgrade in upgrades:
        lines += [f"## {upgrade.title}", ""]
        lines += [*_changes("Worse", upgrade.worse), *_changes("Better", upgrade.better)]
    lines += _failures(builds)
    return "\n".join(lines).rstrip() + "\n"


def _builds(builds: Sequence[Build]) -> Sequence[str]:
    known = [{"triton": build.triton, **build.versions, **build.compilers} for build in builds]
    columns = list(dict.fromkeys(name for versions in known for name in versions))
    rows = []
    for build, versions in zip(builds, known, strict=True):
        compiled = sum(facts.outcome is Outcome.OK for facts in build.facts)
        compile_ns = sum(sum(facts.compile_ns.values()) for facts in build.facts)
        cells = [code(versions[name]) if name in versions else "–" for name in columns]
        time = f"{compile_ns / 1e9:.0f} s" if compile_ns else "–"
        rows.append([*cells, str(compiled), str(len(build.failed)), time])
    return table([*columns, "functions compiled", "failed", "compile time"], rows)


def _changes(heading: str, items: Sequence[StaticJudgement]) -> Iterator[str]:
    if not items:
        yield from (f"**{heading}:** none.", "")
        return
    targets = defaultdict(list)
    for item in items:
        targets[code(item.function), code(item.case_id), _change(item)].append(code(item.target))
    rows = [[function, case_id, " ".join(found), change] for (function, case_id, change), found in targets.items()]
    lines = table(["kernel", "case", "targets", "change"], rows)
    title = f"{heading} ({len(items)})"
    yield from folded(title, lines) if len(rows) > _FOLDED_ABOVE else (f"**{title}**", "", *lines)
    yield ""


def _change(item: StaticJudgement) -> str:
    if item.head is not None and item.head.message:
        return _message(item.head)
    if item.base is not None and item.base.message:
        return f"compiles now; before: {_message(item.base)}"
    return (item.detail or Remark(str(item.reason))).quoted(code)


def _message(facts: StaticFacts) -> str:
    return f"{facts.outcome}: {code(facts.message or '', limit=_MAX_MESSAGE)}"


def _failures(builds: Sequence[Build]) -> Iterator[str]:
    yield from ("## What did not compile", "")
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for build in builds:
        for facts in build.failed:
            function = (code(facts.function), code(facts.case_id), _message(facts))
            found[function].append(f"{build.triton}: {code(facts.target)}")
    if not found:
        yield "Everything compiled for every target that its kernel supports."
        return
    rows = [[name, case_id, "; ".join(where), message] for (name, case_id, message), where in found.items()]
    yield from table(["kernel", "case", "Triton: target", "message"], rows)
