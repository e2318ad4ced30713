"""What a plan selects of a suite."""

import pytest

from roofwatch.collector.errors import SuiteError
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.workers.protocol import ImplementationInfo, KernelInfo, SuiteInfo
from tests.builders import make_case

IMPLEMENTATIONS = (
    ImplementationInfo(
        name="eager",
        language="torch",
        directions=("fwd",),
        is_compiled=False,
        is_deterministic=False,
        unsupported_targets={},
    ),
)


def kernel(name: str, *tags: tuple[str, ...]) -> KernelInfo:
    return KernelInfo(
        name=name,
        family="other",
        formula="",
        source="",
        cases=tuple(
            make_case(f"{name}/n={length}/float32/fwd", tags=words) for length, words in enumerate(tags, start=1)
        ),
        edge_ids=(),
        implementations=IMPLEMENTATIONS,
    )


KERNELS = (
    kernel("tagged", ("small",), ("quick", "full", "8b", "decode"), ("full", "70b", "decode")),
    kernel("plain", ()),
    kernel("large", ("full", "70b")),
)


def selected(device: str, **plan: object) -> list[str]:
    run = SuiteRun(SuiteSource(), RunPlan(**plan))  # type: ignore[arg-type]
    run.select(SuiteInfo(device=device, kernels=KERNELS))
    return [subject.case_id.removesuffix("/float32/fwd") for subject in run.to_check]


def test_a_cpu_takes_small_cases_and_those_of_kernels_that_have_none() -> None:
    assert selected("cpu") == ["tagged/n=1", "plain/n=1", "large/n=1"]


def test_a_gpu_takes_quick_cases() -> None:
    assert selected("cuda") == ["tagged/n=2", "plain/n=1", "large/n=1"]


def test_a_plan_may_say_what_is_usual() -> None:
    assert selected("cpu", usual_tag="quick") == ["tagged/n=2", "plain/n=1", "large/n=1"]


def test_given_tags_must_all_be_there() -> None:
    assert selected("cpu", tags=("full",)) == ["tagged/n=2", "tagged/n=3", "large/n=1"]
    assert selected("cpu", tags=("70b", "decode")) == ["tagged/n=3"]


def test_tags_that_no_case_has_are_answered_with_those_there_are() -> None:
    with pytest.raises(SuiteError, match=r"a case tagged 90b; .* its cases the tags 70b 8b decode full quick small"):
        selected("cpu", tags=("90b",))
