"""The reference is evaluated once for the implementations of a case, and only if that changes nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

from roofwatch.collector.accuracy.accuracy import check_accuracy
from roofwatch.collector.accuracy.evaluation import References
from roofwatch.collector.record.machine import Outcome
from roofwatch.spec import KernelSpec, cases


def make_spec(evaluated: list[str], *, is_seeded: bool = True, factor: Any = 2.0) -> KernelSpec:
    """A kernel with two implementations; notes each evaluation of its reference."""

    def inputs(case: Any, make: Any) -> dict[str, Any]:
        x = make.normal(case["n"])
        return {"x": x if is_seeded else torch.randn_like(x), "factor": factor}

    def reference(x: torch.Tensor, factor: Any) -> torch.Tensor:
        evaluated.append("reference")
        return x * float(factor)

    spec = KernelSpec(
        name="scale",
        inputs=inputs,
        reference=reference,
        cases=cases(shapes=[{"n": 8}, {"n": 9}]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )
    spec.implementation("torch")(lambda x, factor: x * factor)
    spec.implementation("torch", name="other")(lambda x, factor: factor * x)
    spec.implementation("torch", name="spoils")(lambda x, factor: x.mul_(factor))
    return spec


def outcomes(spec: KernelSpec, references: References, *names: str) -> list[Outcome]:
    return [
        check_accuracy(spec, spec.implementations[name], case, references=references).outcome
        for case in spec.cases
        for name in names
    ]


def test_it_is_evaluated_once_for_each_case() -> None:
    evaluated: list[str] = []

    assert outcomes(make_spec(evaluated), References(), "eager", "other") == [Outcome.OK] * 4
    assert len(evaluated) == 2


@pytest.mark.parametrize(
    "changed",
    [{"is_seeded": False}, {"factor": Fraction(2)}],
    ids=["inputs that are drawn anew", "an input of which nothing is known"],
)
def test_it_is_evaluated_again_on_inputs_that_may_be_others(changed: dict[str, Any]) -> None:
    evaluated: list[str] = []
    spec, references = make_spec(evaluated, **changed), References()

    for _ in range(3):
        references.prepare(spec, spec.cases[0], "cpu")

    assert len(evaluated) == 3


def test_an_implementation_that_spoils_its_inputs_spoils_no_other() -> None:
    evaluated: list[str] = []

    found = outcomes(make_spec(evaluated), References(), "spoils", "eager")

    assert found == [Outcome.INCORRECT, Outcome.OK] * 2


def test_what_was_forgotten_is_evaluated_again() -> None:
    evaluated: list[str] = []
    spec, references = make_spec(evaluated), References()

    references.prepare(spec, spec.cases[0], "cpu")
    references.forget()
    references.prepare(spec, spec.cases[0], "cpu")

    assert len(evaluated) == 2
