"""The tables of a pull-request comment with evidence beside the code: the autotuner's choices, what was launched,
counters. Pure.
"""

from __future__ import annotations

import math

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.report.markdown import Section, code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import SkipReason
from roofwatch.db.values import Verdict

_MAX_MOVES_OF_A_KERNEL = 6
_MAX_LAUNCH_MOVES = 30
_SKIP_WORDS: dict[str, str] = {
    SkipReason.SAME_SOURCES: "no module that it is made from changed",
    SkipReason.SAME_MACHINE_CODE: "it compiles to the same machine code, and what the host runs for it is the same",
}
_WRITERS = {"_ns": format_ns, "_bytes": format_bytes, "_share": "{:.1%}".format}


def flip_section(judgement: PullRequestJudgement) -> Section:
    """Why a time may have moved though nobody wrote other code; of cases that did not move, a flip is no news."""
    moved = [case for case in judgement.cases if case.flips and case.verdict is not Verdict.UNCHANGED]
    return Section(
        "Autotuning",
        ("case", "implementation", "what ran"),
        [
            (code(case.case_id), code(case.implementation), flip.remark.quoted(code))
            for case in moved
            for flip in case.flips
        ],
    )


def skipped_section(judgement: PullRequestJudgement) -> Section:
    """Which kernels were not measured, and why that is no loss."""
    count = len(judgement.skipped)
    return Section(
        f"{count} kernel{'' if count == 1 else 's'} not measured, which the change cannot touch",
        ("kernel", "why"),
        [
            (code(skipped.kernel), _SKIP_WORDS.get(skipped.reason) or code(skipped.reason))
            for skipped in judgement.skipped
        ],
        is_folded=True,
    )


def limit_section(judgement: PullRequestJudgement) -> Section:
    """What binds the cases that got slower, and what their head shows that their base does not."""
    return Section(
        "What limits what got slower",
        ("case", "implementation", "limit, base → head", "why", "new at the head"),
        [
            (
                code(move.case_id),
                code(move.implementation),
                str(move.head) if move.base is move.head else f"{move.base} → {move.head}",
                move.headline.quoted(code),
                "; ".join(news.quoted(code) for news in move.news),
            )
            for move in judgement.limit_moves
        ],
        is_folded=True,
        text="A reading of the records: evidence, and no verdict.",
    )


def launch_section(judgement: PullRequestJudgement) -> Section:
    """What calls launch that they did not, what takes the most of its call first."""
    return Section(
        "What cases launch otherwise",
        ("case", "implementation", "launched", "share of the call"),
        [
            (code(move.case_id), code(move.implementation), move.remark.quoted(code), f"{move.share:.1%}")
            for move in judgement.launch_moves[:_MAX_LAUNCH_MOVES]
        ],
        is_folded=True,
        text=_beyond(len(judgement.launch_moves) - _MAX_LAUNCH_MOVES),
    )


def _beyond(more: int) -> str:
    said = "By profiles of both sides, taken after all was timed: evidence, and no verdict."
    return f"{said} {more} more are in the judgement." if more > 0 else said


def counter_section(judgement: PullRequestJudgement) -> Section:
    """What moved the most of each kernel that was counted on both sides."""
    shown: dict[tuple[str, str, str, int], int] = {}
    rows = []
    for move in judgement.counter_changes:
        kernel = (move.case_id, move.implementation, move.part, move.launch_index)
        shown[kernel] = shown.get(kernel, 0) + 1
        if shown[kernel] <= _MAX_MOVES_OF_A_KERNEL:
            rows.append(_cells(move))
    return Section(
        "Hardware counters that moved, the most first",
        ("counter", "case", "implementation", "kernel", "base → head", "change"),
        rows,
        is_folded=True,
        text="Counted in runs of their own, with other clocks and caches than were timed: evidence, and no verdict.",
    )


def _cells(move: Change) -> tuple[str, ...]:
    change = "new" if math.isinf(move.relative_change) else f"{move.relative_change:+.1%}"
    return (
        code(move.metric),
        code(move.case_id),
        code(move.implementation),
        code(move.part),
        f"{_written(move.metric, move.base)} → {_written(move.metric, move.head)}",
        change,
    )


def _written(name: str, value: float) -> str:
    write = next((write for suffix, write in _WRITERS.items() if name.endswith(suffix)), "{:.6g}".format)
    return write(value)
