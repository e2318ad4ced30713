"""Send a command to a runner, follow it, and write what it returns."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from roofwatch.ci.messages import count_of, on_one_line
from roofwatch.collector.git import find_repository, project_of
from roofwatch.console.terminal import print_error
from roofwatch.model.errors import GitError, SpoolError
from roofwatch.model.queue import (
    JobOutcome,
    JobPriority,
    QueuedJob,
    QueueForecast,
    QueueRequest,
)
from roofwatch.queue.result import read_result, write_files
from roofwatch.queue.service import QueueService
from roofwatch.queue.tree import inside_repository, pack_tree
from roofwatch.store.server import ConflictingStateError

# a running job prints lines; a waiting one only moves up
_POLL_S = 0.5
_POLL_WAITING_S = 2.0
_AWAY_S = 300.0
"""How long a server may be away while a client follows a job."""


@dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command as the client would run it here."""

    words: tuple[str, ...]
    """After `roofwatch`, without the options that choose a runner."""
    revisions: tuple[str, ...] = ()
    """Commits that it needs besides the head."""
    ignored_paths: tuple[Path, ...] = ()
    """Files and folders that it reads, which git may ignore."""
    has_history: bool = False
    """It needs all older commits."""
    runner_class: str
    priority: JobPriority = JobPriority.NORMAL


def run_on_runner(service: QueueService, command: RemoteCommand) -> int:
    """Carry out a command on a runner, with the work tree of the current folder; return its exit
    status.

    Progress goes to standard error and the output to standard output, and files are written where
    the command would write them. Ctrl-C cancels the job.

    Raises:
        GitError: the current folder is in no repository with commits.
        SuiteError: the tree is too large, lacks a part, or a path is outside the repository.
        SpoolError: the server cannot be reached or refuses, or the job was lost or cancelled.
    """
    folder = Path.cwd()
    repository = find_repository(folder)
    if repository is None:
        raise GitError(f"{folder}: not in a git repository, so there is no tree to send")
    words = [_relative(word, folder, repository) for word in command.words]
    tree = pack_tree(
        repository,
        command.revisions,
        ignored_paths=command.ignored_paths,
        has_history=command.has_history,
    )
    request = QueueRequest(
        runner_class=command.runner_class,
        command=tuple(words),
        folder=folder.resolve().relative_to(repository.resolve()).as_posix(),
        priority=command.priority,
    )
    job, forecast = service.request(project_of(repository), request)
    try:
        service.send_tree(job.job_id, tree.content)
        _note(_announcement(job, forecast, len(tree.content)))
        _note(f"Ctrl-C cancels it; after a lost connection: roofwatch queue follow {job.job_id}")
        ended = _follow(service, job.job_id)
    # Ctrl-C too: nobody waits for the result any more
    except BaseException:
        _cancel(service, job.job_id)
        raise
    return _deliver(service, ended, repository)


def follow_to_end(service: QueueService, job_id: UUID) -> int:
    """Follow a job that was sent earlier, and write what it returns into the current repository;
    return its exit status.

    Ctrl-C leaves the job as it is.

    Raises:
        GitError: the current folder is in no repository.
        SpoolError: the server cannot be reached or refuses, the job is of another project, or it
            was lost or cancelled.
    """
    folder = Path.cwd()
    repository = find_repository(folder)
    if repository is None:
        raise GitError(f"{folder}: not in a git repository, so there is no place for its files")
    job, _ = service.follow(job_id, 0)
    project = project_of(repository)
    # its files would be written into another project
    if job.project != project:
        raise SpoolError(f"job {job_id} is of {job.project}, and {repository} of {project}")
    return _deliver(service, _follow(service, job_id), repository)


def _relative(word: str, folder: Path, repository: Path) -> str:
    """A word of the command with a path that is right on another machine."""
    path = Path(word)
    # a relative path is right on the runner too; an option is no path
    if not path.is_absolute() or not path.exists():
        return word
    inside = inside_repository(path, repository)
    return os.path.relpath(repository.resolve() / inside, folder.resolve())


def _announcement(job: QueuedJob, forecast: QueueForecast, sent_bytes: int) -> str:
    text = f"job {job.job_id} on {job.runner_class}, {sent_bytes / 2**20:.1f} MiB sent"
    if forecast.ahead_count:
        text += f", {count_of(forecast.ahead_count, 'job')} before it"
        # how long the jobs before it take may be unknown
        if forecast.ahead_s is not None:
            text += f" ({_minutes(forecast.ahead_s)})"
    if forecast.expected_s is not None:
        text += f", takes about {_minutes(forecast.expected_s)}"
    return text


def _minutes(duration_s: float) -> str:
    if duration_s < 60:
        return f"{duration_s:.0f} s"
    return f"{duration_s / 60:.0f} min"


def _follow(service: QueueService, job_id: UUID) -> QueuedJob:
    """Print the progress of a job until it has ended."""
    seen_count = 0
    attempt_count = 0
    away_since_s: float | None = None
    while True:
        try:
            job, lines = service.follow(job_id, seen_count)
        # a refusal stays one, however long the client waits
        except ConflictingStateError:
            raise
        except SpoolError:
            now_s = time.monotonic()
            away_since_s = away_since_s or now_s
            if now_s - away_since_s > _AWAY_S:
                raise
            time.sleep(_POLL_WAITING_S)
            continue
        away_since_s = None
        # a job whose runner stopped is given to another
        if job.attempt_count > attempt_count:
            attempt_count = job.attempt_count
            again = ""
            if attempt_count > 1:
                again = f", attempt {attempt_count}"
            _note(f"running on {job.runner}{again}")
        for line in lines:
            _note(line)
        seen_count += len(lines)
        # lines may arrive with the end: ask until there are none left
        if job.outcome is not None and not lines:
            return job
        time.sleep(_POLL_S if attempt_count else _POLL_WAITING_S)


def _cancel(service: QueueService, job_id: UUID) -> None:
    try:
        service.cancel(job_id)
    except SpoolError as error:
        print_error(f"job {job_id} could not be cancelled: {error}")
    else:
        _note(f"job {job_id} is cancelled")


def _note(text: str) -> None:
    """Print a line of progress; it has no prefix of an error."""
    print(on_one_line(text), file=sys.stderr, flush=True)


def _end_without_result(job: QueuedJob) -> str:
    if job.outcome is JobOutcome.CANCELLED:
        return f"job {job.job_id} was cancelled"
    lost_count = count_of(job.attempt_count, "runner")
    return f"job {job.job_id} was lost: {lost_count} stopped reporting; see their logs"


def _deliver(service: QueueService, job: QueuedJob, repository: Path) -> int:
    if job.outcome is not JobOutcome.DONE:
        raise SpoolError(_end_without_result(job))
    result = read_result(service.result(job.job_id))
    for name in write_files(result, repository):
        print_error(f"{name}: not written, because git tracks it or it is a link")
    # bytes as the runner wrote them, whatever the encoding here
    sys.stdout.buffer.write(result.output)
    sys.stdout.flush()
    assert job.exit_status is not None, "a job that is done has a status"
    return job.exit_status


def describe(job: QueuedJob) -> Sequence[str]:
    """Columns of a table of jobs."""
    duration = ""
    if job.spent_s is not None:
        duration = _minutes(job.spent_s)
    status = ""
    if job.exit_status is not None:
        status = str(job.exit_status)
    return (
        str(job.job_id),
        job.state,
        job.runner_class,
        " ".join(job.command),
        job.requested_by,
        f"{job.requested_at:%Y-%m-%d %H:%M}",
        duration,
        status,
    )
