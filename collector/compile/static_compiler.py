"""What a suite's cases compile to for GPUs that are not here: from the store where that still holds, else by worker
processes of its own, one for each core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Self

from roofwatch.collector.compile.fact_cache import KnownFacts, Listing
from roofwatch.collector.compile.static_store import StaticStore
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import CompileStatic, compile_limit, explained
from roofwatch.collector.workers.worker import Worker
from roofwatch.collector.workers.worker_pool import run_parallel


@dataclass(frozen=True)
class CompiledSubject:
    """What one case and implementation compile to."""

    subject: Subject
    facts: tuple[StaticFacts, ...]
    """Target by target, in the order that was asked for."""
    was_known: bool
    """Nothing had to be compiled for it."""


class StaticCompiler:
    """Of one suite; used as a context, at whose end its processes are gone.

    Args:
        fork_server: Forks the processes, as soon as something is not known.
        source: The suite.
        store: What was found out before; that of the user if left out.
        worker_count: Processes that compile side by side; one for each core if left out.
        timeout_s: For one case and implementation.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        source: SuiteSource,
        *,
        store: StaticStore | None = None,
        worker_count: int | None = None,
        timeout_s: float,
    ) -> None:
        self._fork_server = fork_server
        self._source = source
        self._store = store or StaticStore.of_user()
        self._worker_count = worker_count or len(os.sched_getaffinity(0))
        self._timeout_s = timeout_s
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
            on_loading: Called if they are not known, before a process is started that loads the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        known = self._known.listing()
        if known is None:
            on_loading()
            known = self._known.learn_listing(self._as_many_as(1)[0])
        return known

    def compile(
        self, subjects: Sequence[Subject], targets: Sequence[str], listing: Listing | None = None
    ) -> Iterator[CompiledSubject]:
        """Compile each subject for each target: what is known comes first.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        known = self._known_facts(listing or self.listing(), subjects, targets)
        missing: list[CompileStatic] = []
        for subject in subjects:
            lacking = tuple(target for target in targets if target not in known[subject])
            if lacking:
                missing.append(CompileStatic(**subject.named, targets=lacking))
            else:
                yield CompiledSubject(subject, _in_order(known[subject], targets), was_known=True)
        if not missing:
            return
        crew = self._as_many_as(min(len(missing), self._worker_count))
        # cases of a kernel share code, which is then compiled once
        compiled = run_parallel(
            crew, missing, group=lambda job: job.case_id.partition("/")[0], timeout_s=self._timeout_s
        )
        for job, reply, _ in compiled:
            subject = Subject(job.case_id, job.implementation)
            told = reply.model_copy(update={"failure": explained(reply.failure, compile_limit(self._timeout_s))})
            known[subject] |= self._known.learn_facts(subject, job.targets, told)
            yield CompiledSubject(subject, _in_order(known[subject], targets), was_known=False)
        self._store.shrink()

    @cached_property
    def _known(self) -> KnownFacts:
        return KnownFacts(self._store, self._source)

    def _known_facts(
        self, listing: Listing, subjects: Sequence[Subject], targets: Sequence[str]
    ) -> dict[Subject, dict[str, tuple[StaticFacts, ...]]]:
        return {
            subject: {
                target: found
                for target in targets
                if (found := self._known.facts(listing, subject, target)) is not None
            }
            for subject in subjects
        }

    def _as_many_as(self, count: int) -> list[Worker]:
        if not self._workers:
            self._fork_server.warm_up()
        while len(self._workers) < count:
            worker = Worker(self._fork_server, self._source, device="cpu", thread_count=1, is_watched=True)
            self._workers.append(self._stack.enter_context(worker))
        return self._workers[:count]


def _in_order(facts: dict[str, tuple[StaticFacts, ...]], targets: Sequence[str]) -> tuple[StaticFacts, ...]:
    return tuple(fact for target in targets for fact in facts[target])
