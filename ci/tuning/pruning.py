"""Decides without a device which configurations are worth timing, and which is predicted fastest.

Pure. A configuration is pruned if it does not compile, no block of it fits onto a multiprocessor,
it spills where others do not, or the cycle model predicts it much slower under every assumption.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofwatch.ci.static.prediction import TimePrediction, compare_launches
from roofwatch.model.machine import Outcome
from roofwatch.model.results import CodeEstimate, StaticFacts
from roofwatch.model.tuning import ConfiguredCode, Loss, TriedConfiguration

_MIN_PRUNED = math.log(1.5)
"""Log ratio to the predicted best that no assumption may fall below: the model ranks loops and
bytes well, and small differences of occupancy and latency badly."""
_FEWEST_TIMED = 3
"""So many of the predicted best are timed whatever the model says of them."""
_TIED = math.log(1.05)
"""Below it, predictions of code that only moved differ by as much."""


class _Code(NamedTuple):
    estimates: tuple[CodeEstimate, ...]
    """Of all launches of the call; empty if one has none."""
    tried: TriedConfiguration


def prune(codes: Sequence[ConfiguredCode]) -> list[TriedConfiguration]:
    """Judge configurations by what they compile to, in their order; those without a loss remain.

    At least one remains, if any compiles and fits.
    """
    judged = _without_spills([_judge_alone(code) for code in codes])
    candidates = _by_predicted_time(judged)
    # by identity: two configurations may compile to the same code
    pruned: dict[int, TriedConfiguration] = {}
    for code in candidates[_FEWEST_TIMED:]:
        change = compare_launches(candidates[0].estimates, code.estimates)
        least_log_ratio, _ = change.log_interval
        if least_log_ratio >= _MIN_PRUNED:
            detail = _describe(code, change)
            lost = _lost(code.tried, Loss.PREDICTED_SLOWER, detail)
            pruned[id(code.tried)] = lost
    return [pruned.get(id(code.tried), code.tried) for code in judged]


def choose_predicted(codes: Sequence[ConfiguredCode]) -> list[TriedConfiguration]:
    """Choose the configuration that is predicted fastest, which comes first; say why others lost.

    None is chosen if the model has no estimate of any that compiles and fits.
    """
    judged = _without_spills([_judge_alone(code) for code in codes])
    candidates = _by_predicted_time(judged)
    # nothing compiles, fits and has an estimate
    if not candidates:
        return [_without_estimate(code.tried) for code in judged]
    best, *slower = candidates
    ranked = [best.tried]
    for code in slower:
        change = compare_launches(best.estimates, code.estimates)
        # predictions that are this close do not tell which is faster
        loss = Loss.PREDICTED_SLOWER
        if change.log_ratio < _TIED:
            loss = Loss.TIED
        ranked.append(_lost(code.tried, loss, _describe(code, change)))
    ranked_ids = {id(code.tried) for code in candidates}
    all_tried = [code.tried for code in judged]
    others = [tried for tried in all_tried if id(tried) not in ranked_ids]
    return [*ranked, *map(_without_estimate, others)]


def _by_predicted_time(judged: Iterable[_Code]) -> list[_Code]:
    """What has lost to nothing yet and has an estimate, the fastest first."""
    remaining = [code for code in judged if code.tried.loss is None]
    candidates = [code for code in remaining if code.estimates]
    return sorted(candidates, key=_predicted_ns)


def judge_code(code: ConfiguredCode) -> TriedConfiguration:
    """Judge one configuration by what it compiles to, without comparing it with others."""
    tried = _judge_alone(code).tried
    if tried.loss is None and tried.local_bytes:
        return _lost(
            tried=tried,
            loss=Loss.SPILLS,
            detail=f"{tried.local_bytes} B of local memory a thread",
        )
    return tried


def _judge_alone(code: ConfiguredCode) -> _Code:
    """Judge a configuration by its own launches: all must compile and fit onto the device."""
    failure = _failure_of(code.facts)
    if failure is not None:
        tried = TriedConfiguration(configuration=code.configuration)
        failed = _lost(
            tried=tried,
            loss=Loss.NOT_COMPILED,
            detail=failure,
        )
        return _Code(estimates=(), tried=failed)
    estimates = [facts.estimate for facts in code.facts if facts.estimate is not None]
    # a sum without one launch would be too small
    if len(estimates) < len(code.facts):
        estimates = []
    occupancies = [
        facts.theoretical_occupancy
        for facts in code.facts
        if facts.theoretical_occupancy is not None
    ]
    tried = TriedConfiguration(
        configuration=code.configuration,
        # no estimate is no time, rather than one of 0
        predicted_ns=sum(estimate.predicted_ns for estimate in estimates) or None,
        registers=max(facts.registers or 0 for facts in code.facts),
        shared_bytes=max(facts.shared_bytes or 0 for facts in code.facts),
        local_bytes=max(facts.local_bytes or 0 for facts in code.facts),
        theoretical_occupancy=min(occupancies, default=None),
    )
    # an occupancy of 0 means that no block fits
    if tried.theoretical_occupancy == 0:
        limits = _limits_of(code.facts)
        tried = _lost(
            tried=tried,
            loss=Loss.DOES_NOT_FIT,
            detail=f"no block fits: too much of {limits}",
        )
    return _Code(tuple(estimates), tried)


def _failure_of(facts: Sequence[StaticFacts]) -> str | None:
    """Why a call cannot run; None if all of its launches compiled."""
    # a call without kernels cannot be timed
    if not facts:
        return "launches nothing"
    for launch in facts:
        if launch.outcome is not Outcome.OK:
            return launch.message or str(launch.outcome)
    return None


def _limits_of(facts: Sequence[StaticFacts]) -> str:
    """The resources that one block exceeds."""
    limits: dict[str, None] = {}
    for fact in facts:
        if fact.theoretical_occupancy == 0:
            limits |= dict.fromkeys(fact.occupancy_limits)
    return " and ".join(limits)


def _without_spills(judged: Sequence[_Code]) -> list[_Code]:
    """Drop what spills, if something else does not."""
    candidates = [code.tried for code in judged if code.tried.loss is None]
    clean_count = sum(not tried.local_bytes for tried in candidates)
    # if all spill, spilling does not tell them apart
    if not clean_count:
        return list(judged)
    remaining: list[_Code] = []
    for code in judged:
        tried = code.tried
        if tried.loss is None and tried.local_bytes:
            detail = f"{tried.local_bytes} B of local memory a thread; {clean_count} have none"
            tried = _lost(tried, Loss.SPILLS, detail)
        remaining.append(code._replace(tried=tried))
    return remaining


def _predicted_ns(code: _Code) -> float:
    # kernels of a call run one after the other
    return sum(estimate.predicted_ns for estimate in code.estimates)


def _describe(code: _Code, change: TimePrediction) -> str:
    """What is predicted of a configuration, and what limits it."""
    slowest = max(code.estimates, key=lambda estimate: estimate.predicted_ns)
    return f"{change.in_words}; bound by {slowest.limit}"


def _without_estimate(tried: TriedConfiguration) -> TriedConfiguration:
    """Mark a configuration that the model cannot rank."""
    if tried.loss is not None:
        return tried
    return _lost(
        tried=tried,
        loss=Loss.UNKNOWN,
        detail="no estimate: its grid or the target's rates are not known",
    )


def _lost(
    tried: TriedConfiguration,
    loss: Loss,
    detail: str,
) -> TriedConfiguration:
    """Say why a configuration is not timed."""
    return tried.model_copy(update={"loss": loss, "detail": detail})
