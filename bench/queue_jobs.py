"""Queue jobs of six clients, kill the three runners at random, and count how each job ends.

    python -m bench.queue_jobs [JOBS]

Runners are processes that take a job, hold it for some milliseconds and return a result, over the
functions of the database that the API calls. Each kill is SIGKILL, some time after the runner took
its first job: a busy machine takes seconds to start a runner. A lease of a killed runner is ended
at once rather than after a minute.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from sqlalchemy import Engine, create_engine, text

from roofwatch.db.engine import embedded, migrate
from roofwatch.db.leases import ClaimLostError
from roofwatch.db.queue import request_queued_job, store_tree
from roofwatch.db.queue_runners import finish_queued_job, report_progress, take_queued_job
from roofwatch.model.queue import QueueRequest

_CLASS = "h100"
_CLIENT_COUNT = 6
_RUNNER_COUNT = 3
_KILL_PAUSE_S = 0.5
"""Longest time from a runner's first job to its kill."""
_POLL_S = 0.05
_WORK_S = 0.2
"""Mean time of a job."""


def work(url: str, runner: str) -> None:
    """Carry out jobs until the process is killed."""
    engine = create_engine(url)
    while True:
        claim_id = uuid4()
        job = take_queued_job(
            engine=engine,
            runner_class=_CLASS,
            projects=None,
            claim_id=claim_id,
            runner=runner,
        )
        if job is None:
            time.sleep(_POLL_S)
            continue
        try:
            report_progress(
                engine=engine,
                job_id=job.job_id,
                claim_id=claim_id,
                lines=["started"],
            )
            time.sleep(random.uniform(0, 2 * _WORK_S))  # noqa: S311  no secret
            finish_queued_job(
                engine=engine,
                job_id=job.job_id,
                claim_id=claim_id,
                exit_status=0,
                spent_s=_WORK_S,
                content=b"a result",
                actor=runner,
            )
        except ClaimLostError:
            continue


def request(engine: Engine, number: int) -> UUID:
    """Queue one job of one of the clients."""
    queue_request = QueueRequest(runner_class=_CLASS, command=("run", "bench.py"))
    job_id = request_queued_job(
        engine=engine,
        project="owner/kernels",
        request=queue_request,
        actor=f"token {number % _CLIENT_COUNT}",
        device_minutes=None,
    )
    store_tree(engine, job_id, b"a tree")
    return job_id


@dataclass
class RunnerProcess:
    """A runner, with a name that no other process has."""

    name: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start(url: str) -> RunnerProcess:
    """Start a runner."""
    name = f"runner {uuid4()}"
    command = [sys.executable, "-m", "bench.queue_jobs", "--runner", url, name]
    return RunnerProcess(name, subprocess.Popen(command))


def wait_for_job(engine: Engine, runner: RunnerProcess) -> int:
    """Wait until a runner has a job, or none is left for it; return how many have not ended."""
    query = text(
        "SELECT count(*) FILTER (WHERE outcome IS NULL), count(*) FILTER (WHERE runner = :runner) "
        "FROM queued_job"
    )
    while True:
        with engine.connect() as connection:
            open_count, own_count = connection.execute(query, {"runner": runner.name}).one()
        if own_count or not open_count:
            return int(open_count)
        time.sleep(_POLL_S)


def end_lease(engine: Engine, runner: RunnerProcess) -> None:
    """Free the job of a runner that is gone."""
    ended = text(
        "UPDATE queued_job SET leased_until = now() "
        "WHERE runner = :runner AND leased_until IS NOT NULL"
    )
    with engine.begin() as connection:
        connection.execute(ended, {"runner": runner.name})


def main() -> None:
    """Run it, and print the counts."""
    if sys.argv[1:2] == ["--runner"]:
        work(sys.argv[2], sys.argv[3])
    job_count = 200
    if len(sys.argv) > 1:
        job_count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        server = embedded.start(Path(folder) / "store")
        engine = create_engine(server.url)
        migrate.upgrade(engine)
        url = server.url.render_as_string(hide_password=False)
        started_s = time.monotonic()
        with ThreadPoolExecutor(_CLIENT_COUNT) as clients:
            list(clients.map(lambda number: request(engine, number), range(job_count)))
        runners = [start(url) for _ in range(_RUNNER_COUNT)]
        kill_count = 0
        while True:
            killed = random.randrange(_RUNNER_COUNT)  # noqa: S311  no secret
            if not wait_for_job(engine, runners[killed]):
                break
            time.sleep(random.uniform(0, _KILL_PAUSE_S))  # noqa: S311  no secret
            runners[killed].kill()
            kill_count += 1
            end_lease(engine, runners[killed])
            runners[killed] = start(url)
        for runner in runners:
            runner.kill()
        print(f"{job_count} jobs in {time.monotonic() - started_s:.0f} s, {kill_count} kills")
        _print_ends(engine)
        engine.dispose()
        server.close()


def _print_ends(engine: Engine) -> None:
    ends = text(
        "SELECT subject, count(*) FROM audit_entry "
        "WHERE action IN ('queue.done', 'queue.lost', 'queue.cancelled') GROUP BY subject"
    )
    outcomes = text("SELECT outcome, attempt_count, count(*) FROM queued_job GROUP BY 1, 2")
    with engine.connect() as connection:
        counts = Counter(count for _, count in connection.execute(ends))
        print(f"times that a job ended: jobs = {dict(counts)}")
        for outcome, attempt_count, count in sorted(connection.execute(outcomes).all()):
            print(f"{outcome} after {attempt_count} attempts: {count}")


if __name__ == "__main__":
    main()
