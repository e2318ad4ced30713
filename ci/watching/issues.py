"""An issue for each regression that a watch has told: opened, kept up to date, closed on recovery.

The messages that were told decide everything, so a run that failed half-way is continued by the
next one.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.messages import code, listed
from roofwatch.ci.watching.news import News, NewsKind

_MAX_TITLE_KERNELS = 3

Owners = Callable[[Sequence[str]], Sequence[str]]
"""Returns the owners of some kernels, such as `@name`."""


@dataclass(frozen=True)
class RegressionIssue:
    """What the issue of one regression should hold."""

    marker: str
    """Its first line, which no reader sees."""
    title: str
    body: str
    assignees: tuple[str, ...]
    comments: tuple[str, ...]
    """What was told later, each with a marker of its own."""
    is_over: bool
    """The old level was reached again."""


def plan_issues(sent_news: Sequence[News], owners: Owners) -> list[RegressionIssue]:
    """Plan an issue for each regression among the messages of a watch, oldest first.

    Messages about suspicions have none: an issue is opened when a pair has confirmed it.
    """
    issues: list[RegressionIssue] = []
    for news in sent_news:
        if news.kind is not NewsKind.REGRESSED:
            continue
        later_news = [
            message
            for message in sent_news
            if message.kind in {NewsKind.LOCATED, NewsKind.RECOVERED} and message.is_about(news)
        ]
        kernel_owners = owners(news.kernels)
        issue = RegressionIssue(
            marker=f"<!-- roofwatch:regression {_key(news)} -->",
            title=_title(news),
            body=_body(news, kernel_owners),
            assignees=tuple(_assignable(kernel_owners)),
            comments=tuple(map(_comment, later_news)),
            is_over=any(message.kind is NewsKind.RECOVERED for message in later_news),
        )
        issues.append(issue)
    return issues


def _key(news: News) -> str:
    """Name a regression; names of kernels are untrusted and may be long."""
    text = "\n".join((news.sha, *news.kernels))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _title(news: News) -> str:
    names = listed(news.kernels, _MAX_TITLE_KERNELS)
    return f"Slower since {news.sha[:8]}: {names}"


def _body(news: News, owners: Sequence[str]) -> str:
    lines = [
        code(news.text, limit=400),
        "",
        f"- Commit: {news.sha} {code(news.subject)}",
        f"- Kernels: {', '.join(map(code, news.kernels))}",
    ]
    range_length = news.head_count - news.base_count
    if range_length > 1:
        lines.append(f"- It is one of {range_length} commits up to this one.")
    if owners:
        lines.append(f"- Owners: {', '.join(owners)}")
    lines += ["", "Confirmed by a paired measurement. This issue is closed when the times recover."]
    return "\n".join(lines)


def _comment(news: News) -> str:
    marker = f"<!-- roofwatch:regression-news {news.kind} {_key(news)} -->"
    if news.kind is NewsKind.RECOVERED:
        text = code(news.text, limit=400)
        return f"{marker}\nRecovered: {text}"
    return f"{marker}\nThe commit is {news.sha} {code(news.subject)}."


def _assignable(owners: Sequence[str]) -> Iterator[str]:
    """Logins among owners; teams and mail addresses cannot be assigned."""
    for owner in owners:
        if owner.startswith("@") and "/" not in owner:
            yield owner.removeprefix("@")
