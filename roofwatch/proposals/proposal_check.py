"""Calls the kernels that `roofwatch init` found with the inputs that it guessed, without a GPU."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.errors import CollectorError, SuiteError
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import KernelInfo, ProveCase, WorkerSettings

_TIMEOUT_S = 20.0
_MAX_REASON = 200


@dataclass(frozen=True)
class TrialCall:
    """Calls proposed kernels by name, in a benchmark file of their own."""

    write: Callable[[Sequence[str]], str]
    """The text of a benchmark file with these kernels."""
    import_roots: tuple[Path, ...]
    fork_server: ForkServer
    folder: Path

    def reasons(self, names: Sequence[str]) -> dict[str, str]:
        """Why kernels cannot be called; those that can be called are missing.

        Raises:
            CollectorError: this machine lacks torch or Triton.
        """
        file = self.folder / "bench_proposed.py"
        file.write_text(self.write(names))
        source = SuiteSource(file, self.import_roots)
        settings = WorkerSettings(source=source, device="cpu", thread_count=1)
        with WorkerPool(self.fork_server, settings) as workers:
            try:
                kernels = workers.start().kernels
            except SuiteError as error:
                reason = str(error).removeprefix(f"{file}: ")
            else:
                self.fork_server.load("without_data")
                return _reasons(workers, kernels)
        if len(names) == 1:
            return {names[0]: reason[:_MAX_REASON]}
        # one module that cannot be imported must not hide the others
        middle = len(names) // 2
        return self.reasons(names[:middle]) | self.reasons(names[middle:])


def why_not_called(
    names: Sequence[str],
    write: Callable[[Sequence[str]], str],
    roots: tuple[Path, ...],
) -> dict[str, str] | None:
    """Say why kernels cannot be called; None if this machine lacks torch or Triton."""
    with tempfile.TemporaryDirectory(prefix="roofwatch-init-") as name, ForkServer() as fork_server:
        try:
            return TrialCall(write, roots, fork_server, Path(name)).reasons(names)
        except CollectorError:
            return None


def _reasons(workers: WorkerPool, kernels: Sequence[KernelInfo]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for kernel in kernels:
        job = ProveCase(
            case_id=kernel.cases[0].case_id,
            implementation=kernel.implementations[0].name,
            targets=DEFAULT_TARGETS[:1],
        )
        reply = workers.request(job, timeout_s=_TIMEOUT_S)
        if reply.failure is not None:
            reasons[kernel.name] = reply.failure.message[:_MAX_REASON]
        elif reply.proof is not None and reply.proof.cost is None:
            reasons[kernel.name] = (reply.proof.overflow.message or "not called")[:_MAX_REASON]
    return reasons
