"""Compiles a suite's cases for GPUs that are not present: results come from the cache or from worker processes.

The key of a cached result consists of toolchain, kernel code, case, implementation and targets.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from roofwatch.collector.compile.cache import DiskCache, digest_of, toolchain_digest
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CompileStatic,
    DescribeSources,
    Reply,
    SuiteInfo,
    WorkerSettings,
    compile_limit,
)
from roofwatch.collector.workers.worker import Worker
from roofwatch.collector.workers.worker_pool import run_parallel

_DESCRIBE_TIMEOUT_S = 60.0
_CACHED_OUTCOMES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
"""Other failures may come from a lack of memory and are tried again."""


_FACTS = TypeAdapter(tuple[StaticFacts, ...])


@dataclass(frozen=True)
class CompiledSubject:
    """Facts of one case and implementation, in the order of the targets."""

    subject: Subject
    facts: tuple[StaticFacts, ...]
    was_cached: bool


class StaticCompiler(contextlib.ExitStack):
    """Compiles one suite; leaving the context ends its worker processes.

    Args:
        fork_server: Forks the workers when something is not cached.
        source: The suite.
        cache: Default the user's.
        worker_count: Number of parallel workers; default one per CPU core.
        timeout_s: For one case and implementation.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        source: SuiteSource,
        *,
        cache: DiskCache | None = None,
        worker_count: int | None = None,
        timeout_s: float,
    ) -> None:
        super().__init__()
        self._fork_server = fork_server
        self._source = source
        self._cache = cache or DiskCache.of_user()
        self._worker_count = worker_count or len(os.sched_getaffinity(0))
        self._timeout_s = timeout_s
        self._toolchain = toolchain_digest()
        self._workers: list[Worker] = []

    def load(self) -> SuiteInfo:
        """Load the suite in a worker.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        (worker,) = self._start_workers(1)
        return worker.start()

    def compile(self, subjects: Sequence[Subject], targets: Sequence[str]) -> Iterator[CompiledSubject]:
        """Compile each subject for each target; cached results come first.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        (worker,) = self._start_workers(1)
        codes = worker.request(DescribeSources(), timeout_s=_DESCRIBE_TIMEOUT_S).source_digests
        if codes is None:
            raise CollectorError("the source files of the suite cannot be read")
        keys: dict[Subject, str] = {}
        missing: list[CompileStatic] = []
        for subject in subjects:
            code = codes[subject.case_id.partition("/")[0]]
            keys[subject] = digest_of(self._toolchain, code, subject.case_id, subject.implementation, targets)
            try:
                facts = _FACTS.validate_python(self._cache.get(keys[subject]))
            except ValidationError:
                missing.append(CompileStatic(**subject.named, targets=tuple(targets)))
            else:
                yield CompiledSubject(subject, facts, was_cached=True)
        if not missing:
            return
        workers = self._start_workers(min(len(missing), self._worker_count))
        # cases of a kernel go to one worker: they share code, which is compiled once
        replies = run_parallel(
            workers, missing, group=lambda job: job.case_id.partition("/")[0], timeout_s=self._timeout_s
        )
        for job, reply, _ in replies:
            subject = Subject(job.case_id, job.implementation)
            facts = reply.static_facts or self._failed(subject, targets, reply)
            if all(fact.outcome in _CACHED_OUTCOMES for fact in facts):
                self._cache.put(keys[subject], _FACTS.dump_python(facts, mode="json"))
            yield CompiledSubject(subject, facts, was_cached=False)
        self._cache.shrink()

    def _failed(self, subject: Subject, targets: Sequence[str], reply: Reply) -> tuple[StaticFacts, ...]:
        failure = reply.failure_within(compile_limit(self._timeout_s))
        return tuple(
            StaticFacts(
                **subject.named,
                function=subject.implementation,
                target=target,
                outcome=failure.outcome,
                message=failure.message,
            )
            for target in targets
        )

    def _start_workers(self, count: int) -> list[Worker]:
        if not self._workers:
            self._fork_server.warm_up()
        while len(self._workers) < count:
            settings = WorkerSettings(source=self._source, device="cpu", thread_count=1)
            worker = Worker(self._fork_server, settings)
            self._workers.append(self.enter_context(worker))
        return self._workers[:count]
