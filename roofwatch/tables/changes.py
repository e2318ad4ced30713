"""Tables of what changed from base to head: times, and what is compiled, checked or counted."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.change_words import claim_text, is_row, part_of, sides_of, text_of
from roofwatch.ci.static.comparison import CodeEvidence
from roofwatch.console.terminal import make_table
from roofwatch.model.metrics import format_ns, metric
from roofwatch.model.verdict import Reason, Verdict
from roofwatch.tables.cells import joined, verdict


def times_table(cases: Iterable[Change[CaseEvidence]]) -> Table:
    """One row per case that changed or is undecided; cases without times that say the same share
    a row.
    """
    # A broken build fails all cases with one message, and without a GPU none is timed.
    same_remark: dict[tuple[Reason, str, str], list[Change[CaseEvidence]]] = {}
    for case in filter(is_row, cases):
        key = (case.reason, case.implementation, case.case_id)
        if case.relative_interval is None:
            key = (case.reason, _remark(case), case.implementation)
        # one message of a broken build stands for all implementations
        if case.reason is Reason.FAILED:
            key = (case.reason, text_of(case), "")
        same_remark.setdefault(key, []).append(case)
    rows: list[tuple[object, ...]] = []
    for case, *others in same_remark.values():
        case_text = case.case_id
        if others:
            case_text += f" and {len(others)} more"
        rows.append(
            (
                case_text,
                case.implementation,
                verdict(case.verdict),
                *_time_cells(case),
                _linked(case.reason),
            )
        )
    columns = (
        "case",
        "implementation",
        "verdict",
        "change",
        "95 % interval",
        "note",
        "base",
        "head",
        "reason",
    )
    return make_table(columns, rows, omit_empty=True)


def _remark(case: Change[CaseEvidence]) -> str:
    sides = sides_of(case)
    # what is true of both sides is in the text
    if len({side.partition(": ")[2] for side in sides}) == 1:
        sides = ()
    return "; ".join((text_of(case), *sides))


def _time_cells(case: Change[CaseEvidence]) -> tuple[str | None, ...]:
    """The change with its interval, what else there is to say, and the times of base and head."""
    interval = case.relative_interval
    # Without both times there are only words.
    if case.base is None or case.head is None or interval is None:
        return None, None, _remark(case), None, None
    low, high = interval
    note = claim_text(case)
    if case.detail is not None:
        note += f"; {case.detail}"
    return (
        f"{case.relative_change:+.1%}",
        f"{low:+.1%} to {high:+.1%}",
        note,
        format_ns(case.base),
        format_ns(case.head),
    )


def changes_table(changes: Iterable[Change[Any]]) -> Table:
    """One row per change, what decides nothing last; the cases and targets of a compiled function
    share a row.
    """
    listed = sorted(filter(is_row, changes), key=lambda change: change.verdict is Verdict.UNCHANGED)
    compiled = [change for change in listed if isinstance(change.evidence, CodeEvidence)]
    others = [change for change in listed if not isinstance(change.evidence, CodeEvidence)]
    # A change on six targets is one row.
    targets: dict[tuple[Verdict, Reason, str, str, str, str], list[str]] = {}
    for change in others:
        text = "; ".join((text_of(change), *sides_of(change)))
        row = (
            change.verdict,
            change.reason,
            change.case_id,
            change.implementation,
            part_of(change),
            text,
        )
        targets.setdefault(row, []).append(change.subject.target)
    rows: list[tuple[object, ...]] = []
    for (word, reason, case_id, implementation, part, text), names in targets.items():
        rows.append(
            (
                verdict(word),
                _linked(reason),
                case_id,
                implementation,
                part,
                joined(names),
                text,
            )
        )
    rows += _function_rows(compiled)
    columns = (
        "verdict",
        "reason",
        "case",
        "implementation",
        "part",
        "targets",
        "change",
    )
    return make_table(columns, rows)


def _linked(reason: Reason) -> Text:
    return Text(reason, style=f"link {reason.url}")


def _function_rows(changes: Iterable[Change[CodeEvidence]]) -> list[tuple[object, ...]]:
    """One row per compiled function and verdict, over all its cases and targets."""
    of_function: dict[tuple[Verdict, Reason, str, str, str], list[Change[CodeEvidence]]] = {}
    for change in changes:
        kernel = change.subject.kernel
        key = change.verdict, change.reason, kernel, change.implementation, part_of(change)
        of_function.setdefault(key, []).append(change)
    rows: list[tuple[object, ...]] = []
    for (word, reason, kernel, implementation, part), group in of_function.items():
        case_ids = list(dict.fromkeys(change.case_id for change in group))
        case_text = case_ids[0]
        if len(case_ids) > 1:
            case_text = f"{kernel}: {len(case_ids)} cases"
        rows.append(
            (
                verdict(word),
                _linked(reason),
                case_text,
                implementation,
                part,
                joined(change.subject.target for change in group),
                _function_text(group),
            )
        )
    return rows


def _function_text(changes: Sequence[Change[CodeEvidence]]) -> str:
    """What changed in a function: of a verdict the first explanation, else the ranges of facts."""
    texts = list(dict.fromkeys(map(text_of, changes)))
    if len(texts) == 1:
        return texts[0]
    # A person acts on the first explanation; the others are in the JSON output.
    if changes[0].verdict is not Verdict.UNCHANGED:
        return f"{texts[0]}; {len(texts) - 1} more like it"
    # Facts that moved without a verdict: how far, over all cases and targets.
    base_values: dict[str, list[float]] = {}
    head_values: dict[str, list[float]] = {}
    for change in changes:
        for name, (base, head) in change.evidence.moved_facts.items():
            base_values.setdefault(name, []).append(base)
            head_values.setdefault(name, []).append(head)
    ranges: list[str] = []
    for name, values in base_values.items():
        base_range = _range_of(name, values)
        head_range = _range_of(name, head_values[name])
        ranges.append(f"{metric(name).title} {base_range} → {head_range}")
    return "; ".join(ranges)


def _range_of(name: str, values: Sequence[float]) -> str:
    """The lowest and the highest value of a metric, as one if they are equal."""
    format_value = metric(name).format
    bounds = [format_value(min(values)), format_value(max(values))]
    return " to ".join(dict.fromkeys(bounds))
