"""Two records, each indexed once by case and implementation. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from roofwatch.model.case_key import CaseKey
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.results import Accuracy, CaseProfile, Counters, StaticFacts


@dataclass(frozen=True)
class SideResult:
    """How a case and implementation ended in one record, without its samples."""

    measured: Outcome | None
    """None without a measurement."""
    accuracy: Outcome | None
    message: str | None
    """Of the failure; None if there is none."""
    median_ns: float | None
    """None if it was not timed."""
    utilisation: float | None
    """Share of the roofline; None without a cost model."""
    rmse_ratio: float | None
    """Error of the worst tensor."""
    max_abs_error: float | None = None
    """Largest error of an element of any tensor."""
    tensor_count: int = 0
    """Tensors whose errors are all finite."""

    @property
    def failure(self) -> Outcome | None:
        """How it failed, a wrong result first; None if it works, or is not supported."""
        for outcome in (self.accuracy, self.measured):
            if outcome is not None and outcome.is_failure:
                return outcome
        return None


@dataclass
class CaseResults:
    """All results of one case and implementation in one record."""

    measurement: Measurement | None = None
    accuracy: Accuracy | None = None
    profile: CaseProfile | None = None
    code: list[StaticFacts] = field(default_factory=list)
    """One entry for each compiled function and target."""
    counters: list[Counters] = field(default_factory=list)
    """One entry for each profiled kernel of the call."""

    @property
    def has_run(self) -> bool:
        """Whether it was measured or checked, not only compiled."""
        return self.measurement is not None or self.accuracy is not None

    @property
    def is_compiled(self) -> bool:
        return any(facts.outcome is Outcome.OK for facts in self.code)

    @property
    def median_ns(self) -> float | None:
        if self.measurement is None:
            return None
        return self.measurement.median_ns

    @property
    def summary(self) -> SideResult:
        """What both outcomes say of the case, with its time and its largest error."""
        measured = None
        utilisation = None
        if self.measurement is not None:
            measured = self.measurement.outcome
            utilisation = self.measurement.utilisation
        if self.accuracy is None:
            return SideResult(
                measured=measured,
                accuracy=None,
                message=self._message,
                median_ns=self.median_ns,
                utilisation=utilisation,
                rmse_ratio=None,
            )
        worst = self.accuracy.worst
        rmse_ratio = None
        if worst is not None:
            rmse_ratio = worst.rmse_ratio
        tensors = self.accuracy.tensors
        return SideResult(
            measured=measured,
            accuracy=self.accuracy.outcome,
            message=self._message,
            median_ns=self.median_ns,
            utilisation=utilisation,
            rmse_ratio=rmse_ratio,
            max_abs_error=max((tensor.max_abs_error for tensor in tensors), default=None),
            tensor_count=len(tensors),
        )

    @property
    def _message(self) -> str | None:
        # a wrong result counts before a failed measurement, so its message does too
        for result in (self.accuracy, self.measurement):
            if result is not None and result.message:
                return result.message
        return None


_NOTHING = CaseResults()


def index_results(record: RunRecord) -> dict[CaseKey, CaseResults]:
    """Gather the results of a record by case and implementation."""
    results = defaultdict[CaseKey, CaseResults](CaseResults)
    for measurement in record.measurements:
        results[measurement.case_key].measurement = measurement
    for accuracy in record.accuracies:
        results[accuracy.case_key].accuracy = accuracy
    for profile in record.profiles:
        results[profile.case_key].profile = profile
    for facts in record.static_facts:
        results[facts.case_key].code.append(facts)
    for counters in record.counters:
        results[counters.case_key].counters.append(counters)
    return dict(results)


@dataclass(frozen=True)
class Pairing:
    """A base and a head to judge."""

    base: RunRecord
    head: RunRecord

    @cached_property
    def base_results(self) -> Mapping[CaseKey, CaseResults]:
        return index_results(self.base)

    @cached_property
    def head_results(self) -> Mapping[CaseKey, CaseResults]:
        return index_results(self.head)

    @property
    def keys(self) -> list[CaseKey]:
        """Cases and implementations of either side, sorted."""
        return sorted(self.base_results.keys() | self.head_results.keys())

    def of(self, key: CaseKey) -> tuple[CaseResults, CaseResults]:
        """Results of base and head; empty ones if a side lacks the case."""
        return self.base_results.get(key, _NOTHING), self.head_results.get(key, _NOTHING)

    def has_run(self, key: CaseKey) -> bool:
        """Whether a side measured or checked it, and did not only compile it."""
        base, head = self.of(key)
        return base.has_run or head.has_run

    @property
    def is_one_job(self) -> bool:
        """Whether both records are of one job with interleaved blocks, in either order."""
        base = self.base.pairing
        head = self.head.pairing
        if base is None:
            return False
        if head is None:
            return False
        return base.pair_id == head.pair_id

    @property
    def is_interleaved(self) -> bool:
        """Whether base and head are those of one job with interleaved blocks."""
        sides = [
            record.pairing.side for record in (self.base, self.head) if record.pairing is not None
        ]
        return self.is_one_job and sides == [Side.BASE, Side.HEAD]

    @property
    def is_one_runner(self) -> bool:
        """Whether both sides ran on one runner class."""
        return self.base.environment.runner_class == self.head.environment.runner_class
