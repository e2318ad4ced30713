"""Measure what the agenda of a branch says, one job after another."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roofwatch.bisection.commits import describe_machine
from roofwatch.ci.agenda import make_agenda
from roofwatch.ci.watching.news import News, list_news
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.configuration.settings import load_settings
from roofwatch.measurement.turns import measuring_alone
from roofwatch.model.agenda import ChangedRange, Job, JobKind, PlannedJob
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef
from roofwatch.model.metrics import TIME
from roofwatch.model.queue import RequestedPair
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.reporting.records import RECORD_SUFFIX
from roofwatch.watch.branch import Branch
from roofwatch.watch.ledger import Ledger
from roofwatch.watch.measuring import JobRunner
from roofwatch.watch.pairs import PairRequests
from roofwatch.watch.service import Service
from roofwatch.watch.state import KnownHistory, read_history

_REPEATED = frozenset({JobKind.CONFIRM, JobKind.LOCATE})
"""Jobs that an undecided pair may need more than once."""


@dataclass(frozen=True)
class Done:
    """A job that was measured, carried or could not be measured."""

    job: Job
    seconds: float
    files: tuple[str, ...] = ()
    note: str = ""
    """Why nothing was measured."""


@dataclass
class Watch:
    """The jobs of one suite on this machine, planned from a folder of records.

    With a server in the settings, records are exchanged with it and jobs are leased from it.
    """

    branch: Branch
    project: str
    plan: RunPlan
    records: Path
    fork_server: ForkServer
    on_progress: OnProgress = lambda _: None
    kinds: frozenset[JobKind] = frozenset(JobKind)
    """Kinds of jobs that are done."""
    pairs: tuple[RequestedPair, ...] = ()
    """Commits of the branch that are measured as pairs before anything else."""
    _known_records: dict[Path, RunRecord] = field(default_factory=dict)
    _unmeasurable: set[str] = field(default_factory=set)
    """Commits that cannot be measured, or have nothing to measure."""
    _finished: set[tuple[str, frozenset[CaseKey]]] = field(default_factory=set)
    """Keys and cases of jobs that are not repeated by this process."""
    _history: KnownHistory | None = None
    """What was read last."""
    _history_is_of: object = None
    """What it was read from: commits, number of records, and what cannot be measured."""

    def __post_init__(self) -> None:
        self.environment = describe_machine(self.branch.path, self.plan, self.fork_server)
        self.ledger = Ledger(self.records)
        self.ledger.read()
        self.requests = PairRequests(
            records=self.records,
            runner_class=self.environment.runner_class,
            waiting=list(self.pairs),
        )
        self.service: Service | None = None
        url = load_settings().server_url
        if url is not None:
            self.service = Service(
                url=url,
                project=self.project,
                runner_class=self.environment.runner_class,
                records=self.records,
            )

    def read(self) -> KnownHistory:
        """Read the records and the branch as they are now.

        Raises:
            GitError: the branch does not exist.
            RecordError: a record cannot be read.
        """
        commits = self.branch.commits()
        records = self._read_records()
        # Analysing takes seconds; without a new record or commit, the result is the same.
        is_of = (commits, len(self._known_records), frozenset(self._unmeasurable))
        if self._history is None or self._history_is_of != is_of:
            self._history = self._analyse(records, commits)
            self._history_is_of = is_of
        return self._history

    def _analyse(self, records: Sequence[RunRecord], commits: Sequence[CommitRef]) -> KnownHistory:
        history = read_history(records, commits, self.environment)
        # A commit that changes documents only is measured by nothing.
        unmeasured = [commit for commit in commits if commit.sha not in history.state.measured]
        documentation = self.branch.documentation(unmeasured)
        ranges = [self._with_candidates(changed) for changed in history.state.ranges]
        state = replace(
            history.state,
            skipped=documentation | self._unmeasurable,
            is_range=self.branch.commit_range is not None,
            ranges=tuple(ranges),
        )
        return replace(history, state=state)

    def _read_records(self) -> list[RunRecord]:
        # Records are written once and never changed.
        for file in sorted(self.records.glob("*.json*")):
            if file not in self._known_records:
                self._known_records[file] = RunRecord.read(file)
        records = self._known_records.values()
        return [record for record in records if record.project == self.project]

    def source_paths(self) -> dict[str, str]:
        """File of each kernel, from the root of its repository, as the newest record names it."""
        paths: dict[str, str] = {}
        oldest_first = sorted(self._read_records(), key=lambda record: record.started_at)
        for record in oldest_first:
            # a caller, unless the record names the function that Triton compiles
            jitted_last = sorted(record.source_lines, key=lambda line: line.is_jitted)
            for line in jitted_last:
                paths[line.kernel] = line.file
        return paths

    def _with_candidates(self, changed: ChangedRange) -> ChangedRange:
        """Name the commits of a range that change sources of its kernels."""
        # Between neighbours there is nothing to search.
        distance = changed.head.first_parent_count - changed.base.first_parent_count
        if distance < 2:
            return changed
        commits = self.branch.commits()
        inside = [commit for commit in commits if changed.base < commit <= changed.head]
        kernels = {kernel_of(case_id) for case_id, _ in changed.subjects}
        candidates = self.branch.candidates(changed.base, inside, kernels)
        # A change without a change of the sources may come from anywhere.
        return replace(changed, candidates=candidates or None)

    def agenda(self) -> list[Job]:
        """Plan from the records, the most valuable job first, after what people asked for."""
        history = self.read()
        jobs = make_agenda(history.state, now=utc_now())
        wanted_jobs = [job for job in jobs if job.kind in self.kinds]
        open_jobs = [job for job in wanted_jobs if not self._is_finished(job)]
        return self._with_requested(open_jobs, self.requests.planned())

    def _is_finished(self, job: Job) -> bool:
        return (job.key, job.subjects) in self._finished

    def run(self, *, budget_s: float, max_jobs: int | None = None) -> Iterator[Done]:
        """Measure the most valuable job and plan again, until nothing or no time is left."""
        deadline = time.monotonic() + budget_s
        count = 0
        self.requests.write()
        while time.monotonic() < deadline and (max_jobs is None or count < max_jobs):
            job = self._take_next()
            if job is None:
                return
            with measuring_alone(load_settings().data_dir):
                done = self._measure(job)
            if self.service is not None:
                self.service.finish(job, done.seconds, done.note)
            self.requests.answer(job, done.seconds, done.note)
            yield done
            count += 1

    def _take_next(self) -> Job | None:
        """Choose the next job; with a server, the first that no other runner has."""
        if self.service is None:
            return next(iter(self.agenda()), None)
        # Another runner may have measured what would be next here.
        self.service.exchange(self._read_records())
        jobs = self._with_requested(self.agenda(), self.service.requested_jobs())
        return self.service.take(jobs)

    def _with_requested(self, jobs: Sequence[Job], requests: Sequence[PlannedJob]) -> list[Job]:
        """Put the jobs that people asked for first; those of other branches stay for other
        runners.
        """
        planned = {job.key: job for job in jobs}
        first: list[Job] = []
        for request in requests:
            job = planned.pop(request.key, None)
            # A requested pair need not be in the plan.
            if job is None:
                job = self._job_of(request)
            if job is not None and not self._is_finished(job):
                first.append(job)
        return [*first, *planned.values()]

    def _job_of(self, request: PlannedJob) -> Job | None:
        """The job of a requested pair, with the cases that changed between its commits; None unless
        both are of the branch.
        """
        if request.base_sha is None:
            return None
        head = self.branch.find(request.head_sha)
        base = self.branch.find(request.base_sha)
        if head is None or base is None:
            return None
        subjects: set[CaseKey] = set()
        for regression in self.read().regressions:
            for point in regression.change_points:
                is_of_pair = point.previous_commit == base and point.commit == head
                if is_of_pair and point.series.metric == TIME.key:
                    subjects.add(point.series.case_key)
        return Job(
            kind=request.kind,
            reason=request.reason,
            seconds=request.expected_s,
            head=head,
            base=base,
            # none if these records do not show the change: then every case is measured
            subjects=frozenset(subjects),
        )

    def news(self) -> list[News]:
        """List what was decided and not told yet; call `ledger.add` after showing them."""
        history = self.read()
        return list_news(
            history.state,
            history.regressions,
            self.ledger.sent_news,
            now=utc_now(),
        )

    def _measure(self, job: Job) -> Done:
        began = time.monotonic()
        # Noted before measuring: a job that fails is not tried for ever.
        if job.kind not in _REPEATED:
            self._finished.add((job.key, job.subjects))
        runner = JobRunner(
            branch=self.branch,
            plan=self.plan,
            project=self.project,
            on_progress=self.on_progress,
        )
        try:
            measured = runner.measure(job, self.read().state.timed_at)
        except SuiteError as error:
            # The commit does not build or load here; the plan goes on with its neighbours.
            self._unmeasurable.add(job.head.sha)
            self._finished.add((job.key, job.subjects))
            return Done(job, time.monotonic() - began, note=str(error))
        if not measured:
            self._unmeasurable.add(job.head.sha)
            base_name = job.base.short_sha if job.base else "the base"
            note = f"no kernel changed since {base_name}"
            return Done(job, time.monotonic() - began, note=note)
        files: list[str] = []
        for record in measured:
            file = self.records / _file_name(job, record)
            record.write(file)
            files.append(str(file))
        if self.service is not None:
            self.service.send(measured)
        return Done(job, time.monotonic() - began, tuple(files))


def _file_name(job: Job, record: RunRecord) -> str:
    side = "run"
    if record.pairing is not None:
        side = str(record.pairing.side)
    sha = record.commit.sha[:12]
    run_id = str(record.run_id)[:8]
    return f"{job.kind}-{sha}-{side}-{run_id}{RECORD_SUFFIX}"
