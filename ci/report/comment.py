"""The pull-request comment: a judgement as Markdown. Pure.

The heading has the number, then comes what changed, one row per kernel, then what to do; evidence
is folded below.
"""

import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from roofwatch.ci.claims.cases import is_removed
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import code, count_of, join_sections, listed
from roofwatch.ci.report.background import background
from roofwatch.ci.report.change_words import counted_changes
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import changes, groups_of_times
from roofwatch.ci.report.titles import CODE_WORDS, decisive, headline, untimed_words, word_of
from roofwatch.ci.static.comparison import CodeEvidence
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MAX_BYTES = 40_000
"""GitHub's limit is 65,536 characters; this leaves space for the hidden state with bounds of an
acceptance.
"""

_MARKS = {
    0: "✅",
    1: "❌",
    2: "⚪",
}
"""By exit status."""
_CLEAR = frozenset({Reason.BEYOND_THRESHOLD, Reason.WITHIN_THRESHOLD, Reason.NEW_CASE})
"""Reasons that need no explanation."""
_MAX_NAME = 60
_MAX_COMMAND = 600
"""Characters."""
# readers copy the command: no name of a record may run anything
_SAFE_IN_A_SHELL = re.compile(r"(?!-)[\w./+-]+", re.ASCII)


@dataclass(frozen=True)
class Links:
    """Pages that a comment links to, if known."""

    run: str | None = None
    """The job that measured."""
    dashboard: str | None = None
    source: str | None = None
    """Folder of the head's files."""
    documentation: str | None = None


def to_markdown(
    judgement: PullRequestJudgement,
    *,
    max_bytes: int = MAX_BYTES,
    links: Links = Links(),
) -> str:
    """Write the comment; one line if nothing changed. What does not fit the size is cut from the
    end and counted.
    """
    open_sections = changes(judgement, links.source)
    sentence = headline(judgement).quoted(partial(code, limit=_MAX_NAME))
    mark = _MARKS[judgement.exit_code]
    title = f"{mark} {_capital(sentence)}"
    context = _context(judgement, links)
    is_unchanged = judgement.verdict is Verdict.UNCHANGED and not open_sections
    # other dependencies deserve a look even where no number changed
    if is_unchanged and judgement.dependencies is None:
        return f"**{title}.** {context}\n"
    return join_sections(
        opening=[f"### {title}", *_explanation(judgement), *_remarks(judgement)],
        sections=[*open_sections, *background(judgement)],
        closing=[context, "", *_next(judgement, links)],
        max_bytes=max_bytes,
        whole_url=links.run,
    )


def summary_line(judgement: PullRequestJudgement) -> str:
    """Write the headline and the other counts in one line; it may have untrusted text."""
    line = str(headline(judgement))
    counts = tally(judgement)
    if counts:
        line += f"; {counts}"
    return line


def verdict_line(judged: PullRequestJudgement) -> str:
    """The overall verdict with the numbers of the pull-request comment."""
    smallest = judged.detectable_change
    if smallest is None:
        power = ""
    else:
        power = f"; detects slowdowns ≥ {smallest:.1%} with 80% power"
    if judged.noise_floor is None:
        floor = ""
    else:
        floor = f". {judged.noise_floor.remark}"
    return f"{judged.verdict}: {summary_line(judged)}{power}{floor}"


def tally(judgement: PullRequestJudgement) -> str:
    """Count what the headline does not name, in one line; empty if there is nothing else."""
    parts = [
        _case_tally(judgement),
        _code_tally(judgement),
        _accuracy_tally(judgement),
    ]
    return "; ".join(filter(None, parts))


def _case_tally(judgement: PullRequestJudgement) -> str:
    named_in_headline = decisive(judgement)
    counts = Counter(map(word_of, judgement.cases))
    # a reader has just read those of the headline
    other_words = [word for word in counts if word not in named_in_headline]
    words = [f"{counts[word]} {word}" for word in other_words]
    return ", ".join(words)


def _accuracy_tally(judgement: PullRequestJudgement) -> str:
    reasons = (change.reason for change in judgement.accuracy_changes)
    counts = Counter(map(reason_words, reasons))
    by_reason = sorted(counts.items())
    words = [f"{count_of(count, 'result')} {reason}" for reason, count in by_reason]
    return ", ".join(words)


def _code_tally(judgement: PullRequestJudgement) -> str:
    """Count functions by what happened to their machine code."""
    counts = Counter({"identical": sum(judgement.unchanged_by_target.values())})
    for change in judgement.static:
        # a new case has nothing to be identical with
        if change.reason is Reason.NEW_CASE or not isinstance(change.evidence, CodeEvidence):
            continue
        word = CODE_WORDS[change.verdict]
        if change.reason is Reason.ACCEPTED:
            word = "accepted"
        counts[word] += 1
    words = [f"{count} {word}" for word, count in counts.items() if count]
    if not words:
        return ""
    return f"machine code {', '.join(words)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _explanation(judgement: PullRequestJudgement) -> list[str]:
    """Say once what makes a time count as changed, and how much was timed."""
    compared = judgement.compared_cases
    timed_count = sum(case.log_interval is not None for case in compared)
    sentences = []
    # only where a reader sees a time that is flagged
    if groups_of_times(judgement):
        sentences.append(
            "A time counts as changed if its whole 95% interval is beyond "
            f"±{THRESHOLDS.relative_change:.0%}."
        )
    # all were timed: the reader need not know how many
    if timed_count < len(compared):
        sentences.append(f"{timed_count} of {len(compared)} timed.")
    if not sentences:
        return []
    return ["", " ".join(sentences)]


def _remarks(judgement: PullRequestJudgement) -> list[str]:
    """Write as a list what the tables cannot show, after an empty line."""
    remarks = [f"- **Not compared:** {refusal.quoted(code)}." for refusal in judgement.refusals]
    lost_targets = {
        change.subject.target for change in judgement.static if change.reason is Reason.TARGET_LOST
    }
    if lost_targets:
        targets = listed(map(code, sorted(lost_targets)))
        remarks.append(f"- **Lost target:** {targets}.")
    notes = list(judgement.notes)
    if judgement.dependencies is not None:
        notes.append(judgement.dependencies)
    remarks.extend(f"- Note: {note.quoted(code)}." for note in notes)
    if not remarks:
        return []
    return ["", *remarks]


def _context(judgement: PullRequestJudgement, links: Links) -> str:
    """Write what else was compared, of what, where, and the pages with more."""
    base = code(judgement.base.sha[:8])
    head = code(judgement.head.sha[:8])
    runner_class = code(judgement.head_environment.runner_class)
    parts = [f"Base {base}, head {head}, {runner_class}"]
    noise_floor = judgement.noise_floor
    if noise_floor is not None and noise_floor.most is not None:
        parts.append(f"threshold up to ±{noise_floor.most:.1%} by the runner's noise floor")
    if judgement.skipped:
        skipped = listed(map(code, judgement.skipped))
        parts.append(f"not affected: {skipped}")
    sentence = f"{', '.join(parts)}."
    counts = tally(judgement)
    if counts:
        sentence = f"{_capital(counts)}. {sentence}"
    urls = _pages(judgement, links)
    pages = [f"[{name}]({url})" for name, url in urls.items()]
    return f"{sentence} {' · '.join(pages)}".rstrip()


def _pages(judgement: PullRequestJudgement, links: Links) -> dict[str, str]:
    """Addresses of pages with more, by name."""
    pages: dict[str, str] = {}
    if links.run is not None:
        pages["run"] = links.run
    # without a service there are no pages
    if links.dashboard is None:
        return pages
    dashboard = links.dashboard.rstrip("/")
    trend_query = urllib.parse.urlencode(
        {
            "project": judgement.project,
            "kernel": _worst_kernel(judgement),
        }
    )
    compare_query = urllib.parse.urlencode(
        {
            "project": judgement.project,
            "base": judgement.base.sha,
            "head": judgement.head.sha,
        }
    )
    pages["trend"] = f"{dashboard}/trends?{trend_query}"
    pages["compare"] = f"{dashboard}/compare?{compare_query}"
    return pages


def _next(judgement: PullRequestJudgement, links: Links) -> Iterator[str]:
    """Say what to do, with the command that repeats it, and link the reasons."""
    reasons = {change.reason for change in _deciding(judgement)}
    if judgement.verdict is Verdict.REGRESSED:
        yield from _after_regression(judgement, reasons)
    elif any(map(is_removed, judgement.cases)):
        yield "Removed on purpose? A maintainer can comment `/roofwatch accept <reason>`."
    if judgement.missing:
        names = ", ".join(judgement.missing)
        yield f"**Required, and missing:** {names} (`[check] requires`)."
    # compiled code changed, and only a GPU can say what that costs
    if untimed_words(judgement):
        command = code(f"/roofwatch run {judgement.head.sha[:8]}")
        yield f"**Next:** time not measured: {command} measures it on a runner with a GPU."
    unclear = reasons - _CLEAR
    # a reason that a reader may not know has a page
    if unclear:
        linked_reasons = [_linked(reason, links) for reason in sorted(unclear)]
        yield f"What to do: {', '.join(linked_reasons)}."


def _after_regression(judgement: PullRequestJudgement, reasons: Set[Reason]) -> Iterator[str]:
    """Say how to repeat a regression, and how to accept it.

    Args:
        judgement: Whose verdict is regressed.
        reasons: Of the changes that decide it.
    """
    base_option = f"--base {judgement.base.sha[:8]}"
    # a wrong result makes every time worthless
    if reasons & {Reason.WRONG_RESULT, Reason.FAILED}:
        yield "Fix wrong and failing results first; timings of a wrong kernel are not shown."
        yield f"Reproduce: {_command(judgement, 'check')}"
    elif reasons & {Reason.BEYOND_THRESHOLD, Reason.MEMORY_CHANGED, Reason.HOST_CHANGED}:
        command = _command(judgement, "ab", base_option)
        accept = "Intended? A maintainer comments `/roofwatch accept <reason>`."
        yield f"Reproduce: {command} · {accept}"
    else:
        # machine code is accepted in a file of the repository, which reviewers see
        command = _command(judgement, "static", f'{base_option} --accept "<reason>"')
        yield f"Intended? {command}, and commit the file."


def _linked(reason: Reason, links: Links) -> str:
    """Link a reason to its explanation, if the address of the documentation is known."""
    if links.documentation is None:
        return code(reason)
    page = f"{links.documentation.rstrip('/')}/how-to/reasons.html"
    return f"[{reason}]({page}#{reason})"


def _command(
    judgement: PullRequestJudgement,
    verb: str,
    options: str = "",
) -> str:
    """Write a command that can be copied: a name from a record that a shell could interpret is left
    out.
    """
    words = ["roofwatch", verb]
    suite = judgement.suite or ""
    if _SAFE_IN_A_SHELL.fullmatch(suite):
        words.append(suite)
    else:
        words.append("FILE")
    if options:
        words.append(options)
    kernel = _worst_kernel(judgement)
    # all kernels are measured without the option, which is safe
    if _SAFE_IN_A_SHELL.fullmatch(kernel):
        words.append(f"-k {kernel}")
    return code(" ".join(words), limit=_MAX_COMMAND)


def _worst_kernel(judgement: PullRequestJudgement) -> str:
    """The kernel of the first deciding change; empty without any."""
    deciding = _deciding(judgement)
    if not deciding:
        return ""
    return deciding[0].subject.kernel


def _deciding(judgement: PullRequestJudgement) -> list[Change[Any]]:
    """The changes that make the verdict what it is, the worst first."""
    counted = counted_changes(judgement)
    return [change for change in counted if change.verdict is judgement.verdict]
