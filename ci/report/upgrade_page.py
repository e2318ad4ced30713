"""The page about an upgrade of Triton: kernels that get better or worse, or no longer compile."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofwatch.ci.static.comparison import JudgedCode, StaticChange, is_listed, word_of
from roofwatch.model.case_key import kernel_of
from roofwatch.model.grouping import group_by
from roofwatch.model.verdict import Reason, Verdict

_WORSE = frozenset({Verdict.REGRESSED, Verdict.PREDICTED_SLOWER})
_BETTER = frozenset({Verdict.IMPROVED, Verdict.PREDICTED_FASTER})
_COLUMNS = (
    "no longer compiles",
    "worse",
    "better",
    "compiles again",
    "changed",
    "same code",
)
_MAX_ROWS = 200
_MAX_TEXT = 240


class _Row(NamedTuple):
    """What cases, configurations and targets of one function may share."""

    kernel: str
    function: str
    """Without its configuration."""
    verdict: str
    text: str


@dataclass(frozen=True)
class UpgradeStep:
    """One suite under two releases of Triton."""

    suite: str
    base: str
    head: str
    judged: JudgedCode


def to_markdown(
    steps: Sequence[UpgradeStep],
    *,
    command: str,
    date: str,
) -> str:
    """Write the page: a table of counts by target, and what is worse or better."""
    parts = [
        "# Triton upgrade",
        f"Compiled without a GPU on {date} by:",
        f"```sh\n{command}\n```",
        "`predicted slower` and `predicted faster` are estimates of the cycle model.",
    ]
    for step in steps:
        parts += _section(step)
    return "\n\n".join(parts) + "\n"


def _section(step: UpgradeStep) -> list[str]:
    heading = f"## {step.suite}: {step.base} to {step.head}"
    parts = [heading, _counts(step.judged)]
    for title, verdicts in (("Worse", _WORSE), ("Better", _BETTER)):
        all_changes = step.judged.changes
        changes = [change for change in all_changes if change.verdict in verdicts]
        if changes:
            parts += [f"### {title}", _rows(changes)]
    return parts


def _column_of(change: StaticChange) -> str:
    """The first column that fits: whether code compiles comes before how good it is."""
    if change.reason in {Reason.TARGET_LOST, Reason.FAILED}:
        return "no longer compiles"
    if change.reason is Reason.FIXED:
        return "compiles again"
    if change.verdict in _WORSE:
        return "worse"
    if change.verdict in _BETTER:
        return "better"
    return "changed"


def _counts(judged: JudgedCode) -> str:
    """Write a table of the functions of each target by what happened to them."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in judged.changes:
        counts[change.subject.target][_column_of(change)] += 1
    for target, count in judged.unchanged_by_target.items():
        counts[target]["same code"] += count
    lines = [
        f"| target | {' | '.join(_COLUMNS)} |",
        "|---|" + "--:|" * len(_COLUMNS),
    ]
    for target, by_column in sorted(counts.items()):
        cells = [str(by_column[column]) for column in _COLUMNS]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _row_of(change: StaticChange) -> _Row:
    reason = change.detail or change.reason
    return _Row(
        kernel=kernel_of(change.case_id),
        function=change.subject.part.partition("[")[0],
        verdict=word_of(change),
        text=_cell(str(reason)),
    )


def _rows(changes: Sequence[StaticChange]) -> str:
    """One line per kernel, function and text, with the number of its cases and configurations."""
    # identical functions would fill the page
    sharing = group_by(filter(is_listed, changes), _row_of)
    lines = [
        "| kernel | function | verdict | targets | compiled | what changed |",
        "|---|---|---|---|--:|---|",
    ]
    for row, sharing_changes in list(sharing.items())[:_MAX_ROWS]:
        targets = dict.fromkeys(change.subject.target for change in sharing_changes)
        cells = (
            row.kernel,
            row.function,
            row.verdict,
            ", ".join(targets),
            str(len(sharing_changes)),
            row.text,
        )
        lines.append(f"| {' | '.join(cells)} |")
    # a page that lists everything is not read
    if len(sharing) > _MAX_ROWS:
        lines.append(f"\n{len(sharing) - _MAX_ROWS} more.")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """One line without what ends a cell of a table."""
    return " ".join(text.split()).replace("|", "¦")[:_MAX_TEXT]
