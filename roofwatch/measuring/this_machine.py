"""What this machine is, before anything is measured on it."""

from __future__ import annotations

from pathlib import Path

from roofwatch.arguments import suite_source
from roofwatch.collector.compile.targets import TargetError, parse_target
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import DescribeEnvironment, machine_error
from roofwatch.collector.workers.worker import Worker

_TIMEOUT_S = 120.0


def describe_machine(
    path: Path | None, device: str | None, thread_count: int | None, fork_server: ForkServer
) -> Environment:
    """The environment that a run of a suite would have: threads of a CPU are part of a runner class.

    Raises:
        CollectorError: the suite cannot be loaded, or the machine not described.
    """
    with Worker(fork_server, suite_source(path), device=device, thread_count=thread_count) as worker:
        worker.start()
        reply = worker.request(DescribeEnvironment(), timeout_s=_TIMEOUT_S)
    if reply.environment is None:
        raise machine_error("this machine cannot be described", reply.failure, device or "cpu")
    return reply.environment


def own_target(environment: Environment) -> str | None:
    """What to compile for to know what runs there; None on a CPU, for which Triton compiles nothing."""
    if not environment.compute_capability:
        return None
    target = f"sm_{environment.compute_capability.replace('.', '')}"
    try:
        parse_target(target)
    except TargetError:
        return None
    return target
