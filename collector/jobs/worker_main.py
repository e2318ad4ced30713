"""The worker process: loads one suite and does one job after another.

A kernel that crashes, hangs or exhausts memory costs only its own case. Of roofwatch, only
`collector` and the public names are imported, and before the suite: a repository with its own
`kernels`, `db` or `ci` package finds its own.
"""

import faulthandler
import os
import resource
import threading
import time
from pathlib import Path

import torch
from pydantic import TypeAdapter

from roofwatch.collector.build.provenance import ProjectFiles
from roofwatch.collector.device.environment import choose_device
from roofwatch.collector.jobs.case_call import failure_of
from roofwatch.collector.jobs.suite_jobs import SuiteJobs
from roofwatch.collector.timing.memory import keep_freed_memory
from roofwatch.model.errors import CollectorError
from roofwatch.model.worker_protocol import Job, Reply, WorkerSettings

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_MEMORY_SHARE = 0.8
"""Of the available memory; the rest is for the collector and the system."""


def main(lifeline_fd: int, jobs_fd: int, replies_fd: int) -> None:
    """Serve until the job pipe closes.

    Args:
        lifeline_fd: Reads end-of-file when the collector is gone; then this process exits.
        jobs_fd: One line of settings, then one job per line.
        replies_fd: One reply per line; the first holds the suite.
    """
    faulthandler.enable()
    threading.Thread(
        target=_exit_with_parent,
        args=(lifeline_fd,),
        daemon=True,
    ).start()
    with os.fdopen(jobs_fd, "rb") as jobs, os.fdopen(replies_fd, "wb") as replies:

        def send(reply: Reply) -> None:
            replies.write(reply.model_dump_json(exclude_defaults=True).encode() + b"\n")
            replies.flush()

        settings = WorkerSettings.model_validate_json(jobs.readline())
        try:
            device = choose_device(settings.device)
            _set_up_process(settings, device)
            suite = SuiteJobs(settings, device)
            described = Reply(suite=suite.describe())
            began_ns = time.perf_counter_ns()
            files = ProjectFiles(settings.source, suite.preloaded)
            send(_with_loaded(described, files, began_ns))
        except CollectorError as error:
            send(Reply(error=str(error)))
            return
        for line in jobs:
            try:
                reply = suite.do(_JOB.validate_json(line))
            except Exception as error:  # noqa: BLE001  it is the outcome of the case
                reply = Reply(failure=failure_of(error))
            send(_with_loaded(reply, files, time.perf_counter_ns()))


def _with_loaded(reply: Reply, files: ProjectFiles, began_ns: int) -> Reply:
    """Add which files of the project were loaded since the previous reply, and the time to find
    them.
    """
    loaded = files.take_new()
    spent_ns = time.perf_counter_ns() - began_ns
    return reply.model_copy(update={"loaded": loaded, "tracing_ns": spent_ns})


def _exit_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)
    os._exit(1)


def _set_up_process(settings: WorkerSettings, device: str) -> None:
    """Apply caches, threads and the limit of memory before the suite is loaded."""
    if settings.cache_folder is not None:
        os.environ["TRITON_CACHE_DIR"] = f"{settings.cache_folder}/triton"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{settings.cache_folder}/inductor"
        # torch names an extension's folder by the extension alone, which both sides have
        os.environ["TORCH_EXTENSIONS_DIR"] = f"{settings.cache_folder}/extensions"
    if settings.thread_count is not None:
        torch.set_num_threads(settings.thread_count)
    if device == "cpu":
        _limit_memory(settings.memory_share)
        keep_freed_memory()


def _limit_memory(share: float) -> None:
    """Make allocations beyond this process's share of memory fail before the system kills a
    process.
    """
    available_bytes = _available_memory_bytes()
    if available_bytes is None:
        return
    # what is mapped already counts too
    mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped_bytes = mapped_pages * os.sysconf("SC_PAGE_SIZE")
    limit_bytes = mapped_bytes + int(available_bytes * _MEMORY_SHARE * share)
    _, hard_limit_bytes = resource.getrlimit(resource.RLIMIT_AS)
    # the system refuses a limit above the hard one
    if hard_limit_bytes != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard_limit_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard_limit_bytes))


def _available_memory_bytes() -> int | None:
    """Memory that the machine or the container has left."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    # `MemAvailable:   12345 kB`
    available_lines = [line for line in lines if line.startswith("MemAvailable:")]
    limits_bytes = [int(line.split()[1]) * 1024 for line in available_lines]
    # a container may have less than the machine; without a limit, the file says `max`
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists():
        text = group.read_text().strip()
        if text.isdigit():
            limits_bytes.append(int(text))
    return min(limits_bytes, default=None)
