"""The pull-request comment: a judgement as Markdown. Pure.

Verdict and next step first, then only what changed, the most relevant first; evidence is folded below.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from roofwatch.ci.report.findings import list_findings, reason_words
from roofwatch.ci.report.markdown import code, count_of, join_sections, listed
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import background, changes
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import Verdict

MAX_BYTES = 40_000
"""GitHub's limit is 65,536 characters; this leaves space for the hidden state with bounds of an acceptance."""

VERDICT_TITLES = {
    Verdict.REGRESSED: "regressed",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.IMPROVED: "improved",
    Verdict.UNCHANGED: "no regression",
}
_STATIC_WORDS = {
    Verdict.REGRESSED: "regressed",
    Verdict.INCONCLUSIVE: "lost",
    Verdict.IMPROVED: "improved",
    Verdict.UNCHANGED: "changed",
}
_MORE_BLOCKS = "measure again with more blocks; nothing shows a regression so far."
_ADVICE = {
    Reason.NOT_PAIRED: "measure base and head as a pair, in one job.",
    Reason.NOISE: _MORE_BLOCKS,
    Reason.TOO_FEW_BLOCKS: _MORE_BLOCKS,
    Reason.MULTIPLICITY: _MORE_BLOCKS,
    Reason.THROTTLED: "measure again when the device is cool and idle.",
    Reason.CLOCK_CHANGED: "measure again at a fixed clock: --lock-clocks, if permitted.",
}
"""For inconclusive results, the most important first."""
_INTENDED = "if it is intended, say so in the pull request (on GitHub: `/roofwatch accept <reason>`)."


def to_markdown(judgement: PullRequestJudgement, *, max_bytes: int = MAX_BYTES, whole_url: str | None = None) -> str:
    """Write the comment; one line if nothing changed.

    Args:
        judgement: The result.
        max_bytes: Size limit; what does not fit is cut from the end and counted.
        whole_url: Page with all rows, for a Markdown link.
    """
    if is_silent(judgement):
        return f"{_nothing_changed(judgement)}\n"
    sections = [*changes(judgement), *background(judgement)]
    return join_sections(_opening(judgement), sections, max_bytes=max_bytes, whole_url=whole_url)


def is_silent(judgement: PullRequestJudgement) -> bool:
    """Return whether nothing changed, so one line is enough."""
    return judgement.verdict is Verdict.UNCHANGED and not changes(judgement)


def _nothing_changed(judgement: PullRequestJudgement) -> str:
    parts = [tally(judgement), f"threshold ±{judgement.thresholds.relative_change:.0%}"]
    if judgement.noise_floor is not None and judgement.noise_floor.most is not None:
        parts.append(f"up to ±{judgement.noise_floor.most:.1%} by the runner's noise floor")
    if judgement.skipped:
        parts.append(f"{count_of(len(judgement.skipped), 'kernel')} not affected and not measured")
    return f"**roofwatch: nothing changed** ({_commits(judgement)}): {'; '.join(parts)}."


def _opening(judgement: PullRequestJudgement) -> list[str]:
    removed = [case for case in judgement.cases if case.reason is Reason.REMOVED_CASE]
    lost = sorted({item.target for item in judgement.static if item.reason is Reason.TARGET_LOST})
    remarks = [f"- **Not compared:** {refusal.quoted(code)}." for refusal in judgement.refusals]
    if removed:
        names = listed(f"{code(case.case_id)} {code(case.implementation)}" for case in removed)
        remarks.append(f"- **No longer measured:** {names}.")
    if lost:
        remarks.append(f"- **Lost target:** {listed(map(code, lost))}.")
    remarks += [f"- Note: {note.quoted(code)}." for note in judgement.notes]
    return [
        f"### roofwatch: {VERDICT_TITLES[judgement.verdict]}",
        "",
        f"{tally(judgement)} ({_commits(judgement)}). **Next:** {next_step(judgement)}{_explained(judgement)}",
        *(["", *remarks] if remarks else []),
    ]


def _explained(judgement: PullRequestJudgement) -> str:
    """Link the documentation of each reason of a verdict other than unchanged."""
    found = list_findings(judgement)
    reasons = sorted({finding.reason for finding in found if finding.verdict is not Verdict.UNCHANGED})
    return " Reasons: " + ", ".join(f"[{reason}]({reason.url})" for reason in reasons) + "." if reasons else ""


def tally(judgement: PullRequestJudgement) -> str:
    """Count each verdict, in one line."""
    cases = Counter("new" if case.reason is Reason.NEW_CASE else str(case.verdict) for case in judgement.cases)
    static = Counter({"identical": sum(judgement.unchanged_by_target.values())})
    for item in judgement.static:
        if item.reason is not Reason.NEW_CASE:
            static["accepted" if item.reason is Reason.ACCEPTED else _STATIC_WORDS[item.verdict]] += 1
    launches = Counter(str(one.verdict) for one in judgement.secondary_changes)
    accuracy = Counter(reason_words(one.reason) for one in judgement.accuracy_changes)
    parts = [
        _counted(cases, ("regressed", "improved", "inconclusive", "unchanged", "new")) or "no case was compared",
        _counted(static, ("regressed", "improved", "lost", "accepted", "changed", "identical"), "machine code "),
        _counted(launches, ("regressed", "improved"), "memory and host of a launch "),
        ", ".join(f"{count_of(count, 'result')} {reason}" for reason, count in sorted(accuracy.items())),
    ]
    return "; ".join(filter(None, parts))


def _counted(counts: Mapping[str, int], words: Iterable[str], heading: str = "") -> str:
    text = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
    return text and heading + text


def _commits(judgement: PullRequestJudgement) -> str:
    return f"{code(judgement.base.sha[:8])} → {code(judgement.head.sha[:8])}"


def next_step(judgement: PullRequestJudgement) -> str:
    """Recommend what to do."""
    reasons = {case.reason for case in judgement.cases if case.verdict is judgement.verdict}
    if judgement.verdict is Verdict.REGRESSED:
        if reasons & {Reason.WRONG_RESULT, Reason.FAILED}:
            return "fix the failures first."
        if reasons:
            return f"start at the first row; {_INTENDED}"
        if any(item.verdict is Verdict.REGRESSED for item in judgement.static):
            return "see the compiled code below; if it is intended, accept it in the baseline file."
        return f"see the memory and host time of launches below; {_INTENDED}"
    if judgement.verdict is Verdict.INCONCLUSIVE:
        if judgement.refusals:
            return "measure base and head in one job, on one runner, with one version of roofwatch."
        found = (advice for reason, advice in _ADVICE.items() if reason in reasons)
        return next(found, "see below what is missing or not comparable.")
    return "nothing to do."
