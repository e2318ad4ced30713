"""A runner of the queue: take a job, carry it out in isolation, return its result."""

import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID, uuid4

from roofwatch.collector.git import project_name
from roofwatch.console.terminal import PROGRESS_VARIABLE
from roofwatch.model.errors import CollectorError, GitError, SpoolError
from roofwatch.model.queue import HEARTBEAT_S, WATCH, TakenJob, WatchReport
from roofwatch.queue.isolated import EXIT_NOT_ISOLATED
from roofwatch.queue.limits import JobLimits
from roofwatch.queue.result import FileStates, file_states, find_report, pack_result
from roofwatch.queue.service import QueueService
from roofwatch.queue.tree import unpack_tree
from roofwatch.reporting.records import RECORD_SUFFIX
from roofwatch.store.server import ConflictingStateError

_REPORT_S = 1.0
"""Between two reports while there are lines; the lease is renewed at least each `HEARTBEAT_S`."""
_LIMITS_S = 5.0
"""Between two looks at the memory and disk that a job uses."""
_STOP_S = 10.0
_MAX_LINES_OF_REPORT = 200
_MAX_LINE_BYTES = 4_000
"""A report of 200 such lines would be too long for the server, which keeps fewer of each."""
_KEPT_LINE_CHARACTERS = 140
_MAX_OUTPUT_BYTES = 16 * 2**20
_AWAY_S = 600.0
"""How long a result is offered to a server that is away."""
_RETRY_S = 5.0
_EXIT_LIMIT = 124
"""A limit of time, memory or disk ended the command."""
_EXIT_NO_TREE = 2
_KEPT_VARIABLES = (
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCM_PATH",
    "TRITON_LIBCUDA_PATH",
    "TRITON_INTERPRET",
    "PIP_INDEX_URL",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
)
"""What a job sees of the runner's environment: no token, password or key."""


class RunnerError(CollectorError):
    """The machine cannot carry out jobs."""


@dataclass(frozen=True, kw_only=True)
class RunnerPlan:
    """How a runner carries out jobs."""

    data_dir: Path
    """Ledgers of submissions, by project: they survive a job."""
    limits: JobLimits
    has_network: bool = False
    is_isolated: bool = True


@dataclass(frozen=True)
class Runner:
    """Takes the jobs of its token's class from a server."""

    service: QueueService
    plan: RunnerPlan
    on_note: Callable[[str], None] = lambda _text: None

    def run_next(self, runner_class: str) -> bool:
        """Carry out one job of the class of the token; False if none waits.

        Raises:
            SpoolError: the server cannot be reached, or refuses the token.
            RunnerError: the machine cannot isolate a job.
        """
        claim_id = uuid4()
        job = self.service.take(runner_class, claim_id, platform.node()[:200] or "runner")
        if job is None:
            return False
        self.on_note(f"job {job.job_id} of {job.project}: roofwatch {' '.join(job.command)}")
        try:
            self._carry_out(job, claim_id)
        except ConflictingStateError:
            self.on_note(f"job {job.job_id}: lost to another runner; its result is dropped")
        except BaseException:
            # another runner can start at once
            with suppress(SpoolError):
                self.service.release(job.job_id, claim_id)
            raise
        return True

    def _carry_out(self, job: TakenJob, claim_id: UUID) -> None:
        started_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="roofwatch-job-") as name:
            tree = Path(name, "tree")
            try:
                unpack_tree(self.service.tree(job.job_id, claim_id), tree, job.project)
            except GitError as error:
                self.service.report(job.job_id, claim_id, [f"roofwatch: {error}"])
                content, _ = pack_result(Path(name, "nothing"), {}, b"")
                self._finish(job, claim_id, _EXIT_NO_TREE, started_s, content)
                return
            earlier = file_states(tree)
            with _started(job, Path(name), self.plan) as command:
                exit_status = self._follow(job, claim_id, command, Path(name), started_s)
            if exit_status == EXIT_NOT_ISOLATED and self.plan.is_isolated:
                raise RunnerError(
                    "this machine cannot isolate a job (user namespaces are off?); allow them, or "
                    "use --no-isolation on a machine that has nothing to protect"
                )
            self._return(job, claim_id, exit_status, started_s, tree, earlier, command.output)

    def _follow(
        self,
        job: TakenJob,
        claim_id: UUID,
        command: "JobProcess",
        folder: Path,
        started_s: float,
    ) -> int:
        """Report progress until the command ends, is cancelled, or exceeds a limit."""
        reported_s = time.monotonic()
        limited_s = reported_s
        while True:
            has_ended = command.wait(_REPORT_S)
            lines = command.take_lines()
            now_s = time.monotonic()
            if lines or now_s - reported_s >= HEARTBEAT_S / 2:
                reported_s = now_s
                if self._report(job, claim_id, lines):
                    command.stop()
                    return 130
            if has_ended and not lines:
                return command.exit_status
            exceeded: str | None = None
            if now_s - started_s > job.limit_s:
                exceeded = f"took longer than {job.limit_s:.0f} s"
            elif now_s - limited_s >= _LIMITS_S:
                limited_s = now_s
                exceeded = self.plan.limits.exceeded(command.process_id, folder)
            if exceeded is not None:
                command.stop()
                self._report(job, claim_id, [f"roofwatch: stopped: {exceeded}"])
                return _EXIT_LIMIT

    def _report(self, job: TakenJob, claim_id: UUID, lines: list[str]) -> bool:
        try:
            return self.service.report(job.job_id, claim_id, lines)
        except ConflictingStateError:
            raise
        except SpoolError as error:
            # the command goes on: the server may be back before it ends
            self.on_note(str(error))
            return False

    def _return(
        self,
        job: TakenJob,
        claim_id: UUID,
        exit_status: int,
        started_s: float,
        tree: Path,
        earlier: FileStates,
        output: Path,
    ) -> None:
        with output.open("rb") as file:
            printed = file.read(_MAX_OUTPUT_BYTES)
        content, left_out = pack_result(tree, earlier, printed)
        if left_out:
            note = f"roofwatch: {len(left_out)} files are too large to return: {left_out[0]}"
            self._report(job, claim_id, [note])
        report = None
        # a pair whose records are not returned is measured again
        has_all_records = not any(name.endswith(RECORD_SUFFIX) for name in left_out)
        if job.command[0] == WATCH and has_all_records:
            report = find_report(tree, earlier)
        self._finish(job, claim_id, exit_status, started_s, content, report)

    def _finish(
        self,
        job: TakenJob,
        claim_id: UUID,
        exit_status: int,
        started_s: float,
        content: bytes,
        report: WatchReport | None = None,
    ) -> None:
        deadline_s = time.monotonic() + _AWAY_S
        spent_s = time.monotonic() - started_s
        while True:
            try:
                self.service.finish(
                    job.job_id,
                    claim_id,
                    exit_status=exit_status,
                    spent_s=spent_s,
                    content=content,
                    report=report,
                )
            except ConflictingStateError:
                raise
            except SpoolError as error:
                if time.monotonic() > deadline_s:
                    raise
                self.on_note(f"{error}; the result is sent again")
                time.sleep(_RETRY_S)
                continue
            self.on_note(f"job {job.job_id}: exit status {exit_status} after {spent_s:.0f} s")
            return


# --- the command


class JobProcess:
    """A command of a job in processes of its own."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.output = output
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert process.stderr is not None
        self._reader = threading.Thread(target=self._read_lines, args=[process.stderr], daemon=True)
        self._reader.start()

    def _read_lines(self, stream: IO[bytes]) -> None:
        while line := stream.readline(_MAX_LINE_BYTES):
            text = line.decode(errors="replace").rstrip("\r\n").replace("\0", "")
            self._lines.put(text)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the command has ended; return whether it has."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
            # a process that it left behind may hold the stream open
            self._reader.join(timeout_s)
            return True
        return False

    def take_lines(self) -> list[str]:
        """The next lines on standard error."""
        lines: list[str] = []
        while len(lines) < _MAX_LINES_OF_REPORT:
            try:
                lines.append(self._lines.get_nowait()[:_KEPT_LINE_CHARACTERS])
            except queue.Empty:
                break
        return lines

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int:
        status = self._process.returncode
        if status >= 0:
            return status
        return 128 - status

    def stop(self) -> None:
        """End the command and its processes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            if self.wait(_STOP_S):
                return


@contextmanager
def _started(job: TakenJob, work: Path, plan: RunnerPlan) -> Iterator[JobProcess]:
    """Start the command of a job; it is stopped at the end."""
    # one ledger per project: its error rate is spent once, however many jobs submit
    ledger = plan.data_dir / "queue" / project_name(Path(job.project.replace("/", "-")))
    ledger.mkdir(parents=True, exist_ok=True)
    home = work / "home"
    scratch = work / "tmp"
    for folder in (home, scratch):
        folder.mkdir()
    network = "unisolated"
    if plan.is_isolated:
        network = "network" if plan.has_network else "no-network"
    environment = {key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ}
    environment |= {
        # `python` of a profiled program is this one
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        ),
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "ROOFWATCH_DATA_DIR": str(ledger),
        # the settings of the tree may name a server, which a job neither reaches nor needs
        "ROOFWATCH_SERVER_URL": "",
        "NO_COLOR": "1",
        PROGRESS_VARIABLE: "lines",
    }
    output = work / "output"
    with output.open("wb") as printed:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "roofwatch.queue.isolated",
                network,
                str(work / "tree" / job.folder),
                f"{work}:{ledger}",
                *job.command,
                *(f"--pair={pair.base_sha}..{pair.head_sha}" for pair in job.pairs),
            ],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    command = JobProcess(process, output)
    try:
        yield command
    finally:
        command.stop()


def check_programs() -> None:
    """Raise RunnerError if a program is missing that each job needs."""
    if shutil.which("git") is None:
        raise RunnerError(
            "git is not installed or not on PATH; install it (Debian: apt install git)"
        )
