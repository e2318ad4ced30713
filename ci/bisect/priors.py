"""Prior weights of the commits of a bisection: what each was built from. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

SAME_SOURCES = "no source of the kernel changed"
SAME_CODE = "the machine code is identical"
SAME_CODE_WEIGHT = 0.01
"""Prior weight of a commit with changed sources and identical machine code; 1 if the machine code
changed.
"""


@dataclass(frozen=True)
class BuildInputs:
    """What a series is built from at one commit."""

    sources: str | None = None
    """Digest of everything the kernel may use; None if unknown."""
    machine_code: str | None = None
    """Digest of the compiled code; None if nothing was compiled."""
    error: str = ""
    """Why the suite cannot be loaded."""


@dataclass(frozen=True)
class PriorWeight:
    value: float
    reason: str = ""
    """Why it is below 1."""


def compare_inputs(base: BuildInputs, head: BuildInputs) -> PriorWeight:
    """Weight the chance that performance changed between two commits."""
    if head.sources is not None and head.sources == base.sources:
        return PriorWeight(0.0, SAME_SOURCES)
    if head.machine_code is not None and head.machine_code == base.machine_code:
        return PriorWeight(SAME_CODE_WEIGHT, SAME_CODE)
    return PriorWeight(1.0)


def prior_weights(inputs: Sequence[BuildInputs]) -> list[PriorWeight]:
    """Weight each commit after the good end, given the inputs of the good end and of each commit.

    A commit that cannot be loaded gets the weight of the next one that can. If no sources changed
    at all, all weights are 1.
    """
    weights: list[PriorWeight] = []
    last_loaded = inputs[0]
    failed_count = 0
    for commit_inputs in inputs[1:]:
        if commit_inputs.error:
            failed_count += 1
            continue
        weight = compare_inputs(last_loaded, commit_inputs)
        weights += [weight] * (failed_count + 1)
        last_loaded = commit_inputs
        failed_count = 0
    weights += [PriorWeight(1.0)] * failed_count
    # something outside the sources changed, so any commit may have it
    if not any(weight.value for weight in weights):
        return [PriorWeight(1.0)] * len(weights)
    return weights
