"""The pull-request comment: a judgement to Markdown. Pure.

Verdict and next step first, then only what changed, the most relevant first; evidence is folded below. Always short
enough to be posted: what does not fit is cut from the end and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.markdown import code, count_of, join_sections, listed
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import background, changes
from roofwatch.db.values import Verdict

COMMENT_MARKER = "<!-- roofwatch:report -->"
"""First line of every comment: how the one to update is found again."""
MAX_BYTES = 64_000
"""GitHub refuses a comment of more than 65,536 characters; counted in bytes, this holds however it counts, and leaves
room for hidden lines and for what is accepted."""

VERDICT_TITLES = {
    Verdict.REGRESSED: "regressed",
    Verdict.INCONCLUSIVE: "could not tell",
    Verdict.IMPROVED: "improved",
    Verdict.UNCHANGED: "no regression",
}
_STATIC_WORDS = {
    Verdict.REGRESSED: "regressed",
    Verdict.INCONCLUSIVE: "lost",
    Verdict.IMPROVED: "improved",
    Verdict.UNCHANGED: "changed",
}
_SILENT = frozenset({Reason.CODE_MOVED, Reason.LAUNCH_MOVED, Reason.TOOLCHAIN_MOVED})


def to_markdown(judgement: PullRequestJudgement, *, max_bytes: int = MAX_BYTES, whole_url: str | None = None) -> str:
    """Write the comment; one line below its marker if nothing changed.

    Args:
        judgement: What to tell.
        max_bytes: More of it is cut.
        whole_url: Where all rows are. It goes into a Markdown link as it is.
    """
    if is_silent(judgement):
        return f"{COMMENT_MARKER}\n{_nothing_changed(judgement)}\n"
    opening = [COMMENT_MARKER, *_opening(judgement)]
    sections = [*changes(judgement), *background(judgement)]
    return join_sections(opening, sections, max_bytes=max_bytes, whole_url=whole_url)


def is_silent(judgement: PullRequestJudgement) -> bool:
    """Whether nothing changed, so that one line says it all."""
    return judgement.verdict is Verdict.UNCHANGED and not changes(judgement)


def _nothing_changed(judgement: PullRequestJudgement) -> str:
    compared = sum(case.reason is Reason.WITHIN_THRESHOLD for case in judgement.cases)
    parts = []
    if compared:
        parts.append(f"{count_of(compared, 'timing')} within {_tolerance(judgement)}")
    if judgement.unchanged_by_target:
        kernels = count_of(sum(judgement.unchanged_by_target.values()), "compiled kernel")
        parts.append(f"machine code of {kernels} on {count_of(len(judgement.unchanged_by_target), 'target')} identical")
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


def _opening(judgement: PullRequestJudgement) -> list[str]:
    removed = [case for case in judgement.cases if case.reason is Reason.REMOVED_CASE]
    lost = sorted({item.target for item in judgement.static if item.reason is Reason.TARGET_LOST})
    remarks = [f"- **Not compared:** {refusal.quoted(code)}." for refusal in judgement.refusals]
    if removed:
        names = listed(f"{code(case.case_id)} {code(case.implementation)}" for case in removed)
        remarks.append(f"- **Not measured any more:** {names}.")
    if lost:
        remarks.append(f"- **Lost target:** {listed(map(code, lost))}.")
    remarks += [f"- Note: {note.quoted(code)}." for note in judgement.notes]
    return [
        f"### roofwatch: {VERDICT_TITLES[judgement.verdict]}",
        "",
        f"{tally(judgement)} ({_commits(judgement)}). **Next:** {next_step(judgement)}",
        *(["", *remarks] if remarks else []),
    ]


def tally(judgement: PullRequestJudgement) -> str:
    """How many of each verdict, in a line."""
    cases = Counter("new" if case.reason is Reason.NEW_CASE else case.verdict.value for case in judgement.cases)
    static = Counter(
        "accepted" if item.reason is Reason.ACCEPTED else _STATIC_WORDS[item.verdict]
        for item in judgement.static
        if item.reason is not Reason.NEW_CASE
    )
    compiled = _counted(static, ("regressed", "improved", "lost", "accepted", "changed"))
    launches = _counted(Counter(str(one.verdict) for one in judgement.secondary_changes), ("regressed", "improved"))
    accuracy = Counter(one.reason for one in judgement.accuracy_changes)
    parts = [_counted(cases, ("regressed", "improved", "inconclusive", "unchanged", "new")) or "no case was compared"]
    if compiled:
        identical = sum(judgement.unchanged_by_target.values())
        parts.append(f"machine code {compiled}{f', {identical} identical' if identical else ''}")
    if launches:
        parts.append(f"memory and host of a launch {launches}")
    results = [
        f"{count_of(accuracy[reason], 'result')} {str(reason).replace('_', ' ')}"
        for reason in (Reason.LESS_ACCURATE, Reason.MORE_ACCURATE)
        if accuracy[reason]
    ]
    return "; ".join([*parts, *([", ".join(results)] if results else [])])


def _counted(counts: Mapping[str, int], words: Iterable[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


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
