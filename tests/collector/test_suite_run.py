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


@pytest.mark.parametrize(
    ("device", "plan", "cases"),
    [
        ("cpu", {}, ["tagged/n=1", "plain/n=1", "large/n=1"]),
        ("cuda", {}, ["tagged/n=2", "plain/n=1", "large/n=1"]),
        ("cpu", {"usual_tag": "quick"}, ["tagged/n=2", "plain/n=1", "large/n=1"]),
        ("cpu", {"tags": ("full",)}, ["tagged/n=2", "tagged/n=3", "large/n=1"]),
        ("cpu", {"tags": ("70b", "decode")}, ["tagged/n=3"]),
    ],
)
def test_cases_are_selected_by_tags_or_by_the_usual_tag_of_the_device(
    device: str, plan: dict[str, object], cases: list[str]
) -> None:
    assert selected(device, **plan) == cases


def test_an_unknown_tag_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SuiteError, match=r"a case tagged 90b; .* its cases the tags 70b 8b decode full quick small"):
        selected("cpu", tags=("90b",))
