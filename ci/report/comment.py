"""The pull-request comment: a judgement to Markdown. Pure.

Verdict and next step first, then only what changed, the most relevant first; evidence is folded below. Always short
enough to be posted: what does not fit is cut from the end and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.markdown import Section, code, folded, table, table_row
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import background, changes, count_of
from roofwatch.db.values import Verdict

COMMENT_MARKER = "<!-- roofwatch:report -->"
"""First line of every comment: how the one to update is found again."""
MAX_BYTES = 64_000
"""GitHub refuses a comment of more than 65,536 characters; counted in bytes, this holds however it counts, and leaves
room for hidden lines and for what is accepted."""

_MAX_NAMES = 10
_SILENT = frozenset({Reason.CODE_MOVED, Reason.LAUNCH_MOVED, Reason.TOOLCHAIN_MOVED})


def to_markdown(judgement: PullRequestJudgement, *, max_bytes: int = MAX_BYTES, whole_url: str | None = None) -> str:
    """Write the comment; one line below its marker where nothing changed.

    Args:
        judgement: What to tell.
        max_bytes: More of it is cut.
        whole_url: Where all of it can be read, for whoever misses what was cut. It goes into a Markdown link as it is.
    """
    if is_silent(judgement):
        return f"{COMMENT_MARKER}\n{_nothing_changed(judgement)}\n"
    room = _Room(max_bytes, whole_url)
    return _fit([COMMENT_MARKER, *_opening(judgement)], [*changes(judgement), *background(judgement)], room)


def is_silent(judgement: PullRequestJudgement) -> bool:
    """Whether nothing changed, so that one line says it all."""
    return judgement.verdict is Verdict.UNCHANGED and not changes(judgement)


def _nothing_changed(judgement: PullRequestJudgement) -> str:
    compared = sum(case.reason is Reason.WITHIN_THRESHOLD for case in judgement.cases)
    parts = []
    if compared:
        parts.append(f"{count_of(compared, 'timing')} within {_tolerance(judgement)}")
    if judgement.unchanged_by_target:
        parts.append(_machine_code_unchanged(judgement))
    silent = sum(item.reason in _SILENT for item in judgement.static)
    if silent:
        parts.append(f"{count_of(silent, 'compiled kernel')} with other machine code and the same facts")
    untimed = sum(case.reason is Reason.NOT_TIMED for case in judgement.cases)
    if untimed and not compared:
        parts.append(f"{count_of(untimed, 'result')} as accurate as before")
    new = judgement.counts.get("new", 0)
    if new:
        parts.append(f"{new} new and fine, with nothing to compare to yet")
    known = sum(case.reason is Reason.ALREADY_FAILING for case in judgement.cases)
    if known:
        parts.append(f"{known} failing before and after")
    if judgement.skipped:
        parts.append(f"{count_of(len(judgement.skipped), 'kernel')} not measured, which the change cannot touch")
    return f"**roofwatch: nothing changed** ({_commits(judgement)}): {', '.join(parts)}."


def _tolerance(judgement: PullRequestJudgement) -> str:
    floor, change = judgement.noise_floor, f"±{judgement.thresholds.relative_change:.0%}"
    if floor is None or floor.most is None:
        return change
    return f"{change}, or {FLOOR_FACTOR:g} times the runner's noise where that is more (up to ±{floor.most:.1%})"


def _machine_code_unchanged(judgement: PullRequestJudgement) -> str:
    count = sum(judgement.unchanged_by_target.values())
    targets = count_of(len(judgement.unchanged_by_target), "target")
    return f"machine code of {count_of(count, 'compiled kernel')} on {targets} identical"


def _opening(judgement: PullRequestJudgement) -> list[str]:
    title = {
        Verdict.REGRESSED: "regressed",
        Verdict.INCONCLUSIVE: "could not tell",
        Verdict.IMPROVED: "improved",
        Verdict.UNCHANGED: "no regression",
    }[judgement.verdict]
    lines = [
        f"### roofwatch: {title}",
        "",
        f"{tally(judgement)} ({_commits(judgement)}). **Next:** {next_step(judgement)}",
    ]
    loud = [f"- **Not compared:** {refusal.quoted(code)}." for refusal in judgement.refusals]
    removed = [case for case in judgement.cases if case.reason is Reason.REMOVED_CASE]
    if removed:
        names = _names(f"{code(case.case_id)} {code(case.implementation)}" for case in removed)
        loud.append(f"- **Not measured any more:** {names}.")
    lost = sorted({item.target for item in judgement.static if item.reason is Reason.TARGET_LOST})
    if lost:
        loud.append(f"- **Lost target:** {_names(map(code, lost))}.")
    loud += [f"- Note: {note.quoted(code)}." for note in judgement.notes]
    return [*lines, *(["", *loud] if loud else [])]


def tally(judgement: PullRequestJudgement) -> str:
    """How many of each verdict, in a line."""
    cases = Counter("new" if case.reason is Reason.NEW_CASE else case.verdict.value for case in judgement.cases)
    told = ("regressed", "improved", "inconclusive", "unchanged", "new")
    parts = [", ".join(f"{cases[word]} {word}" for word in told if cases[word]) or "no case was compared"]
    static = Counter(
        item.reason.value if item.reason is Reason.ACCEPTED else item.verdict.value
        for item in judgement.static
        if item.reason is not Reason.NEW_CASE
    )
    identical = sum(judgement.unchanged_by_target.values())
    words = (
        *(("regressed", "regressed"), ("improved", "improved"), ("inconclusive", "lost")),
        *(("accepted", "accepted"), ("unchanged", "changed")),
    )
    kernels = [f"{static[verdict]} {word}" for verdict, word in words if static[verdict]]
    if kernels:
        parts.append(f"machine code {', '.join([*kernels, *([f'{identical} identical'] if identical else [])])}")
    beside = Counter(move.verdict for move in judgement.secondary_changes)
    launches = [f"{beside[verdict]} {verdict}" for verdict in (Verdict.REGRESSED, Verdict.IMPROVED) if beside[verdict]]
    if launches:
        parts.append(f"memory and host of a launch {', '.join(launches)}")
    moved = Counter(move.reason for move in judgement.accuracy_changes)
    results = [
        f"{count_of(moved[reason], 'result')} {word}"
        for reason, word in ((Reason.LESS_ACCURATE, "less accurate"), (Reason.MORE_ACCURATE, "more accurate"))
        if moved[reason]
    ]
    if results:
        parts.append(", ".join(results))
    return "; ".join(parts)


def _commits(judgement: PullRequestJudgement) -> str:
    return f"{code(judgement.base.sha[:8])} → {code(judgement.head.sha[:8])}"


def next_step(judgement: PullRequestJudgement) -> str:
    """What to do about it."""
    if judgement.verdict is Verdict.REGRESSED:
        reasons = {case.reason for case in judgement.cases if case.verdict is Verdict.REGRESSED}
        if reasons & {Reason.WRONG_RESULT, Reason.FAILED}:
            return "correct what fails first; a time without a right result means nothing."
        if reasons:
            return (
                "start at the first row; if the slowdown is meant, say so in the pull request (on GitHub: "
                "`/roofwatch accept <reason>`)."
            )
        if not any(item.verdict is Verdict.REGRESSED for item in judgement.static):
            return (
                "see below what a launch takes more of than before; if that is meant, say so in the pull request (on "
                "GitHub: `/roofwatch accept <reason>`)."
            )
        return "see in the tables below what the compiler made of it; if it is meant, accept it in the baseline file."
    if judgement.verdict is Verdict.INCONCLUSIVE:
        if judgement.refusals:
            return "measure base and head in one job, on one runner, with one version of roofwatch."
        reasons = {case.reason for case in judgement.cases if case.verdict is Verdict.INCONCLUSIVE}
        if Reason.NOT_PAIRED in reasons:
            return "measure base and head as a pair, in one job."
        if reasons & {Reason.NOISE, Reason.TOO_FEW_BLOCKS, Reason.MULTIPLICITY}:
            return "measure again with more blocks; nothing shows a regression so far."
        if Reason.THROTTLED in reasons:
            return "measure again once the device is cool and nobody else uses it."
        if Reason.CLOCK_MOVED in reasons:
            return "measure again at one clock, with --lock-clocks where that is permitted."
        return "look at what is missing or not comparable below."
    return "nothing to do."


def _names(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MAX_NAMES} more" if len(every) > _MAX_NAMES else ""
    return ", ".join(every[:_MAX_NAMES]) + more


@dataclass(frozen=True)
class _Room:
    """How much may be said, and where the rest is."""

    max_bytes: int
    whole_url: str | None

    def cut_line(self, count: int) -> str:
        whole = f" [All of them]({self.whole_url})" if self.whole_url else ""
        return f"_{count_of(count, 'more row')} cut to keep this comment short._{whole}"


def _fit(opening: list[str], sections: Sequence[Section], limits: _Room) -> str:
    """Join everything, leaving out rows from the end where it grows too long, and saying how many."""
    lines = list(opening)
    cut_size = _size(["", limits.cut_line(10**9)])
    room = limits.max_bytes - _size(lines) - cut_size
    cut_count = 0
    for section in sections:
        frame = _size(["", *_section_lines(section, ())]) + cut_size
        if frame > room:
            cut_count += len(section.rows)
            continue
        room -= frame
        kept: list[Sequence[str]] = []
        for row in section.rows:
            room -= _size([table_row(row)])
            if room < 0:
                break
            kept.append(row)
        left = len(section.rows) - len(kept)
        room = max(room, 0)
        lines += ["", *_section_lines(section, kept, limits.cut_line(left) if left else None)]
    if cut_count:
        lines += ["", limits.cut_line(cut_count)]
    return "\n".join(lines) + "\n"


def _section_lines(section: Section, rows: Sequence[Sequence[str]], cut_line: str | None = None) -> list[str]:
    body = [*([section.text, ""] if section.text else []), *table(section.columns, rows)]
    if cut_line is not None:
        body += ["", cut_line]
    return folded(section.heading, body) if section.is_folded else [f"#### {section.heading}", "", *body]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
