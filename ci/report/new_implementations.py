"""Implementations that only the head has: correctness, compiled facts, and time against the other
implementations of the head. Evidence without a verdict. Pure.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.comparable import refuse_host_bound, refuse_timing
from roofwatch.ci.ab.compare import PairedEstimate, compare
from roofwatch.ci.judge.pairing import CaseResults, Pairing, SideResult
from roofwatch.ci.messages import Remark
from roofwatch.ci.static.facts import fact_values
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import metric
from roofwatch.model.results import StaticFacts

_SHOWN_FACTS = (
    "registers",
    "local_bytes",
    "shared_bytes",
    "theoretical_occupancy",
)
# more make the cell of the table unreadable
_MAX_RIVALS = 4
_MAX_FACTS = 6


@dataclass(frozen=True)
class Rival:
    """Another implementation of the head, against which a new one was timed in the same job."""

    implementation: str
    is_new: bool
    """Whether the base lacks it too."""
    comparison: PairedEstimate
    """With the other implementation as base, before any control of false discoveries."""
    case_count: int
    """Cases in which both were timed; `comparison` is of the slowest."""
    median_change: float
    """Median relative change over these cases."""


@dataclass(frozen=True)
class NewImplementation:
    """One implementation of one kernel, over all of its new cases."""

    kernel: str
    implementation: str
    case_ids: tuple[str, ...]
    """The slowest first."""
    right_count: int
    """Cases with a checked, right result."""
    rmse_ratio: float | None
    """Largest error of its cases."""
    median_ns: float | None
    """Of the slowest case."""
    rivals: tuple[Rival, ...]
    """The fastest first."""
    facts: tuple[StaticFacts, ...]
    """Compiled functions of the slowest case; those for the device if it was a target."""
    untimed_reason: str | None = None
    """Why there is no time."""

    @property
    def case_id(self) -> str:
        return self.case_ids[0]

    @property
    def result(self) -> str:
        """Whether its results are right, and the largest error."""
        case_count = len(self.case_ids)
        checked = f"right in {self.right_count} of {case_count} cases"
        if len(self.case_ids) == 1:
            checked = "right" if self.right_count else "not checked"
        if self.rmse_ratio is None:
            return checked
        definition = metric("rmse_ratio")
        error = definition.format(self.rmse_ratio)
        return f"{checked}, {definition.title} {error}"

    @property
    def compiled(self) -> Iterator[tuple[Remark, tuple[str, ...]]]:
        """Facts in words, each with the targets that have them."""
        groups = group_by(self.facts, _facts_in_words)
        for words, same_facts in list(groups.items())[:_MAX_FACTS]:
            targets = dict.fromkeys(facts.target for facts in same_facts)
            yield words, tuple(targets)

    @property
    def times(self) -> Iterator[Remark]:
        """One line for each rival, or why there is none."""
        if self.median_ns is None:
            yield Remark("not timed: {}", (self.untimed_reason or "no GPU",))
        elif not self.rivals:
            time = metric("median_ns").format(self.median_ns)
            yield Remark(f"{time}; no other implementation was timed")
        for rival in self.rivals:
            yield _time_in_words(rival)


def _time_in_words(rival: Rival) -> Remark:
    comparison = rival.comparison
    low, high = comparison.relative_interval
    interval = ""
    # a single pair of blocks has no interval
    if math.isfinite(high - low):
        interval = f" ({low:+.1%} to {high:+.1%})"
    base, head = (
        metric("median_ns").format(value) for value in (comparison.base_ns, comparison.head_ns)
    )
    change = f"{comparison.relative_change:+.1%}{interval}"
    text = f"{change} against {{}}: {base} → {head}"
    if rival.case_count > 1:
        text += f"; median of {rival.case_count} cases {rival.median_change:+.1%}"
    return Remark(text, (rival.implementation,))


def _facts_in_words(facts: StaticFacts) -> Remark:
    if facts.outcome is not Outcome.OK:
        return Remark(f"{{}}: {facts.outcome}", (facts.function,))
    values = fact_values(facts)
    words = [
        f"{metric(name).format(values[name])} {metric(name).title}"
        for name in _SHOWN_FACTS
        if name in values
    ]
    return Remark(f"{{}}: {', '.join(words)}", (facts.function,))


def find_new_implementations(
    pairing: Pairing,
    new: Iterable[CaseKey],
) -> tuple[NewImplementation, ...]:
    """Describe the cases and implementations that the base lacks, by kernel and implementation.

    Those that are unsupported and not checked are left out.
    """
    new_keys = set(new)
    groups: dict[CaseKey, list[tuple[str, SideResult]]] = defaultdict(list)
    for case_id, implementation in sorted(new_keys):
        result = pairing.head_results[case_id, implementation].summary
        # an implementation that cannot run here is no news
        if {result.measured, result.accuracy} <= {None, Outcome.UNSUPPORTED}:
            continue
        kernel = kernel_of(case_id)
        groups[kernel, implementation].append((case_id, result))
    implementations: list[NewImplementation] = []
    for (kernel, implementation), results in groups.items():
        slowest_first = sorted(results, key=lambda item: -(item[1].median_ns or 0.0))
        implementations.append(
            _describe(
                pairing,
                new_keys,
                kernel,
                implementation,
                slowest_first,
            )
        )
    return tuple(implementations)


def _describe(
    pairing: Pairing,
    new_keys: set[CaseKey],
    kernel: str,
    implementation: str,
    slowest_first: Sequence[tuple[str, SideResult]],
) -> NewImplementation:
    case_ids = tuple(case_id for case_id, _ in slowest_first)
    errors: list[float] = []
    right_count = 0
    for _, result in slowest_first:
        right_count += result.accuracy is Outcome.OK
        if result.rmse_ratio is not None:
            errors.append(result.rmse_ratio)
    # the slowest case stands for the others: its time, its code, and why it has none
    slowest_id, slowest = slowest_first[0]
    functions = pairing.head_results[slowest_id, implementation].code
    rivals = _rivals(
        results=pairing.head_results,
        new_keys=new_keys,
        case_ids=case_ids,
        implementation=implementation,
    )
    return NewImplementation(
        kernel=kernel,
        implementation=implementation,
        case_ids=case_ids,
        right_count=right_count,
        rmse_ratio=max(errors, default=None),
        median_ns=slowest.median_ns,
        rivals=tuple(rivals),
        facts=_facts_for_device(pairing.head.environment, functions),
        untimed_reason=slowest.message,
    )


def _rivals(
    results: Mapping[CaseKey, CaseResults],
    new_keys: set[CaseKey],
    case_ids: Sequence[str],
    implementation: str,
) -> list[Rival]:
    compared: dict[str, list[tuple[str, PairedEstimate]]] = defaultdict(list)
    for (case_id, name), rival_results in results.items():
        if case_id not in case_ids or name == implementation:
            continue
        timed = results[case_id, implementation].measurement
        rival = rival_results.measurement
        if timed is None or rival is None:
            continue
        comparison = _comparison(rival, timed)
        if comparison is not None:
            compared[name].append((case_id, comparison))
    rivals = []
    for name, comparisons in compared.items():
        slowest_id, slowest = max(comparisons, key=lambda item: item[1].head_ns)
        rivals.append(
            Rival(
                implementation=name,
                is_new=(slowest_id, name) in new_keys,
                comparison=slowest,
                case_count=len(comparisons),
                median_change=statistics.median(item.relative_change for _, item in comparisons),
            )
        )
    # what the project has comes first: a new kernel has no other
    ordered = sorted(rivals, key=lambda rival: (rival.is_new, rival.comparison.base_ns))
    return ordered[:_MAX_RIVALS]


def _comparison(base: Measurement, head: Measurement) -> PairedEstimate | None:
    """Compare two implementations by the blocks of one job; None if their times are not
    comparable.
    """
    if base.outcome is not Outcome.OK or head.outcome is not Outcome.OK:
        return None
    # a sample may be of more launches of a faster implementation
    same_launches = head.model_copy(update={"launches_per_sample": base.launches_per_sample})
    if refuse_timing(base, same_launches) or refuse_host_bound(base, head):
        return None
    return compare(
        [block.samples_ns for block in base.blocks],
        [block.samples_ns for block in head.blocks],
    )


def _facts_for_device(
    environment: Environment,
    functions: Sequence[StaticFacts],
) -> tuple[StaticFacts, ...]:
    target = environment.compile_target
    of_device = tuple(facts for facts in functions if facts.target == target)
    return of_device or tuple(functions)
