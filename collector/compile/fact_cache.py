"""What was found out of a suite before, and whether it still holds.

Two kinds of answers are kept. The *list* of a suite's kernels holds while every file, folder and variable is unchanged
that was read to load it. The *facts* of a case, an implementation and a target have a key of all that decides them: the
toolchain, the kernel's own modules wherever they lie, and the case; they hold while what was read beside the modules,
such as a `.cu` file, is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from roofwatch.collector.compile.sources import Sources
from roofwatch.collector.compile.static_store import StaticStore, digest_of
from roofwatch.collector.compile.toolchain import toolchain_digest
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource, benchmark_files
from roofwatch.collector.workers.protocol import DescribeSources, Failure, Reply, SuiteInfo
from roofwatch.collector.workers.worker import Worker

_DESCRIBE_TIMEOUT_S = 60.0
_WORTH_KEEPING = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
"""What failed may have failed for want of memory: it is tried again."""


@dataclass(frozen=True)
class Listing:
    """The kernels of a suite, and a digest of the modules that each may use."""

    info: SuiteInfo
    closures: dict[str, str]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _KnownListing(_Entry):
    info: SuiteInfo
    closures: dict[str, str]
    sources: Sources


class _KnownFacts(_Entry):
    facts: tuple[StaticFacts, ...]
    sources: Sources


Entry = TypeVar("Entry", bound=_Entry)


class KnownFacts:
    """Of one suite.

    Args:
        store: Where they are kept.
        source: The suite.
    """

    def __init__(self, store: StaticStore, source: SuiteSource) -> None:
        self._store = store
        self._source = source
        self._toolchain = toolchain_digest()

    def listing(self) -> Listing | None:
        """The suite as it would be loaded now; None if that is not known."""
        known = _parsed(_KnownListing, self._store.get("suites", self._listing_key()))
        if known is None or not known.sources.are_unchanged:
            return None
        return Listing(known.info, known.closures)

    def learn_listing(self, worker: Worker) -> Listing:
        """Have a worker load the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        info = worker.start()
        found = worker.request(DescribeSources(), timeout_s=_DESCRIBE_TIMEOUT_S).suite_sources
        if found is None:
            raise CollectorError("what the suite is made from cannot be told; leave the cache out with --no-cache")
        if found.sources is not None:
            known = _KnownListing(info=info, closures=found.closures, sources=found.sources)
            self._store.put("suites", self._listing_key(), known.model_dump(mode="json"))
        return Listing(info, found.closures)

    def facts(self, listing: Listing, subject: Subject, target: str) -> tuple[StaticFacts, ...] | None:
        """The facts of a case, implementation and target; None if they are not known."""
        closure = listing.closures[subject.case_id.partition("/")[0]]
        known = _parsed(_KnownFacts, self._store.get("facts", self._facts_key(closure, subject, target)))
        return known.facts if known is not None and known.sources.are_unchanged else None

    def learn_facts(
        self, subject: Subject, targets: tuple[str, ...], reply: Reply
    ) -> dict[str, tuple[StaticFacts, ...]]:
        """By target what a worker replied, a failure too; what will be the same next time is kept."""
        if reply.static_facts is None:
            assert reply.failure is not None
            return {target: (_failed_facts(subject, target, reply.failure),) for target in targets}
        found = {target: tuple(fact for fact in reply.static_facts if fact.target == target) for target in targets}
        if reply.case_sources is not None and reply.case_sources.sources is not None:
            for target, facts in found.items():
                if all(fact.outcome in _WORTH_KEEPING for fact in facts):
                    key = self._facts_key(reply.case_sources.closure, subject, target)
                    known = _KnownFacts(facts=facts, sources=reply.case_sources.sources)
                    self._store.put("facts", key, known.model_dump(mode="json"))
        return found

    def _listing_key(self) -> str:
        path = self._source.path
        files = [] if path is None else [str(file) for file in benchmark_files(path)]
        roots = [str(root) for root in self._source.import_roots]
        return digest_of(self._toolchain, str(path), files, roots, self._source.module)

    def _facts_key(self, closure: str, subject: Subject, target: str) -> str:
        return digest_of(self._toolchain, closure, subject.case_id, subject.implementation, target)


def _parsed(kind: type[Entry], value: object) -> Entry | None:
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


def _failed_facts(subject: Subject, target: str, failure: Failure) -> StaticFacts:
    """What stands for the facts of a case that could not be compiled at all."""
    return StaticFacts(
        case_id=subject.case_id,
        implementation=subject.implementation,
        function=subject.implementation,
        target=target,
        outcome=failure.outcome,
        message=failure.message,
    )
