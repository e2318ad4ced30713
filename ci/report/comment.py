"""The pull-request comment: a judgement as Markdown. Pure.

The heading has the number, then comes what changed, one row per kernel, then what to do; evidence
is folded below.
"""

import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from roofwatch.ci.messages import Remark, code, count_of, join_sections, listed
from roofwatch.ci.report.findings import list_findings, reason_words
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import background, changes, groups_of_times, percent
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.model.verdict import Reason, Verdict

MAX_BYTES = 40_000
"""GitHub's limit is 65,536 characters; this leaves space for the hidden state with bounds of an
acceptance.
"""

_MARKS = {
    Verdict.REGRESSED: "❌",
    Verdict.INCONCLUSIVE: "⚪",
    Verdict.IMPROVED: "✅",
    Verdict.UNCHANGED: "✅",
}
_CASE_WORDS = {
    Reason.WRONG_RESULT: "wrong",
    Reason.FAILED: "failing",
    Reason.FIXED: "fixed",
    Reason.ALREADY_FAILING: "still failing",
    Reason.NEW_CASE: "new",
    Reason.REMOVED_CASE: "removed",
    Reason.NOISE: "too noisy",
    Reason.TOO_FEW_BLOCKS: "too noisy",
}
_CODE_WORDS = {
    Verdict.REGRESSED: "worse",
    Verdict.INCONCLUSIVE: "lost",
    Verdict.IMPROVED: "better",
    Verdict.UNCHANGED: "changed",
}
_NOT_SUSPICIOUS = frozenset(
    {
        Reason.NOISE,
        Reason.TOO_FEW_BLOCKS,
        Reason.MULTIPLICITY,
        Reason.THROTTLED,
        Reason.HOST_BOUND,
        Reason.CLOCK_CHANGED,
        Reason.SAME_MACHINE_CODE,
        Reason.NEW_CASE,
    }
)
_CLEAR = frozenset({Reason.BEYOND_THRESHOLD, Reason.WITHIN_THRESHOLD, Reason.NEW_CASE})
"""Reasons that need no explanation."""
_MAX_NAME = 60
_SAFE_IN_A_SHELL = re.compile(r"(?!-)[\w./+-]+", re.ASCII)


@dataclass(frozen=True)
class Links:
    """Pages that a comment links to, if known."""

    run: str | None = None
    """The job that measured."""
    dashboard: str | None = None
    source: str | None = None
    """Folder of the head's files."""


def to_markdown(
    judgement: PullRequestJudgement, *, max_bytes: int = MAX_BYTES, links: Links = Links()
) -> str:
    """Write the comment; one line if nothing changed. What does not fit the size is cut from the
    end and counted.
    """
    found = changes(judgement, links.source)
    title = (
        f"{_MARKS[judgement.verdict]} "
        f"{_capital(headline(judgement).quoted(partial(code, limit=_MAX_NAME)))}"
    )
    if judgement.verdict is Verdict.UNCHANGED and not found:
        return f"**{title}.** {_context(judgement, links)}\n"
    closing = [_context(judgement, links), "", *_next(judgement)]
    sections = [*found, *background(judgement)]
    opening = [f"### {title}", *_remarks(judgement)]
    return join_sections(opening, sections, closing, max_bytes=max_bytes, whole_url=links.run)


def is_silent(judgement: PullRequestJudgement) -> bool:
    """Return whether no comment is needed: nothing changed, or nothing is suspicious in what is
    undecided.
    """
    undecided = {item.reason for item in _items(judgement) if item.verdict is Verdict.INCONCLUSIVE}
    return undecided <= _NOT_SUSPICIOUS and not judgement.refusals and not changes(judgement)


def headline(judgement: PullRequestJudgement) -> Remark:
    """Say in one line what decides, with numbers: for the comment, the check and the terminal."""
    verdict = judgement.verdict
    compared = [case for case in judgement.cases if not case.is_removed]
    total = count_of(len(compared), "benchmark")
    if verdict is Verdict.INCONCLUSIVE:
        return _after_new(judgement, f"no result: {_why_undecided(judgement)}")
    if verdict is Verdict.UNCHANGED:
        word = "no change" if is_silent(judgement) else "no regression"
        if all(case.reason is Reason.NEW_CASE for case in compared):
            return _after_new(judgement, "nothing to compare with")
        return _after_new(judgement, f"{word} in {total}")
    words: tuple[str, ...] = ()
    parts, named = [], list(_decisive(judgement).items())
    if named:
        (first, count), *others = named
        parts.append(
            ", ".join(
                (f"{count} of {total} {first}", *(f"{number} {word}" for word, number in others))
            )
        )
    changed = (
        case for group in groups_of_times(judgement) for case in group if case.verdict is verdict
    )
    largest = next(changed, None)
    if largest is not None and largest.comparison is not None:
        which = "worst" if verdict is Verdict.REGRESSED else "best"
        parts.append(f"{which} {percent(largest.comparison.relative_change)} ({{}})")
        words = (largest.case_id.partition("/")[0],)
    judged_alike = [item for item in judgement.static if item.verdict is verdict]
    analysed = {item.subject for item in judged_alike if item.analysis is not None}
    if analysed:
        parts.append(
            f"offsets or operators of {count_of(len(analysed), 'benchmark')} {_CODE_WORDS[verdict]}"
        )
    if code_items := [item for item in judged_alike if item.analysis is None]:
        functions = count_of(
            len({(item.function, item.implementation) for item in code_items}), "kernel"
        )
        targets = count_of(len({item.target for item in code_items}), "target")
        parts.append(f"machine code of {functions} {_CODE_WORDS[verdict]} on {targets}")
    if launches := {
        (one.case_id, one.implementation)
        for one in judgement.secondary_changes
        if one.verdict is verdict
    }:
        more = "more" if verdict is Verdict.REGRESSED else "less"
        parts.append(f"{more} memory or host time in {count_of(len(launches), 'benchmark')}")
    return Remark(" · ".join(parts), words)


def _after_new(judgement: PullRequestJudgement, words: str) -> Remark:
    """Name new implementations before the words, the fastest against an existing one first."""
    found = judgement.new_implementations
    if not found:
        return Remark(words)
    text = count_of(len(found), "new implementation")
    compared = [(one.rivals[0].comparison.log_ratio, one) for one in found if one.rivals[:1]]
    existing = [item for item in compared if not item[1].rivals[0].is_new]
    if not existing:
        return Remark(f"{text} · {words}")
    best = min(existing, key=lambda item: item[0])[1]
    rival = best.rivals[0]
    change = percent(rival.comparison.relative_change)
    names = (best.kernel, best.implementation, rival.implementation)
    return Remark(f"{text}, {{}} {{}} {change} against {{}} · {words}", names)


def summary_line(judgement: PullRequestJudgement) -> str:
    """Write the headline and the other counts in one line; it may have untrusted text."""
    return "; ".join(filter(None, (str(headline(judgement)), tally(judgement))))


def tally(judgement: PullRequestJudgement) -> str:
    """Count what the headline does not name, in one line; empty if there is nothing else."""
    named = _decisive(judgement)
    cases = Counter(_word(case) for case in judgement.cases)
    code_counts = Counter({"identical": sum(judgement.unchanged_by_target.values())})
    for item in judgement.static:
        if item.reason is not Reason.NEW_CASE and item.analysis is None:
            code_counts[
                "accepted" if item.reason is Reason.ACCEPTED else _CODE_WORDS[item.verdict]
            ] += 1
    accuracy = Counter(reason_words(one.reason) for one in judgement.accuracy_changes)
    counts = [f"{count} {word}" for word, count in cases.items() if word not in named]
    code_parts = [f"{count} {word}" for word, count in code_counts.items() if count]
    parts = [
        ", ".join(counts),
        f"machine code {', '.join(code_parts)}" if code_parts else "",
        ", ".join(
            f"{count_of(count, 'result')} {reason}" for reason, count in sorted(accuracy.items())
        ),
    ]
    return "; ".join(filter(None, parts))


def _items(judgement: PullRequestJudgement) -> list[CaseJudgement | StaticJudgement]:
    return [*judgement.cases, *judgement.static]


def _word(case: CaseJudgement) -> str:
    if case.reason is Reason.BEYOND_THRESHOLD:
        return "slower" if case.verdict is Verdict.REGRESSED else "faster"
    return _CASE_WORDS.get(case.reason, str(case.verdict))


def _decisive(judgement: PullRequestJudgement) -> Counter[str]:
    """Count the cases that make the verdict regressed or improved, by word."""
    deciding = [case for case in judgement.cases if case.verdict is judgement.verdict]
    if judgement.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}:
        return Counter()
    return Counter(
        _word(case)
        for case in sorted(deciding, key=lambda case: case.reason is Reason.BEYOND_THRESHOLD)
    )


def _why_undecided(judgement: PullRequestJudgement) -> str:
    if judgement.refusals:
        return "the records, or their times, are not comparable"
    items = [item for item in _items(judgement) if not _is_removed(item)] or _items(judgement)
    undecided = [
        item
        for item in items
        if item.verdict is Verdict.INCONCLUSIVE and item.reason is not Reason.NEW_CASE
    ]
    reason, count = Counter(item.reason for item in undecided).most_common(1)[0]
    words = reason_words(reason)
    blocks = [
        case.comparison.more_blocks or 0
        for case in judgement.cases
        if case.comparison and case.reason is reason
    ]
    if reason is Reason.NOISE and max(blocks):
        words = f"too noisy, needs about {max(blocks)} more blocks"
    return f"{words} ({count} of {len(items)})"


def _is_removed(item: CaseJudgement | StaticJudgement) -> bool:
    return isinstance(item, CaseJudgement) and item.is_removed


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _remarks(judgement: PullRequestJudgement) -> list[str]:
    lost = sorted({item.target for item in judgement.static if item.reason is Reason.TARGET_LOST})
    remarks = [f"- **Not compared:** {refusal.quoted(code)}." for refusal in judgement.refusals]
    if lost:
        remarks.append(f"- **Lost target:** {listed(map(code, lost))}.")
    remarks += [f"- Note: {note.quoted(code)}." for note in judgement.notes]
    return ["", *remarks] if remarks else []


def _context(judgement: PullRequestJudgement, links: Links) -> str:
    """Write what else was compared, of what, where, and the pages with more."""
    base, head = judgement.base, judgement.head
    parts = [
        f"Base {code(base.sha[:8])}, head {code(head.sha[:8])}, "
        f"{code(judgement.head_environment.runner_class)}"
    ]
    if judgement.noise_floor is not None and judgement.noise_floor.most is not None:
        parts.append(
            f"threshold up to ±{judgement.noise_floor.most:.1%} by the runner's noise floor"
        )
    if judgement.skipped:
        parts.append(f"not affected: {listed(map(code, judgement.skipped))}")
    pages = {"run": links.run}
    if links.dashboard is not None:
        query = urllib.parse.urlencode(
            {"project": judgement.project, "kernel": _worst_kernel(judgement)}
        )
        pages["trend"] = f"{links.dashboard.rstrip('/')}/trends?{query}"
    linked = " · ".join(f"[{name}]({url})" for name, url in pages.items() if url is not None)
    counts = tally(judgement)
    return f"{f'{_capital(counts)}. ' if counts else ''}{', '.join(parts)}. {linked}".rstrip()


def _next(judgement: PullRequestJudgement) -> Iterator[str]:
    """Say what to do, with the command that repeats it, and link the reasons."""
    reasons = {one.reason for one in list_findings(judgement) if one.verdict is judgement.verdict}
    accept = "Intended? A maintainer comments `/roofwatch accept <reason>`."
    if judgement.verdict is Verdict.REGRESSED:
        if reasons & {Reason.WRONG_RESULT, Reason.FAILED}:
            yield "Fix wrong and failing results first; timings of a wrong kernel are not shown."
            yield f"Reproduce: {_command(judgement, 'check')}"
        elif reasons & {Reason.BEYOND_THRESHOLD, Reason.MEMORY_CHANGED, Reason.HOST_CHANGED}:
            yield (
                f"Reproduce: {_command(judgement, 'ab', f'--base {judgement.base.sha[:8]}')} · "
                f"{accept}"
            )
        else:
            command = _command(
                judgement, "static", f'--base {judgement.base.sha[:8]} --accept "<reason>"'
            )
            yield f"Intended? {command}, and commit the file."
    if reasons - _CLEAR:
        yield (
            f"What to do: "
            f"{', '.join(f'[{reason}]({reason.url})' for reason in sorted(reasons - _CLEAR))}."
        )


def _command(judgement: PullRequestJudgement, verb: str, options: str = "") -> str:
    """Write a command that can be copied: a name from a record that a shell could interpret is left
    out.
    """
    suite, kernel = judgement.suite or "", _worst_kernel(judgement)
    path = suite if _SAFE_IN_A_SHELL.fullmatch(suite) else "FILE"
    named = f"-k {kernel}" if _SAFE_IN_A_SHELL.fullmatch(kernel) else ""
    return code(" ".join(filter(None, ("roofwatch", verb, path, options, named))), limit=600)


def _worst_kernel(judgement: PullRequestJudgement) -> str:
    deciding = (one.case_id for one in list_findings(judgement) if one.verdict is judgement.verdict)
    return next(deciding, "").partition("/")[0]
