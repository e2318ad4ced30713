"""Run a case once, and measure torch's own errors, which limit those of other implementations."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from roofwatch.collector.accuracy.deviation import (
    deviation,
    has_same_bits,
)
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
    evaluate,
    prepare,
)
from roofwatch.model.check_report import Errors
from roofwatch.spec import (
    Case,
    Direction,
    Implementation,
    KernelSpec,
    Language,
)

BASELINE_NAME = "torch"
"""Name of the torch implementation that limits the error of the others."""


_EAGER = "the torch implementation"


@contextmanager
def poisoned_buffers() -> Iterator[None]:
    """Fill new uninitialised tensors with NaN, or with the largest integer, to expose missing
    stores.

    Source: torch.utils.deterministic.fill_uninitialized_memory, on by default in torch's
    deterministic mode.
    """
    previous_mode = torch.get_deterministic_debug_mode()
    # operations without a deterministic version may stay as they are, so warn only;
    # torch.use_deterministic_algorithms would import the compiler, which takes seconds
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(previous_mode)


@dataclass(frozen=True)
class Baseline:
    """Errors of the torch implementation, with the same precision, inputs and device."""

    missing: str | None = None
    """Why there is none; then only the caps apply."""
    errors: Mapping[str, Errors] = field(default_factory=dict)
    """By output and gradient, except non-finite ones."""
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    least_limits: Mapping[str, Errors] = field(default_factory=dict)
    """Of results of few elements at values that the spec does not draw."""


class CheckCache:
    """Keeps the last case with its reference, and all baselines, for the next implementation or
    layout.
    """

    def __init__(self) -> None:
        self._last: PreparedCase | None = None
        self._baselines: dict[tuple[str, str], Baseline] = {}
        self._varied: dict[str, tuple[PreparedCase, dict[str, Baseline]]] = {}

    def prepare(self, spec: KernelSpec, case: Case, device: str) -> PreparedCase:
        """Make the inputs and evaluate the reference, unless the last case was the same."""
        last = self._last
        if last is None or last.spec is not spec or (last.case, last.device) != (case, device):
            self.free()  # the device may not have memory for two cases
            self._last = prepare(spec, case, device)
        assert self._last is not None
        return self._last

    def free(self) -> None:
        self._last = None
        self._varied = {}

    def vary(
        self,
        prepared: PreparedCase,
        implementation: Implementation,
        change: Callable[[PreparedCase], PreparedCase],
        name: str,
    ) -> tuple[PreparedCase, Baseline]:
        """The case with other values, and its baseline, made once for all implementations."""
        if name not in self._varied:
            self._varied[name] = change(prepared), {}
        varied, baselines = self._varied[name]
        eager, missing = _baseline_implementation(varied, implementation)
        if eager is None:
            return varied, Baseline(missing=missing)
        if eager.name not in baselines:
            baselines[eager.name] = measure_baseline(varied, eager.launch, _EAGER)
        return varied, baselines[eager.name]

    def baseline(self, prepared: PreparedCase, implementation: Implementation) -> Baseline:
        """The baseline for an implementation, measured once per case and device."""
        eager, missing = _baseline_implementation(prepared, implementation)
        if eager is None:
            return Baseline(missing=missing)
        key = (prepared.case.id, prepared.device)
        if key not in self._baselines:
            self._baselines[key] = measure_baseline(prepared, eager.launch, _EAGER)
        return self._baselines[key]


def run_once(
    prepared: PreparedCase,
    implementation: Implementation,
    launch: Callable[..., Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Run a case once and restore changed inputs; buffers are poisoned unless the implementation is
    torch code.

    Raises:
        IncorrectResultError: an input was changed, or the result cannot be compared.
    """
    with nullcontext() if implementation.language is Language.TORCH else poisoned_buffers():
        actual = evaluate(
            launch=launch or implementation.launch,
            spec=prepared.spec,
            case=prepared.case,
            inputs=prepared.inputs,
            who=implementation.name,
            upstream=prepared.upstream,
        )
    if prepared.spec.mutates:
        actual = {
            name: output.clone() for name, output in actual.items()
        }  # they are inputs, which are restored
    changed = []
    for name, original in prepared.originals.items():
        if not has_same_bits(original, prepared.inputs[name]):
            if name not in prepared.spec.mutates:
                changed.append(name)
            if 0 not in prepared.inputs[name].stride():
                with torch.no_grad():
                    prepared.inputs[name].copy_(original)
    if changed:
        raise IncorrectResultError(
            f"changes its input {', '.join(changed)}; work on a copy or return a new tensor"
        )
    return actual


def _baseline_implementation(
    prepared: PreparedCase, implementation: Implementation
) -> tuple[Implementation | None, str | None]:
    """The torch implementation that limits another one's errors, or why there is none."""
    eager = prepared.spec.implementations.get(BASELINE_NAME)
    if eager is None or eager.language is not Language.TORCH or eager.is_compiled:
        return None, "there is no torch implementation"
    if implementation.name == eager.name:
        return None, "it is the baseline itself"
    if prepared.case.direction not in eager.directions:
        return None, f"the torch implementation has no {prepared.case.direction}"
    return eager, None


def measure_baseline(prepared: PreparedCase, launch: Callable[..., Any], name: str) -> Baseline:
    """Errors of torch code in the precision of the case; an error message calls it `name`."""
    eager = Implementation(
        name=BASELINE_NAME,
        language=Language.TORCH,
        launch=launch,
        directions=frozenset(Direction),
    )
    try:
        results = run_once(prepared, eager)
    except Exception as error:  # noqa: BLE001  a user's code; without a baseline the caps apply
        return Baseline(missing=f"{name} failed: {type(error).__name__}: {error}")
    expected_shapes = {name: tensor.shape for name, tensor in prepared.expected.items()}
    if {name: tensor.shape for name, tensor in results.items()} != expected_shapes:
        return Baseline(missing=f"{name} returns other tensors than the reference")
    deviations = {
        name: deviation(expected, results[name], least_rms=prepared.least_rms.get(name, 0.0))
        for name, expected in prepared.expected.items()
    }
    return Baseline(
        errors={
            name: difference.errors
            for name, difference in deviations.items()
            if difference.nonfinite_count == 0
        },
        dtypes={name: result.dtype for name, result in results.items()},
    )
