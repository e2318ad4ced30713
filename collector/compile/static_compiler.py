"""Compiles a suite's cases for GPUs that are not here: from the cache where that still holds, else in worker processes.

Two kinds of answers are cached. The *listing* of a suite's kernels holds while everything is unchanged that was read to
load it. The *facts* of a case, an implementation and a target have a key that covers the toolchain and the kernel's own
code, wherever it lies; they hold while what was read besides, such as a `.cu` file, is unchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from roofwatch.collector.compile.cache import DiskCache, digest_of, toolchain_digest
from roofwatch.collector.compile.sources import Sources
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource, benchmark_files
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CompileStatic,
    DescribeSources,
    Reply,
    SuiteInfo,
    compile_limit,
    explained,
)
from roofwatch.collector.workers.worker import Worker
from roofwatch.collector.workers.worker_pool import run_parallel

_DESCRIBE_TIMEOUT_S = 60.0
_CACHED_OUTCOMES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
"""Other failures may be due to a lack of memory: they are tried again."""


class _Cached(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: Sources


class Listing(_Cached):
    """The kernels of a suite, and by kernel a digest of the code that it may use."""

    info: SuiteInfo
    codes: dict[str, str]


class _CachedFacts(_Cached):
    facts: tuple[StaticFacts, ...]


_Entry = TypeVar("_Entry", bound=_Cached)


@dataclass(frozen=True)
class CompiledSubject:
    """What one case and implementation compile to."""

    subject: Subject
    facts: tuple[StaticFacts, ...]
    """Target by target, in the order that was asked for."""
    was_cached: bool


class StaticCompiler:
    """Of one suite; used as a context, at whose end its processes are gone.

    Args:
        fork_server: Forks the processes, as soon as something is not cached.
        source: The suite.
        cache: That of the user if left out.
        worker_count: Processes that compile in parallel; one for each core if left out.
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
        self._fork_server = fork_server
        self._source = source
        self._cache = cache or DiskCache.of_user()
        self._worker_count = worker_count or len(os.sched_getaffinity(0))
        self._timeout_s = timeout_s
        self._toolchain = toolchain_digest()
        self._stack = contextlib.ExitStack()
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def listing(self, on_loading: Callable[[], None] = lambda: None) -> Listing:
        """The kernels of the suite.

        Args:
            on_loading: Called if they are not cached, before a process is started that loads the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        path = self._source.path
        files = [] if path is None else list(map(str, benchmark_files(path)))
        roots = list(map(str, self._source.import_roots))
        key = digest_of(self._toolchain, str(path), files, roots, self._source.module)
        cached = self._cached("suites", key, Listing)
        if cached is not None:
            return cached
        on_loading()
        (worker,) = self._start_workers(1)
        info = worker.start()
        found = worker.request(DescribeSources(), timeout_s=_DESCRIBE_TIMEOUT_S).suite_sources
        if found is None:
            raise CollectorError("what the suite is made from cannot be told; leave the cache out with --no-cache")
        listing = Listing(info=info, codes=found.codes, sources=found.sources or Sources())
        if found.sources is not None:
            self._cache.put("suites", key, listing.model_dump(mode="json"))
        return listing

    def compile(
        self, subjects: Sequence[Subject], targets: Sequence[str], listing: Listing | None = None
    ) -> Iterator[CompiledSubject]:
        """Compile each subject for each target; what is cached comes first.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        codes = (listing or self.listing()).codes
        facts: dict[Subject, dict[str, tuple[StaticFacts, ...]]] = {}
        missing: list[CompileStatic] = []
        for subject in subjects:
            code = codes[subject.case_id.partition("/")[0]]
            found = {
                target: self._cached("facts", self._facts_key(code, subject, target), _CachedFacts)
                for target in targets
            }
            facts[subject] = {target: entry.facts for target, entry in found.items() if entry is not None}
            lacking = tuple(target for target in targets if target not in facts[subject])
            if lacking:
                missing.append(CompileStatic(**subject.named, targets=lacking))
            else:
                yield CompiledSubject(subject, _in_order(facts[subject], targets), was_cached=True)
        if not missing:
            return
        workers = self._start_workers(min(len(missing), self._worker_count))
        # cases of a kernel share code, which is then compiled once
        replies = run_parallel(
            workers, missing, group=lambda job: job.case_id.partition("/")[0], timeout_s=self._timeout_s
        )
        for job, reply, _ in replies:
            subject = Subject(job.case_id, job.implementation)
            facts[subject] |= self._facts(subject, job.targets, reply)
            yield CompiledSubject(subject, _in_order(facts[subject], targets), was_cached=False)
        self._cache.shrink()

    def _facts(self, subject: Subject, targets: tuple[str, ...], reply: Reply) -> dict[str, tuple[StaticFacts, ...]]:
        """What a worker replied, by target; cached unless it failed."""
        if reply.static_facts is None:
            failure = explained(reply.failure, compile_limit(self._timeout_s))
            assert failure is not None
            return {
                target: (
                    StaticFacts(
                        **subject.named,
                        function=subject.implementation,
                        target=target,
                        outcome=failure.outcome,
                        message=failure.message,
                    ),
                )
                for target in targets
            }
        found = {target: tuple(fact for fact in reply.static_facts if fact.target == target) for target in targets}
        made_from = reply.case_sources
        if made_from is not None and made_from.sources is not None:
            for target, facts in found.items():
                if all(fact.outcome in _CACHED_OUTCOMES for fact in facts):
                    entry = _CachedFacts(facts=facts, sources=made_from.sources)
                    key = self._facts_key(made_from.code, subject, target)
                    self._cache.put("facts", key, entry.model_dump(mode="json"))
        return found

    def _facts_key(self, code: str, subject: Subject, target: str) -> str:
        return digest_of(self._toolchain, code, subject.case_id, subject.implementation, target)

    def _cached(self, kind: str, key: str, model: type[_Entry]) -> _Entry | None:
        try:
            entry = model.model_validate(self._cache.get(kind, key))
        except ValidationError:
            return None
        return entry if entry.sources.are_unchanged else None

    def _start_workers(self, count: int) -> list[Worker]:
        if not self._workers:
            self._fork_server.warm_up()
        while len(self._workers) < count:
            worker = Worker(self._fork_server, self._source, device="cpu", thread_count=1, is_watched=True)
            self._workers.append(self._stack.enter_context(worker))
        return self._workers[:count]


def _in_order(facts: dict[str, tuple[StaticFacts, ...]], targets: Sequence[str]) -> tuple[StaticFacts, ...]:
    return tuple(fact for target in targets for fact in facts[target])
