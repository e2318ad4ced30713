"""What `roofwatch static audit` runs, and what it prints."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import orjson
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.toolchain_audit import Build, Upgrade
from roofwatch.collector.compile.virtual_environment import (
    VirtualEnvironment,
    check_version,
    environment_with_triton,
)
from roofwatch.collector.errors import CollectorError, ToolchainError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import RunPlan
from roofwatch.terminal import printable, write_text

MARKER = "<!-- The rest is written by roofwatch static audit. -->"
"""What stands above it in a Markdown file stays."""
_MAX_REASON = 600


@dataclass(frozen=True)
class Selection:
    """What to compile, as options of `roofwatch static`."""

    path: Path | None = None
    targets: str | None = None
    kernels: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    compile_timeout_s: float = RunPlan.compile_timeout_s

    def arguments(self) -> list[str]:
        named = [("--targets", self.targets)] if self.targets is not None else []
        named += [("--kernel", pattern) for pattern in self.kernels]
        named += [("--implementation", pattern) for pattern in self.implementations]
        named += [("--tag", tag) for tag in self.tags]
        if self.compile_timeout_s != RunPlan.compile_timeout_s:
            named.append(("--compile-timeout", f"{self.compile_timeout_s:g}"))
        return [*([str(self.path)] if self.path else []), *(word for name, value in named for word in (name, value))]


def audited_versions(asked: Sequence[str]) -> list[str]:
    """The versions in the order of their release; a single one is compared with that of the running environment.

    Raises:
        CollectorError: there is nothing to compare.
    """
    versions = set(asked)
    if len(versions) == 1:
        versions.add(version("triton"))
    if len(versions) == 1:
        raise CollectorError(f"triton {versions.pop()} is the running version: name another one to compare it with")
    return sorted(versions, key=_release_order)


def _release_order(name: str) -> tuple[list[int], str]:
    return [int(number) for number in name.split(".") if number.isdecimal()], name


def build_under_each(
    versions: Sequence[str], selection: Selection, on_progress: OnProgress = lambda _: None
) -> tuple[Build, ...]:
    """Compile a suite under each version of Triton, in an environment of its own.

    Raises:
        ToolchainError: a version cannot be installed, or the suite not be loaded under it.
    """
    step_count = 2 * len(versions)
    environments = []
    for index, name in enumerate(versions):
        on_progress(Progress(index, step_count, f"triton {name}: its environment"))
        environments.append(environment_with_triton(name))
    builds = []
    for index, (name, environment) in enumerate(zip(versions, environments, strict=True)):
        on_progress(Progress(len(versions) + index, step_count, f"triton {name}: compiling"))
        builds.append(_build(name, environment, selection))
    return tuple(builds)


def _build(name: str, environment: VirtualEnvironment, selection: Selection) -> Build:
    command = [str(environment.python), "-P", "-m", "roofwatch", "static", *selection.arguments(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        # its exit status says whether all of it compiled, which the facts say too
        facts = tuple(map(StaticFacts.model_validate, orjson.loads(done.stdout)["static_facts"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError):
        said = " ".join(done.stderr.split()).removeprefix("roofwatch: ")
        raise ToolchainError(
            f"triton {name}: the suite was not compiled: {said[-_MAX_REASON:] or f'exit status {done.returncode}'}"
        ) from None
    for compiled_by in {fact.toolchain["triton"] for fact in facts if "triton" in fact.toolchain}:
        check_version(name, compiled_by)
    return Build(name, environment.versions, facts)


def exit_status(builds: Sequence[Build], upgrades: Sequence[Upgrade]) -> int:
    """1 if an upgrade made something worse, 2 if this machine could not try all or nothing compiled, else 0."""
    if any(upgrade.worse for upgrade in upgrades):
        return 1
    is_known = all(build.is_whole and any(facts.outcome is Outcome.OK for facts in build.facts) for build in builds)
    return 0 if is_known else 2


def repeat_command(versions: Sequence[str], selection: Selection, markdown: Path | None = None) -> str:
    """The command that makes the same audit."""
    named = [word for name in versions for word in ("--triton", name)]
    written = [] if markdown is None else ["--markdown", str(markdown)]
    return shlex.join(["roofwatch", "static", "audit", *selection.arguments(), *named, *written])


def write_report(file: Path, report: str) -> None:
    """Write a report into a Markdown file, below the marker if the file has one.

    Raises:
        OutputError: it cannot be written.
    """
    above, marker, _ = file.read_text().partition(MARKER) if file.is_file() else ("", "", "")
    write_text(file, f"{above}{MARKER}\n\n{report}" if marker else f"# Toolchain audit\n\n{report}")


def upgrade_table(upgrade: Upgrade) -> Table:
    """What one upgrade made worse or better, and where fewer or more warps are resident."""
    table = _table("", "function", "case", "target", "what moved", title=_title(upgrade))
    for word, style, items in (
        ("worse", "bold red", upgrade.worse),
        ("better", "green", upgrade.better),
        ("occupancy", "dim", upgrade.occupancy_moved),
    ):
        for item in items:
            table.add_row(
                Text(word, style=style),
                printable(item.function),
                printable(item.case_id),
                printable(item.target),
                printable(_what(item)),
            )
    return table


def summary_table(upgrades: Sequence[Upgrade]) -> Table:
    """How many functions each upgrade made worse, better or only other, target by target."""
    targets = list(dict.fromkeys(target for upgrade in upgrades for target in upgrade.targets))
    table = _table("upgrade", *targets, title="worse / better / other code / same code")
    for upgrade in upgrades:
        table.add_row(_title(upgrade), *(" / ".join(map(str, upgrade.counts(target).values())) for target in targets))
    return table


def to_json(builds: Sequence[Build], upgrades: Sequence[Upgrade], status: int) -> dict[str, object]:
    """All of it for machines, the facts of every version included."""
    return {
        "builds": [
            {"triton": build.triton, "versions": build.versions | build.compilers, "static_facts": build.facts}
            for build in builds
        ],
        "upgrades": [
            {
                "from": upgrade.base.triton,
                "to": upgrade.head.triton,
                "counts": {target: upgrade.counts(target) for target in upgrade.targets},
                "compile_time_ratio": upgrade.compile_time_ratio,
                "judged": [_judged_json(item) for item in upgrade.comparison.judged],
                "drifts": upgrade.drifts,
            }
            for upgrade in upgrades
        ],
        "exit_code": status,
    }


def _judged_json(item: StaticJudgement) -> dict[str, object]:
    place = item.place
    return {
        "case_id": place.case_id,
        "implementation": place.implementation,
        "function": place.function,
        "target": place.target,
        "verdict": item.verdict,
        "reason": item.reason,
        "detail": _what(item),
    }


def _what(item: StaticJudgement) -> str:
    for side in (item.head, item.base):
        if side is not None and side.message:
            return f"{side.outcome}: {side.message[:300]}"
    return str(item.detail or item.reason)


def _title(upgrade: Upgrade) -> str:
    return f"{upgrade.base.triton} → {upgrade.head.triton}"


def _table(*columns: str, title: str) -> Table:
    table = Table(title=Text(title), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
