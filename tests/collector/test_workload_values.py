"""Values that follow from a workload's measurements, with their formulas."""

from typing import Any

import pytest

from roofwatch.collector.workload_values import ARRIVALS, Request, Served, serve, workload_values
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.measurement import CaseRecord, MemoryUse
from roofwatch.model.results import ImportedValue
from tests.builders import make_activity, make_blocks, make_case, make_measurement, make_profile

BLOCK = "hidden=256,ffn=688,H=4,H_KV=2,D=64"
STEP = f"transformer_inference/B=1,T=100,{BLOCK}/bfloat16/fwd"
PEAK = Ceiling(
    resource="compute",
    dtype="bfloat16",
    per_s=1e15,
    method="a datasheet, dense",
    source="datasheet",
)


def workload(case_id: str, **fields: float) -> CaseRecord:
    return make_case(case_id, family="workloads", **fields)


def values(*arguments: Any) -> dict[str, ImportedValue]:
    return {value.key: value for value in workload_values(*arguments)}


def test_utilisations_name_their_flop_with_the_source_of_the_peak() -> None:
    case, measured = workload(STEP, flop_count=5e11), make_measurement(STEP, median_ns=1e6)
    recomputing = make_profile(STEP, implementation=measured.implementation, flop_count=6e11)

    found = values([case], [measured], [recomputing], [PEAK])
    mfu, hfu = found["MFU (share, unknown)"], found["HFU (share, unknown)"]
    assert (mfu.value, hfu.value) == (0.5, 0.6)
    per_peak = "1e+06 ns / 1e+15 FLOP/s of bfloat16 (a datasheet, dense)"
    assert mfu.message == f"5e+11 FLOP of the model / {per_peak}"
    assert hfu.message == f"6e+11 FLOP executed, counted by torch.utils.flop_counter / {per_peak}"


def test_hfu_needs_a_profile() -> None:
    case, measured = workload(STEP, flop_count=5e11), make_measurement(STEP, median_ns=1e6)

    assert "HFU (share, unknown)" not in values([case], [measured], [], [PEAK])


def test_a_device_without_a_peak_has_no_utilisation() -> None:
    case, measured = workload(STEP, flop_count=5e11), make_measurement(STEP, median_ns=1e6)

    assert values([case], [measured], [], []) == {}


def test_a_kernel_has_no_mfu() -> None:
    measured = make_measurement(STEP, median_ns=1e6)

    assert values([make_case(STEP)], [measured], [], [PEAK]) == {}


def test_values_of_a_step_come_from_its_profile() -> None:
    memory = MemoryUse(
        peak_allocated_bytes=1, peak_reserved_bytes=2**20, allocation_count=1, fragmentation=0.25
    )
    blocks = tuple(
        block.model_copy(update={"kernel_count": 4}) for block in make_blocks([1e6, 1e6])
    )
    measured = make_measurement(STEP, implementation="triton", memory=memory, blocks=blocks)
    names = (
        "void norm<float, 4>(int)",
        "void (anonymous namespace)::norm<int>(float)",
        "_gate_kernel",
    )
    rows = [
        make_activity(name, count=6, total_ns=sum(calls_ns), call_ns=calls_ns)
        for name, calls_ns in zip(names, ((100, 80, 120), (67, 67, 66), (3, 3, 3)), strict=True)
    ]
    profile = make_profile(STEP, *rows, call_count=3, span_ns=1_000, busy_ns=800)

    found = values([workload(STEP)], [measured], [profile], [])
    assert {key: value.value for key, value in found.items()} == {
        "peak reserved memory (bytes, lower)": 2**20,
        "fragmentation (share, unknown)": 0.25,
        "busy share (share, unknown)": 0.8,
        # of all its variants in the median call; nothing below 1 %
        "share of step: norm (share, lower)": pytest.approx(167 / 170 * 509 / 1_000),
        "launches per step (launches, lower)": 4,
    }
    share = found["share of step: norm (share, lower)"]
    assert (share.low, share.high, share.sample_count) == pytest.approx(
        (0.49942, 0.50047, 3), rel=1e-4
    )


def test_latencies_of_a_decode_loop_need_the_time_of_a_prompt() -> None:
    prompt = make_measurement(STEP, median_ns=1e5)
    steps = [f"llama_decode/B={count},T=256,{BLOCK}/bfloat16/fwd" for count in (1, 64)]
    measured = [make_measurement(step, median_ns=1e6) for step in steps]
    cases = [workload(STEP, token_count=100), *map(workload, steps)]

    assert values(cases, measured, [], []) == {}
    found = values(cases, [prompt, *measured], [], [])
    assert {value.case_id for value in found.values()} == {steps[1]}
    assert all(value.outcome is Outcome.OK and value.message for value in found.values())
    # one step of 1 ms for each token, and now and then a prompt of at most 1024 tokens at 1 µs
    assert (found["TPOT p50 (ms, lower)"].value or 0) >= 1
    assert (found["TPOT p50 (ms, lower)"].value or 0) < 1.5
    assert found["ITL p50 (ms, lower)"].value == 1
    assert {
        f"{name} p{n} (ms, lower)" for name in ("TTFT", "ITL", "TPOT") for n in (50, 90, 99)
    } <= found.keys()
    assert "goodput TTFT to 200 ms, TPOT to 50 ms (requests/s, higher)" in found
    assert found["failed requests (requests, lower)"].value == sum(
        one.prompt_tokens + one.output_tokens > 256 for one in ARRIVALS
    )


def served(*requests: Request, most: int = 8) -> list[Served]:
    return serve(
        requests,
        prefill_ns_per_token=1.0,
        step_ns=lambda count: 100.0 + 10 * count,
        most_sequences=most,
    )


def test_a_request_alone_takes_a_step_for_each_token_after_its_prompt() -> None:
    (alone,) = served(Request(arrival_ns=1_000, prompt_tokens=50, output_tokens=3))

    assert list(alone.token_ns) == [1_050, 1_160, 1_270]
    assert (alone.ttft_ns, alone.tpot_ns) == (50, 110)


def test_a_request_of_one_token_has_no_time_per_further_token() -> None:
    (prompt_alone,) = served(Request(arrival_ns=0, prompt_tokens=10, output_tokens=1))

    assert (prompt_alone.token_ns, prompt_alone.tpot_ns) == ((10,), None)


def test_a_request_that_arrives_later_joins_between_two_steps() -> None:
    _, second = served(Request(0, 50, 3), Request(100, 40, 2))

    # it waits for the step that ends at 160, then its prompt runs
    assert list(second.token_ns) == [200, 320]
    assert second.ttft_ns == 100


def test_a_request_that_joins_delays_the_others() -> None:
    first, _ = served(Request(0, 50, 3), Request(100, 40, 2))

    # the prompt of the second runs between its last two steps, and the last has two sequences
    assert list(first.token_ns) == [50, 160, 320]


def test_a_full_batch_makes_requests_wait() -> None:
    first, second = served(Request(0, 50, 2), Request(0, 50, 2), most=1)

    assert second.ttft_ns == first.token_ns[-1] + 50


def test_every_stored_request_is_served_in_full() -> None:
    done = serve(ARRIVALS, prefill_ns_per_token=1e3, step_ns=lambda _: 1e6, most_sequences=4)

    assert {one.request for one in done} == set(ARRIVALS)
    assert all(len(one.token_ns) == one.request.output_tokens for one in done)
