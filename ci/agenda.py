"""The agenda of a runner: which jobs to measure next, the most valuable first. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from roofwatch.ci.messages import count_of
from roofwatch.model.agenda import ChangedRange, Job, JobKind, SuspectCase, WatchState
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import CommitRef

CALIBRATION_DAYS = 30
"""Age from which on a noise floor is measured again."""
MAX_PAIR_JOBS = 3
"""Jobs after which a pair of commits that stays undecided is left alone."""


def make_agenda(state: WatchState, *, now: datetime) -> list[Job]:
    """List the jobs of a runner: by kind in the order of `JobKind`, then by what each is worth."""
    if not state.commits:
        return []
    return [
        *_confirmations(state),
        *_locations(state),
        *_newest(state),
        *_bridges(state),
        *_recoveries(state),
        *_calibrations(state, now),
        *_fills(state),
    ]


# --- changes


def _confirmations(state: WatchState) -> Iterator[Job]:
    """One pair for all suspicions between the same two commits, the clearest first."""
    # of others, more pairs would not decide it either
    open_suspects = [suspect for suspect in state.suspects if not suspect.is_given_up]
    by_commits = group_by(open_suspects, lambda suspect: (suspect.base, suspect.head))
    ranked = sorted(
        by_commits.items(),
        key=lambda item: (-_clearest(item[1]).weight, item[0][1]),
    )
    for (base, head), suspects in ranked:
        clearest = _clearest(suspects)
        case_id, implementation = clearest.subject
        others = ""
        if len(suspects) > 1:
            others = f" and {len(suspects) - 1} more"
        yield _pair_job(
            state=state,
            kind=JobKind.CONFIRM,
            reason=f"{case_id} {implementation}{others}: {clearest.evidence}",
            base=base,
            head=head,
            subjects=frozenset(suspect.subject for suspect in suspects),
        )


def _clearest(suspects: Sequence[SuspectCase]) -> SuspectCase:
    return max(suspects, key=lambda suspect: suspect.weight)


def _locations(state: WatchState) -> Iterator[Job]:
    """For each confirmed change, the commit that halves the range in which it lies."""
    for changed in state.ranges:
        inside = [
            commit
            for commit in state.commits
            if changed.base < commit <= changed.head and commit.sha not in state.skipped
        ]
        candidates = [
            commit
            for commit in inside
            if changed.candidates is None or commit.sha in changed.candidates
        ]
        # with one commit left in the range, it is found
        if len(inside) < 2 or not candidates:
            continue
        job = _location(
            state,
            changed,
            inside,
            candidates,
        )
        if job is not None:
            yield job


def _location(
    state: WatchState,
    changed: ChangedRange,
    inside: Sequence[CommitRef],
    candidates: Sequence[CommitRef],
) -> Job | None:
    reason = (
        f"a confirmed change lies in {len(candidates)} of {len(inside)} commits, "
        f"{changed.base.short_sha} to {changed.head.short_sha}"
    )
    base = changed.base
    head = candidates[(len(candidates) - 1) // 2]
    if len(candidates) == 1:
        # the only commit that can be the cause, against the commit before it
        reason = f"only {head.short_sha} changed the sources of a confirmed change"
        # the newest measured commit before it leaves the shortest range
        before_head = (commit for commit in inside if commit < head)
        base = max(before_head, default=changed.base)
    if not changed.is_timed:
        ends = (changed.base, changed.head)
        unchecked = [commit for commit in (head, base) if commit not in ends]
        if not unchecked:
            return None
        return Job(
            kind=JobKind.LOCATE,
            reason=reason,
            seconds=state.seconds_of_case * len(changed.subjects),
            head=unchecked[0],
            subjects=changed.subjects,
            is_timed=False,
        )
    is_known = (base, head) == (changed.base, changed.head)
    job_count = state.paired.get((base.sha, head.sha), 0)
    # pairs that did not decide so far will not
    if is_known or job_count >= MAX_PAIR_JOBS:
        return None
    return _pair_job(
        state=state,
        kind=JobKind.LOCATE,
        reason=reason,
        base=base,
        head=head,
        subjects=changed.subjects,
    )


def _recoveries(state: WatchState) -> Iterator[Job]:
    """Open regressions whose kernel changed after them, against the commit of the regression."""
    for regression in state.regressions:
        head = regression.changed_again_at
        # a pair of the same two commits has answered already
        if head is None or (regression.commit.sha, head.sha) in state.paired:
            continue
        reason = f"{regression.kernel} changed again at {head.short_sha}"
        yield _pair_job(
            state=state,
            kind=JobKind.RECOVER,
            reason=reason,
            base=regression.commit,
            head=head,
            subjects=regression.subjects,
        )


# --- coverage


def _newest(state: WatchState) -> Iterator[Job]:
    """Measure the newest commit of the branch, if it is new."""
    newest = state.commits[-1]
    # a commit that cannot be built or measured is not tried again
    if newest.sha in state.measured or newest.sha in state.skipped:
        return
    base = _last_measured(state)
    if base is None:
        reason = "the first run of this runner class"
    else:
        reason = f"the newest commit; {base.short_sha} is the last measured one"
    yield Job(
        kind=JobKind.NEW,
        reason=reason,
        seconds=state.seconds_of_run,
        head=newest,
        base=base,
    )


def _bridges(state: WatchState) -> Iterator[Job]:
    """Measure the last commit before a change of the environment in the new one too."""
    newest_first = sorted(
        state.bridges,
        key=lambda bridge: bridge.commit,
        reverse=True,
    )
    for bridge in newest_first:
        differences = ", ".join(bridge.differences)
        yield Job(
            kind=JobKind.BRIDGE,
            reason=f"{differences}: the last commit before it, in the new environment",
            seconds=state.seconds_of_case * len(bridge.subjects),
            head=bridge.commit,
            subjects=bridge.subjects,
        )


def _calibrations(state: WatchState, now: datetime) -> Iterator[Job]:
    """The last measured commit against itself, for cases whose noise floor is missing or old."""
    last = _last_measured(state)
    # a range is measured for its commits, not to watch the machine
    if last is None or state.is_range:
        return
    missing = state.timed_at.keys() - state.calibrated_at.keys()
    oldest = now - timedelta(days=CALIBRATION_DAYS)
    aged = {
        subject
        for subject in state.timed_at.keys() & state.calibrated_at.keys()
        if state.calibrated_at[subject] < oldest
    }
    if not missing and not aged:
        return
    # one job takes no longer than a run, so that the budget of a runner holds
    count = max(1, int(state.seconds_of_run / state.seconds_of_case))
    # what was never calibrated comes before what is old
    by_urgency = [*sorted(missing), *sorted(aged)]
    chosen = by_urgency[:count]
    reasons: list[str] = []
    if missing:
        cases = count_of(len(missing), "case")
        reasons.append(f"the noise floor of {cases} is unknown")
    if aged:
        cases = count_of(len(aged), "case")
        reasons.append(f"that of {cases} is over {CALIBRATION_DAYS} days old")
    yield _pair_job(
        state=state,
        kind=JobKind.CALIBRATE,
        reason="; ".join(reasons),
        base=last,
        head=last,
        subjects=frozenset(chosen),
    )


def _fills(state: WatchState) -> Iterator[Job]:
    """The middle of the longest range of unmeasured commits, against the last measured one before
    it.
    """
    measured_places = [
        index for index, commit in enumerate(state.commits) if commit.sha in state.measured
    ]
    if not measured_places:
        return
    first = 0
    if not state.is_range:
        first = measured_places[0]
    # the newest commit is the job `new`
    older_commits = state.commits[first:-1]
    candidates = [commit for commit in older_commits if commit.sha not in state.skipped]
    gaps: list[list[CommitRef]] = []
    for is_measured, commits in groupby(
        candidates,
        key=lambda commit: commit.sha in state.measured,
    ):
        if not is_measured:
            gaps.append(list(commits))
    if not gaps:
        return
    longest = max(gaps, key=lambda gap: (len(gap), gap[-1]))
    before = [
        commit for commit in candidates if commit.sha in state.measured and commit < longest[0]
    ]
    noun = "commit" if len(longest) == 1 else "commits"
    yield Job(
        kind=JobKind.FILL,
        reason=f"the longest gap: {len(longest)} unmeasured {noun}",
        seconds=state.seconds_of_run,
        head=longest[len(longest) // 2],
        base=max(before, default=None),
    )


def _last_measured(state: WatchState) -> CommitRef | None:
    measured = [ref for ref in state.commits if ref.sha in state.measured]
    if not measured:
        return None
    return measured[-1]


def _pair_job(
    state: WatchState,
    kind: JobKind,
    reason: str,
    base: CommitRef,
    head: CommitRef,
    subjects: frozenset[CaseKey],
) -> Job:
    return Job(
        kind=kind,
        reason=reason,
        seconds=state.seconds_of_case * max(1, len(subjects)),
        head=head,
        base=base,
        subjects=subjects,
    )
