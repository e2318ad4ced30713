"""An audit of toolchains as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from roofwatch.ci.message import Remark
from roofwatch.ci.report.markdown import code, folded, table
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.toolchain import Build, Drift, Upgrade
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.results import StaticFacts

_MAX_MESSAGE = 240
_FOLDED_ABOVE = 25
_HEADINGS = ("kernel", "case", "targets", "what moved")


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
    lines = [
        f"Made on {made_on} by",
        "",
        "```sh",
        command,
        "```",
        "",
        *_builds(builds),
        "",
        "## Summary",
        "",
        *_summary(every),
        "",
        *(line for upgrade in upgrades for line in _upgrade(upgrade)),
        *(_whole_way(whole_way) if whole_way else []),
        *_failures(builds),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _builds(builds: Sequence[Build]) -> Iterator[str]:
    names = list(dict.fromkeys(name for build in builds for name in {**build.versions, **build.compilers}))
    columns = ["triton", *(name for name in names if name != "triton")]
    rows = []
    for build in builds:
        known = {**build.versions, **build.compilers, "triton": build.triton}
        compiled = sum(facts.code_hash is not None for facts in build.facts)
        rows.append(
            [
                *(code(known[name]) if name in known else "–" for name in columns),
                str(compiled),
                str(len(build.failed)),
                f"{build.compile_s:.0f} s" if build.compile_s else "–",
            ]
        )
    return iter(table([*columns, "functions compiled", "failed", "time in the compiler"], rows))


def _summary(upgrades: Sequence[Upgrade]) -> Iterator[str]:
    """Per upgrade and target: worse / better / other machine code / the same."""
    targets = list(dict.fromkeys(target for upgrade in upgrades for target in upgrade.targets))
    yield "Functions that are worse / better / other machine code that is neither / the same machine code."
    yield ""
    yield from table(
        ["upgrade", *map(code, targets)],
        [
            [_title(upgrade), *(" / ".join(map(str, upgrade.counts(target).values())) for target in targets)]
            for upgrade in upgrades
        ],
    )


def _upgrade(upgrade: Upgrade) -> Iterator[str]:
    yield f"## {_title(upgrade)}"
    yield ""
    ratio = upgrade.compile_time_ratio
    if ratio is not None:
        yield f"Time in the compiler, over what both compile and measured once: {ratio - 1:+.0%}."
        yield ""
    yield from _table_of("Worse", upgrade.worse)
    yield from _table_of("Better", upgrade.better)
    yield from _table_of("Occupancy that moved, with nothing that decides", upgrade.occupancy_moved)
    yield from _drifts(upgrade.drifts)


def _whole_way(upgrade: Upgrade) -> Iterator[str]:
    yield f"## The whole way, {_title(upgrade)}"
    yield ""
    yield from _table_of("Worse", upgrade.worse)
    yield from _table_of("Better", upgrade.better)
    yield from _drifts(upgrade.drifts)


def _title(upgrade: Upgrade) -> str:
    return f"{upgrade.base.triton} → {upgrade.head.triton}"


def _table_of(heading: str, items: Sequence[StaticJudgement]) -> Iterator[str]:
    if not items:
        yield f"**{heading}:** none."
        yield ""
        return
    rows = [
        [code(function), code(case_id), " ".join(map(code, targets)), what]
        for (function, case_id, what), targets in _by_targets(
            ((item.function, item.case_id, _what(item)), item.target) for item in items
        ).items()
    ]
    yield from _shown(f"{heading} ({len(items)})", table(_HEADINGS, rows), row_count=len(rows))


def _shown(heading: str, lines: Sequence[str], *, row_count: int) -> Iterator[str]:
    if row_count > _FOLDED_ABOVE:
        yield from folded(heading, lines)
    else:
        yield from (f"**{heading}**", "", *lines)
    yield ""


def _what(item: StaticJudgement) -> str:
    if item.head is not None and item.head.message:
        return _message(item.head)
    if item.base is not None and item.base.message:
        return f"compiles now; before: {_message(item.base)}"
    return (item.detail or Remark(str(item.reason))).quoted(code)


def _message(facts: StaticFacts) -> str:
    return f"{facts.outcome}: {code(facts.message or '', limit=_MAX_MESSAGE)}"


def _by_targets(
    entries: Iterable[tuple[tuple[str, str, str], str]],
) -> dict[tuple[str, str, str], list[str]]:
    """What is said alike of several targets once, with all of them."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for said, target in entries:
        grouped.setdefault(said, []).append(target)
    return grouped


def _drifts(drifts: Sequence[Drift]) -> Iterator[str]:
    """A row for each fact and a column for each target: the mean change, and how many have more and less."""
    if not drifts:
        return
    targets = list(dict.fromkeys(drift.target for drift in drifts))
    by_fact: dict[str, dict[str, Drift]] = {}
    for drift in drifts:
        by_fact.setdefault(drift.fact, {})[drift.target] = drift
    rows = [
        [
            metric(fact).title,
            *(_drift_cell(by_target[target]) if target in by_target else "" for target in targets),
            _furthest(by_target.values()),
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


def _furthest(drifts: Iterable[Drift]) -> str:
    moves = [drift.most for drift in drifts if drift.most is not None]
    if not moves:
        return ""
    furthest = max(moves, key=lambda move: max(move.before, move.after) / min(move.before, move.after))
    before, after = (metric(furthest.fact).format(value) for value in (furthest.before, furthest.after))
    return f"{before} → {after}: {code(furthest.place.function)} on {code(furthest.place.target)}"


def _failures(builds: Sequence[Build]) -> Iterator[str]:
    yield "## What did not compile"
    yield ""
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for build in builds:
        for facts in build.failed:
            said = (facts.function, facts.case_id, _message(facts))
            found.setdefault(said, {}).setdefault(build.triton, []).append(facts.target)
    if not found:
        yield "Everything compiled under every version for every target that its kernel supports."
        return
    if not all(build.is_whole for build in builds):
        yield "What ran out of memory or time did so on the machine that compiled, and is not compared."
        yield ""
    yield from table(
        ["kernel", "case", "Triton: targets", "message"],
        [
            [
                code(function),
                code(case_id),
                "; ".join(f"{triton}: {' '.join(map(code, targets))}" for triton, targets in by_version.items()),
                message,
            ]
            for (function, case_id, message), by_version in found.items()
        ],
    )
