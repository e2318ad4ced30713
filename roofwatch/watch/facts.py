"""Find the commit of a change that compiling or checking a commit shows, without timing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roofwatch.bisection.commits import CommitRange, newest_commits
from roofwatch.ci.agenda import make_agenda
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.agenda import ChangedRange, Job, JobKind, Subject
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef, Regression
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.records import RECORD_SUFFIX
from roofwatch.watch.branch import Branch
from roofwatch.watch.measuring import JobRunner
from roofwatch.watch.state import KnownHistory, read_history


@dataclass
class FactSearch:
    """A search among the commits of a range, as `roofwatch watch` searches its branch."""

    path: Path | None
    project: str
    subject: Subject
    commits: CommitRange
    plan: RunPlan
    output: Path
    """Folder of the records; those of an interrupted search are not measured again."""
    fork_server: ForkServer
    on_progress: OnProgress
    _skipped: set[str] = field(default_factory=set)

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
            history = read_history(records.values(), commits, records[commits[0].sha].environment)
            job = self._next_job(history, branch)
            if job is None:
                return self._changes(history)
            try:
                records[job.head.sha] = self._measure(job.head, branch)
            except SuiteError:
                self._skipped.add(job.head.sha)

    def _read_records(self) -> dict[str, RunRecord]:
        records = (RunRecord.read(file) for file in self.output.glob(f"*{RECORD_SUFFIX}"))
        return {record.commit.sha: record for record in records}

    def _next_job(self, history: KnownHistory, branch: Branch) -> Job | None:
        ranges = [
            self._with_candidates(changed, history.state.commits, branch)
            for changed in history.state.ranges
            if self.subject in changed.subjects and not changed.is_timed
        ]
        state = replace(
            history.state,
            suspects=(),
            bridges=(),
            ranges=tuple(ranges),
            skipped=frozenset(self._skipped),
        )
        jobs = make_agenda(state, now=utc_now())
        return next((job for job in jobs if job.kind is JobKind.LOCATE), None)

    def _with_candidates(
        self, changed: ChangedRange, commits: Sequence[CommitRef], branch: Branch
    ) -> ChangedRange:
        inside = [commit for commit in commits if changed.base < commit <= changed.head]
        kernel = self.subject[0].split("/")[0]
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
        runner = JobRunner(branch, self.plan, self.project, self.on_progress)
        (record,) = runner.measure(job, {})
        record.write(self.output / f"{commit.sha[:12]}{RECORD_SUFFIX}")
        return record

    def _changes(self, history: KnownHistory) -> tuple[Regression, ...]:
        return tuple(
            regression
            for regression in history.regressions
            if any(
                (point.series.case_id, point.series.implementation) == self.subject
                for point in regression.change_points
            )
        )


def fact_lines(changes: Sequence[Regression]) -> list[str]:
    """Write each change with its commit."""
    if not changes:
        return ["the ends do not differ in compiled code or in correctness"]
    return [
        f"{regression.range_text} {regression.verdict}: {regression.commit.subject} "
        f"({regression.commit.author}): {regression.summary}"
        for regression in changes
    ]
