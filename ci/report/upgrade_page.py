"""The page about an upgrade of Triton: kernels that get better or worse, or no longer compile."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.static.comparison import JudgedCode, StaticChange, is_listed, word_of
from roofwatch.model.verdict import Reason, Verdict

_WORSE = frozenset({Verdict.REGRESSED, Verdict.PREDICTED_SLOWER})
_BETTER = frozenset({Verdict.IMPROVED, Verdict.PREDICTED_FASTER})
_COLUMNS = ("no longer compiles", "worse", "better", "compiles again", "changed", "same code")
_MAX_ROWS = 200
_MAX_TEXT = 240


@dataclass(frozen=True)
class UpgradeStep:
    """One suite under two releases of Triton."""

    suite: str
    base: str
    head: str
    judged: JudgedCode


def to_markdown(steps: Sequence[UpgradeStep], *, command: str, date: str) -> str:
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
    parts = [f"## {step.suite}: {step.base} to {step.head}", _counts(step.judged)]
    for title, verdicts in (("Worse", _WORSE), ("Better", _BETTER)):
        changes = [change for change in step.judged.changes if change.verdict in verdicts]
        if changes:
            parts += [f"### {title}", _rows(changes)]
    return parts


def _column_of(change: StaticChange) -> str:
    is_worse, is_better = change.verdict in _WORSE, change.verdict in _BETTER
    if change.reason in {Reason.TARGET_LOST, Reason.FAILED}:
        return "no longer compiles"
    if change.reason is Reason.FIXED:
        return "compiles again"
    if is_worse or is_better:
        return "worse" if is_worse else "better"
    return "changed"


def _counts(judged: JudgedCode) -> str:
    counts: dict[str, Counter[str]] = {}
    for change in judged.changes:
        counts.setdefault(change.subject.target, Counter())[_column_of(change)] += 1
    for target, count in judged.unchanged_by_target.items():
        counts.setdefault(target, Counter())["same code"] += count
    lines = [
        f"| target | {' | '.join(_COLUMNS)} |",
        "|---|" + "--:|" * len(_COLUMNS),
    ]
    for target, by_column in sorted(counts.items()):
        cells = [str(by_column[column]) for column in _COLUMNS]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(changes: Sequence[StaticChange]) -> str:
    """One line per function and text; the targets share it."""
    targets: dict[tuple[str, str, str, str], list[str]] = {}
    # identical functions would fill the page
    for change in filter(is_listed, changes):
        text = str(change.reason) if change.detail is None else str(change.detail)
        row = (change.case_id, change.subject.part, word_of(change), _cell(text))
        targets.setdefault(row, []).append(change.subject.target)
    lines = ["| case | function | verdict | targets | what changed |", "|---|---|---|---|---|"]
    for (case_id, function, word, text), names in list(targets.items())[:_MAX_ROWS]:
        cells = (case_id, function, word, ", ".join(names), text)
        lines.append(f"| {' | '.join(cells)} |")
    # a page that lists everything is not read
    if len(targets) > _MAX_ROWS:
        lines.append(f"\n{len(targets) - _MAX_ROWS} more.")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """One line without what ends a cell of a table."""
    return " ".join(text.split()).replace("|", "¦")[:_MAX_TEXT]
