"""What to tell after a run of `roofwatch watch`: each change once, when it is decided. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from roofwatch.ci.history.finding import is_outcome
from roofwatch.ci.history.steps import TIME
from roofwatch.model.agenda import SuspectCase, WatchState
from roofwatch.model.case_key import kernel_of
from roofwatch.model.history import ChangePoint, CommitRef, Regression, RegressionState
from roofwatch.model.verdict import Verdict

UNCONFIRMED_AFTER = timedelta(days=2)
"""Age from which on a suspicion that no pair decided becomes news: two nights."""


class NewsKind(StrEnum):
    REGRESSED = "regressed"
    RECOVERED = "recovered"
    LOCATED = "located"
    """A regression that was told as a range is known to its commit."""
    UNCONFIRMED = "unconfirmed"
    """A suspicion that no runner has confirmed within two nights, or that pairs cannot decide."""


@dataclass(frozen=True, kw_only=True)
class News:
    """One message about a change."""

    kind: NewsKind
    kernels: tuple[str, ...]
    sha: str
    """The commit of the change, or the last of a range."""
    subject: str
    """First line of its message."""
    base_count: int
    head_count: int
    """The commits between which the change lies, by the number of commits before them."""
    text: str

    @property
    def is_alert(self) -> bool:
        return self.kind is NewsKind.REGRESSED

    def is_about(self, earlier_news: "News") -> bool:
        """Whether both are about one change: of a common kernel, in overlapping ranges."""
        do_overlap = (
            self.base_count < earlier_news.head_count and earlier_news.base_count < self.head_count
        )
        return do_overlap and not set(self.kernels).isdisjoint(earlier_news.kernels)


def list_news(
    state: WatchState,
    regressions: Sequence[Regression],
    decided: Iterable[News],
    *,
    now: datetime,
) -> list[News]:
    """List what was decided and not told yet. A change that only one pair shows waits."""
    earlier = list(decided)
    news: list[News] = []
    for candidate in (*_changes(state, regressions), *_unconfirmed(state.suspects, now)):
        if not _is_told(candidate, earlier):
            news.append(candidate)
            earlier.append(candidate)
    return news


def _is_told(candidate: News, earlier: Sequence[News]) -> bool:
    """Whether messages of the same change make this one needless."""
    same_change = [message for message in earlier if message.is_about(candidate)]
    told_kinds = {message.kind for message in same_change}
    was_regression_told = NewsKind.REGRESSED in told_kinds
    if candidate.kind is NewsKind.RECOVERED:
        return not was_regression_told or NewsKind.RECOVERED in told_kinds
    if candidate.kind is NewsKind.LOCATED:
        # only news about a regression that was told as another commit
        told_shas = {message.sha for message in same_change}
        return not was_regression_told or candidate.sha in told_shas
    return candidate.kind in told_kinds


def _changes(state: WatchState, regressions: Sequence[Regression]) -> Iterator[News]:
    """News of open regressions that are confirmed, and do not wait for a second pair."""
    for regression in regressions:
        is_open = regression.state is RegressionState.OPEN
        if regression.verdict is not Verdict.REGRESSED or not is_open:
            continue
        if not regression.is_confirmed or _waits(state, regression):
            continue
        yield _news_of(
            kind=NewsKind.REGRESSED,
            regression=regression,
            text=regression.summary,
        )
        yield _news_of(
            kind=NewsKind.LOCATED,
            regression=regression,
            text=regression.summary,
        )
        if regression.recovered_at is None:
            continue
        # whether that commit recovered it may not be decided yet
        is_doubtful = _is_suspected(
            state=state,
            regression=regression,
            commit=regression.recovered_at,
        )
        if not is_doubtful:
            yield _news_of(
                kind=NewsKind.RECOVERED,
                regression=regression,
                text=regression.ended or "",
            )


def _news_of(
    kind: NewsKind,
    regression: Regression,
    text: str,
) -> News:
    return News(
        kind=kind,
        kernels=tuple(sorted({point.series.kernel for point in regression.change_points})),
        sha=regression.commit.sha,
        subject=regression.commit.subject,
        base_count=regression.base.first_parent_count,
        head_count=regression.commit.first_parent_count,
        text=text,
    )


def _waits(state: WatchState, regression: Regression) -> bool:
    """Whether only one pair shows each of its changes."""
    timed_points = [
        point
        for point in regression.change_points
        if point.series.metric == TIME and not is_outcome(point)
    ]
    if len(timed_points) < len(regression.change_points):
        return False
    return all(_has_suspect(point, state.suspects) for point in timed_points)


def _has_suspect(point: ChangePoint, suspects: Iterable[SuspectCase]) -> bool:
    """Whether a suspicion of the same subject spans the change."""
    subject = point.series.case_key
    return any(
        suspect.subject == subject
        and not suspect.is_given_up
        and suspect.base < point.commit
        and point.previous_commit < suspect.head
        for suspect in suspects
    )


def _is_suspected(
    state: WatchState,
    regression: Regression,
    commit: CommitRef,
) -> bool:
    """Whether what a commit does to the cases of a regression is not decided yet."""
    subjects = {point.series.case_key for point in regression.change_points}
    return any(
        suspect.subject in subjects
        and not suspect.is_given_up
        and suspect.base < commit <= suspect.head
        for suspect in state.suspects
    )


def _unconfirmed(suspects: Iterable[SuspectCase], now: datetime) -> Iterator[News]:
    for suspect in suspects:
        if suspect.since is None:
            is_old = False
        else:
            is_old = now - suspect.since >= UNCONFIRMED_AFTER
        if not (is_old or suspect.is_given_up):
            continue
        case_id, implementation = suspect.subject
        yield News(
            kind=NewsKind.UNCONFIRMED,
            kernels=(kernel_of(case_id),),
            sha=suspect.head.sha,
            subject=suspect.head.subject,
            base_count=suspect.base.first_parent_count,
            head_count=suspect.head.first_parent_count,
            text=f"{case_id} {implementation}: {suspect.evidence}",
        )
