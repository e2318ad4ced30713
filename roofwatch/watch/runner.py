"""Measure what the agenda of a branch says, one job after another."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from roofwatch.arguments import repository_of
from roofwatch.bisection.commits import CommitRange, describe_machine, list_commits
from roofwatch.ci.agenda import make_agenda
from roofwatch.collector.git import run_git
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.revisions import affects_every_kernel, find_affected, open_suite
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.model.worker_protocol import Subject
from roofwatch.records import RECORD_SUFFIX, read_record_files
from roofwatch.settings import load_settings
from roofwatch.store.transfer import sender_and_spool, summary
from roofwatch.terminal import print_error, progress
from roofwatch.watch.state import KnownHistory, read_history

PAIR_BLOCKS = 12
"""Blocks per side of a pair."""
_FOLLOWED_COMMITS = 200
"""Newest commits of the branch that are watched."""


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
    """The jobs of one suite on this machine, planned from a folder of records."""

    path: Path | None
    project: str
    branch: str
    plan: RunPlan
    records: Path
    fork_server: ForkServer
    commits: str | None = None
    """`A..B`; None for the newest commits of the branch."""

    def __post_init__(self) -> None:
        environment = describe_machine(self.path, self.plan, self.fork_server)
        self.runner_class = environment.runner_class
        self._unmeasurable: set[str] = set()

    def read(self) -> KnownHistory:
        """Read the records and the branch as they are now.

        Raises:
            GitError: the branch does not exist.
            RecordError: a record cannot be read.
        """
        listed = self._commits()
        records: list[RunRecord] = []
        if self.records.is_dir() and any(self.records.glob("*.json*")):
            records = [
                record
                for _, record in read_record_files([self.records])
                if record.project == self.project
            ]
        history = read_history(records, listed, self.runner_class)
        documentation = [
            commit.sha
            for commit in listed
            if commit.sha not in history.state.measured and self._is_documentation(commit.sha)
        ]
        skipped = frozenset([*self._unmeasurable, *documentation])
        state = replace(history.state, skipped=skipped)
        return replace(history, state=state)

    def agenda(self) -> list[Job]:
        """Plan from the records; calibrations are left to `roofwatch calibrate`."""
        jobs = make_agenda(self.read().state, now=utc_now())
        return [job for job in jobs if job.kind is not JobKind.CALIBRATE]

    def run(self, *, budget_s: float, max_jobs: int | None = None) -> Iterator[Done]:
        """Measure the most valuable job and plan again, until nothing or no time is left."""
        deadline = time.monotonic() + budget_s
        count = 0
        while time.monotonic() < deadline and (max_jobs is None or count < max_jobs):
            jobs = self.agenda()
            if not jobs:
                return
            yield self._measure(jobs[0])
            count += 1

    def _commits(self) -> list[CommitRef]:
        repository = repository_of(self.path)
        if self.commits is not None:
            first, dots, last = self.commits.partition("..")
            if not (first and dots and last) or last.startswith("."):
                raise SuiteError(
                    f"range {self.commits!r}: write A..B, for the commits after A up to B"
                )
            return list(list_commits(self.path, first, last).commits)
        count = int(run_git(repository, "rev-list", "--first-parent", "--count", self.branch, "--"))
        if count == 1:
            raise SuiteError(f"branch {self.branch} has one commit, so there is nothing to watch")
        oldest = f"{self.branch}~{min(count - 1, _FOLLOWED_COMMITS)}"
        listed: CommitRange = list_commits(self.path, oldest, self.branch)
        return list(listed.commits)

    def _is_documentation(self, sha: str) -> bool:
        """Whether a commit changes no file that a kernel may use."""
        listed = run_git(
            repository_of(self.path),
            "diff-tree",
            "-r",
            "-m",
            "--first-parent",
            "--root",
            "--no-commit-id",
            "--name-only",
            "-z",
            sha,
        )
        files = [file for file in listed.split("\0") if file]
        return not any(file.endswith(".py") or affects_every_kernel(file) for file in files)

    def _measure(self, job: Job) -> Done:
        began = time.monotonic()
        try:
            records = self._records_of(job)
        except SuiteError as error:
            self._unmeasurable.add(job.head.sha)
            return Done(job, time.monotonic() - began, note=str(error))
        if not records:
            self._unmeasurable.add(job.head.sha)
            note = f"no kernel changed since {job.base.short_sha if job.base else 'the base'}"
            return Done(job, time.monotonic() - began, note=note)
        files: list[str] = []
        for record in records:
            side = "run" if record.pairing is None else str(record.pairing.side)
            name = f"{job.kind}-{record.commit.sha[:12]}-{side}-{str(record.run_id)[:8]}"
            file = self.records / f"{name}{RECORD_SUFFIX}"
            record.write(file)
            files.append(str(file))
        _send(records)
        return Done(job, time.monotonic() - began, tuple(files))

    def _records_of(self, job: Job) -> tuple[RunRecord, ...]:
        plan = self.plan
        only: frozenset[Subject] | None = None
        if job.base is not None:
            plan = replace(plan, block_count=max(plan.block_count, PAIR_BLOCKS))
        if job.subjects:
            only = frozenset(Subject(*subject) for subject in job.subjects)
            kernels = sorted({case_id.split("/")[0] for case_id, _ in job.subjects})
            plan = replace(plan, kernels=tuple(kernels), targets=())
        elif job.kind is JobKind.NEW and job.base is not None:
            affected = find_affected(self.path, job.base.sha, job.head.sha)
            if not affected.kernels:
                return ()
            plan = replace(plan, kernels=affected.kernels)
        shas = [ref.sha for ref in (job.base, job.head) if ref is not None]
        with ExitStack() as stack:
            suites = [
                replace(
                    stack.enter_context(open_suite(self.path, sha, self.fork_server)),
                    project=self.project,
                )
                for sha in shas
            ]
            with progress(f"{job.kind} {job.head.short_sha}") as on_progress:
                measured = measure(
                    suites, plan, on_progress, fork_server=self.fork_server, only=only
                )
        for record in measured:
            record.require_own_code()
        return measured


def _send(records: tuple[RunRecord, ...]) -> None:
    """Send records if a server is configured; what cannot be sent stays in the spool."""
    if load_settings().server_url is None:
        return
    sender, spool = sender_and_spool(None, None)
    for record in records:
        spool.submit(record)
    for line in summary(spool.deliver(sender), spool):
        print_error(line)
