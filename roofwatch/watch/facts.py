"""Find the commit of a change that compiling or checking a commit shows, without timing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from roofwatch.bisection.commits import CommitRange, newest_commits
from roofwatch.ci.agenda import make_agenda
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.agenda import ChangedRange, Job, JobKind
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef, Regression
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.model.triage import (
    Answer,
    BisectionCommit,
    BisectionProgress,
    BisectionRange,
    BisectionResult,
    BisectionState,
    BisectionStep,
    CommitStatus,
)
from roofwatch.reporting.records import RECORD_SUFFIX
from roofwatch.watch.branch import Branch
from roofwatch.watch.measuring import JobRunner
from roofwatch.watch.state import KnownHistory, read_history


@dataclass
class FactSearch:
    """A search among the commits of a range, as `roofwatch watch` searches its branch."""

    path: Path | None
    project: str
    subject: CaseKey
    commits: CommitRange
    plan: RunPlan
    output: Path
    """Folder of the records; those of an interrupted search are not measured again."""
    fork_server: ForkServer
    on_progress: OnProgress = lambda _: None
    on_step: Callable[[BisectionProgress], None] = lambda _: None
    """Called after each commit."""
    _skipped: dict[str, str] = field(default_factory=dict)
    """Why commits cannot be measured."""
    _steps: list[BisectionStep] = field(default_factory=list)

    def run(self) -> tuple[Regression, ...]:
        """Compile and check both ends, then the commits that halve what is left.

        Returns:
            The changes of the case, each with its commit or the range that is left.

        Raises:
            SuiteError: an end cannot be loaded, or has nothing to measure.
            CollectorError: the machine cannot be measured.
        """
        records = self._read_records()
        first = newest_commits(self.path, self.commits.good_sha, 1)
        commits = (*first, *self.commits.commits)
        branch = Branch(
            path=self.path,
            name=commits[-1].sha,
            commit_range=f"{self.commits.good_sha}..{commits[-1].sha}",
            fork_server=self.fork_server,
        )
        for end in (commits[0], commits[-1]):
            if end.sha not in records:
                records[end.sha] = self._measure(end, branch)
        while True:
            environment = records[commits[0].sha].environment
            history = read_history(records.values(), commits, environment)
            ranges = self._ranges(history, branch)
            job = self._next_job(history, ranges)
            self.on_step(self._progress(ranges, records))
            if job is None:
                return self._changes(history)
            try:
                records[job.head.sha] = self._measure(job.head, branch)
            # The search goes on with the neighbours of a commit that does not build.
            except SuiteError as error:
                self._skipped[job.head.sha] = str(error)
            self._note_step(job.head)

    def _read_records(self) -> dict[str, RunRecord]:
        records = (RunRecord.read(file) for file in self.output.glob(f"*{RECORD_SUFFIX}"))
        return {record.commit.sha: record for record in records}

    def _ranges(self, history: KnownHistory, branch: Branch) -> list[ChangedRange]:
        """The changes of the case that are not timed, with the commits that may be the cause."""
        # A change of times needs pairs, which another search measures.
        own_ranges = [
            changed
            for changed in history.state.ranges
            if self.subject in changed.subjects and not changed.is_timed
        ]
        commits = history.state.commits
        return [self._with_candidates(changed, commits, branch) for changed in own_ranges]

    def _next_job(self, history: KnownHistory, ranges: Sequence[ChangedRange]) -> Job | None:
        # Of the plan of a branch, only the search for this change.
        state = replace(
            history.state,
            suspects=(),
            bridges=(),
            ranges=tuple(ranges),
            skipped=frozenset(self._skipped),
        )
        jobs = make_agenda(state, now=utc_now())
        return next((job for job in jobs if job.kind is JobKind.LOCATE), None)

    def _note_step(self, commit: CommitRef) -> None:
        step = BisectionStep(
            sha=commit.sha,
            pair_count=0,
            relative_change=None,
            probability=0.0,
            note=self._skipped.get(commit.sha, "compiled and checked"),
            finished_at=utc_now(),
        )
        self._steps.append(step)

    def _progress(
        self,
        ranges: Sequence[ChangedRange],
        records: Mapping[str, RunRecord],
    ) -> BisectionProgress:
        """What is known of each commit: those that may be the cause are equally likely."""
        causes: set[str] = set()
        same: set[str] = set()
        for changed in ranges:
            inside = {
                commit.sha
                for commit in self.commits.commits
                if changed.base < commit <= changed.head
            }
            # Without candidates, any commit may be the cause.
            candidates = inside
            if changed.candidates is not None:
                candidates = set(changed.candidates)
            causes |= candidates
            same |= inside - candidates
        commits: list[BisectionCommit] = []
        for commit in self.commits.commits:
            status = CommitStatus.OPEN
            reason = ""
            if commit.sha in self._skipped:
                status = CommitStatus.SKIPPED
                reason = self._skipped[commit.sha]
            elif commit.sha in records:
                status = CommitStatus.MEASURED
                reason = "compiled and checked"
            elif commit.sha in same - causes:
                status = CommitStatus.SAME
                reason = "same sources as the commit before"
            probability = 0.0
            if commit.sha in causes:
                probability = 1 / len(causes)
            searched = BisectionCommit(
                commit=commit,
                probability=probability,
                status=status,
                reason=reason,
            )
            commits.append(searched)
        return BisectionProgress(
            commits=tuple(commits),
            steps=tuple(self._steps),
            is_weighed=bool(causes),
        )

    def _with_candidates(
        self,
        changed: ChangedRange,
        commits: Sequence[CommitRef],
        branch: Branch,
    ) -> ChangedRange:
        inside = [commit for commit in commits if changed.base < commit <= changed.head]
        kernel = kernel_of(self.subject[0])
        candidates = branch.candidates(changed.base, inside, [kernel])
        return replace(changed, candidates=candidates or None)

    def _measure(self, commit: CommitRef, branch: Branch) -> RunRecord:
        job = Job(
            kind=JobKind.LOCATE,
            reason="",
            seconds=0.0,
            head=commit,
            subjects=frozenset({self.subject}),
            is_timed=False,
        )
        runner = JobRunner(
            branch=branch,
            plan=self.plan,
            project=self.project,
            on_progress=self.on_progress,
        )
        (record,) = runner.measure(job, {})
        record.write(self.output / f"{commit.sha[:12]}{RECORD_SUFFIX}")
        return record

    def _changes(self, history: KnownHistory) -> tuple[Regression, ...]:
        changes: list[Regression] = []
        for regression in history.regressions:
            keys = [point.series for point in regression.change_points]
            subjects = {key.case_key for key in keys}
            if self.subject in subjects:
                changes.append(regression)
        return tuple(changes)


def fact_lines(changes: Sequence[Regression]) -> list[str]:
    """Write each change with its commit."""
    if not changes:
        return ["the ends do not differ in compiled code or in correctness"]
    return [
        f"{regression.range_text} {regression.verdict}: {regression.commit.subject} "
        f"({regression.commit.author}): {regression.summary}"
        for regression in changes
    ]


def result_of_search(changes: Sequence[Regression], progress: BisectionProgress) -> BisectionResult:
    """Describe how a search ended, as a bisection of times does."""
    notes = tuple(fact_lines(changes))
    if not changes:
        return BisectionResult(BisectionState.NO_CHANGE, progress, notes=notes)
    # A later change may hide an earlier one, so the newest is the answer.
    newest = max(changes, key=lambda change: change.commit)
    state = BisectionState.FOUND
    first = newest.commit
    if newest.is_range:
        commits = [searched.commit for searched in progress.commits]
        inside = [commit for commit in commits if newest.base < commit <= newest.commit]
        state = BisectionState.NARROWED
        first = inside[0]
    answer = Answer(first=first, last=newest.commit, confidence=1.0)
    return BisectionResult(
        state=state,
        progress=progress,
        answer=answer,
        notes=notes,
    )


def search_and_store(
    search: FactSearch,
    url: str | None,
    regression_id: UUID,
) -> tuple[Regression, ...]:
    """Run a search, and store its progress and its result; without a URL nothing is stored.

    Raises:
        CollectorError: it cannot be done; the message says why.
        StoreError: the database is not reachable, or another runner works on it.
    """
    if url is None:
        return search.run()
    from roofwatch.bisection.stored import begin

    commit_range = BisectionRange(
        project=search.project,
        case_id=search.subject[0],
        implementation=search.subject[1],
        good_sha=search.commits.good_sha,
        bad_sha=search.commits.shas[-1],
    )
    stored = begin(
        url=url,
        commit_range=commit_range,
        output=search.output,
        regression_id=regression_id,
    )
    last_progress = BisectionProgress()

    def on_step(progress: BisectionProgress) -> None:
        nonlocal last_progress
        last_progress = progress
        stored.update(BisectionResult(BisectionState.RUNNING, progress))

    try:
        changes = replace(search, on_step=on_step).run()
    except Exception as error:
        stored.update(BisectionResult(BisectionState.FAILED, notes=(str(error),)))
        raise
    stored.update(result_of_search(changes, last_progress))
    return changes
