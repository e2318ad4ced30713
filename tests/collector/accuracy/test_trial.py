"""One trial of a submission: what the judge itself draws and evaluates for it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from roofwatch import KernelSpec, cases
from roofwatch.collector.accuracy.trial import Bench
from roofwatch.collector.accuracy.variations import Test as About
from roofwatch.collector.accuracy.variations import Trial
from roofwatch.collector.workers.candidate_protocol import Arguments, CandidateError, Returned
from tests.roofwatch.spec.test_spec import declare

N = 1000


class InProcess:
    """Calls a function in place of a process of its own."""

    def __init__(self, launch: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._launch = launch

    def call(self, arguments: Arguments, **_options: Any) -> Returned:
        x = arguments.tensors["x"].clone().requires_grad_(True)
        outputs = {"out": self._launch(x)}
        if arguments.gradients:
            (gradient,) = torch.autograd.grad(outputs["out"], x, arguments.upstream[0])
            outputs["grad_x"] = gradient
        return Returned(outputs=outputs, elapsed_ns=1.0, kernels=(), changed_inputs=())


def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def bench_of(spec: KernelSpec, candidate: Callable[[torch.Tensor], torch.Tensor]) -> Bench:
    processes: dict[str, Any] = {"base": InProcess(square), "candidate": InProcess(candidate)}
    return Bench(spec=spec, device="cpu", against="torch", timeout_s=lambda: 60.0, **processes)


def spec_counting(evaluated: list[torch.Tensor]) -> KernelSpec:
    def reference(x: torch.Tensor) -> torch.Tensor:
        evaluated.append(x)
        return x * x

    declared = cases(shapes=[{"n": N}], dtypes=["float32"], directions=["bwd"])
    spec = declare(reference=reference, cases=declared)
    spec.implementation("torch")(square)
    return spec


def test_the_reference_is_evaluated_once_for_both_sides_of_a_trial() -> None:
    evaluated: list[torch.Tensor] = []
    spec = spec_counting(evaluated)
    bench = bench_of(spec, square)
    trial = Trial(About.LISTED, spec.cases[0])

    for trial_count in (1, 2):
        assert bench.try_once(trial)
        assert len(evaluated) == trial_count


def test_upstream_gradients_are_drawn_once_for_both_sides_of_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_counts: list[int] = []
    original = torch.randn

    def counted(length: int, **options: Any) -> torch.Tensor:
        drawn_counts.append(length)
        return original(length, **options)

    monkeypatch.setattr(torch, "randn", counted)
    spec = spec_counting([])

    assert bench_of(spec, square).try_once(Trial(About.LISTED, spec.cases[0]))

    # the input, and its upstream gradient
    assert drawn_counts == [N, N]


def test_a_wrong_candidate_is_found_beside_a_reference_that_was_evaluated_for_the_base() -> None:
    spec = spec_counting([])
    bench = bench_of(spec, lambda x: 1.1 * x * x)

    with pytest.raises(CandidateError, match="RMS error"):
        bench.try_once(Trial(About.LISTED, spec.cases[0]))


def test_an_earlier_pair_is_checked_against_its_own_reference() -> None:
    spec = spec_counting([])
    bench = bench_of(spec, square)
    trial = Trial(About.LISTED, spec.cases[0])
    earlier, _later = (bench.time_once(trial, is_base_first=True) for _ in range(2))

    bench.check(earlier)

    assert bench.checked_count == 1
