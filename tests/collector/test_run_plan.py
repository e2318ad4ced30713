"""What a plan selects of a suite, and where the time of a run went."""

import pytest

from roofwatch.collector.runs.case_run import select
from roofwatch.collector.runs.run_plan import Activity, RunPlan, SpentTime
from roofwatch.model.errors import SuiteError
from roofwatch.model.worker_protocol import KernelInfo, SuiteInfo
from roofwatch.tables.record_sentences import time_spent
from tests.builders import make_case, make_implementation_info, make_kernel_info, make_record


def kernel(name: str, *tags: tuple[str, ...]) -> KernelInfo:
    cases = [
        make_case(f"{name}/n={length}/float32/fwd", tags=words)
        for length, words in enumerate(tags, start=1)
    ]
    return make_kernel_info(name, cases=cases, implementations=(make_implementation_info(),))


KERNELS = (
    kernel("tagged", ("small",), ("quick", "full", "8b", "decode"), ("full", "70b", "decode")),
    kernel("plain", ()),
    kernel("large", ("full", "70b")),
)


def selected(device: str, **plan: object) -> list[str]:
    found = select(SuiteInfo(device=device, kernels=KERNELS), RunPlan(**plan))  # type: ignore[arg-type]
    return [one.case.case_id.removesuffix("/float32/fwd") for one in found]


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
def test_the_usual_tag_of_the_device_selects_cases_unless_tags_are_given(
    device: str, plan: dict[str, object], cases: list[str]
) -> None:
    assert selected(device, **plan) == cases


def test_an_unknown_tag_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        SuiteError, match=r"a case tagged 90b; .* its cases the tags 70b 8b decode full quick small"
    ):
        selected("cpu", tags=("90b",))


def test_time_of_an_activity_includes_that_of_an_earlier_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([0, 5, 10, 20, 20, 27])
    monkeypatch.setattr("roofwatch.collector.runs.run_plan.time.monotonic_ns", lambda: next(ticks))
    spent = SpentTime()
    spent.add_earlier({"check": 100})

    for activity in (Activity.CHECK, Activity.OVERHEAD, Activity.CHECK):
        with spent.on(activity):
            pass
    spent.move(Activity.TIMING, 7, source=Activity.OVERHEAD)
    spent.move(Activity.WARM_UP, 7, source=Activity.OVERHEAD)  # 3 remain

    assert list(spent.total_ns.items()) == [("check", 112), ("warm_up", 3), ("timing", 7)]


def test_the_time_spent_is_printed_in_one_line() -> None:
    record = make_record(spent_ns={"warm_up": 1_500_000_000, "timing": 8_500_000_000})
    assert time_spent(record) == "10 s: warm-up 15%, timing 85%"
    assert time_spent(make_record()) == "time spent: not recorded"
