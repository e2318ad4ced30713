"""The page of `bench/gpu_evidence.py`, and its targets."""

import json
from pathlib import Path

from bench.gpu_page import compare_timers, page
from bench.gpu_plan import PREDICTIONS
from bench.gpu_targets import measured_targets
from roofwatch.kernels.registry import find_kernel
from roofwatch.model.results import CodeEstimate, StaticFacts
from roofwatch.spec import Case
from tests.builders import (
    CASE_ID,
    make_case,
    make_ceiling,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.collector.nvml import make_reading, telemetry_of

H200 = make_environment(
    device_kind="cuda",
    device_name="NVIDIA H200",
    compute_capability="9.0",
    driver_version="580.1",
)


def test_targets_compare_our_kernel_with_the_copy_and_with_its_rivals(tmp_path: Path) -> None:
    copy = "memory_copy/n=8/float32/fwd"
    norm = "rms_norm/n=8/float32/fwd"
    times_ns = [
        (copy, "torch", 100.0),
        (norm, "triton", 200.0),
        (norm, "compile", 250.0),
    ]
    record = make_record(
        measurements=[
            make_measurement(case, implementation=name, median_ns=ns) for case, name, ns in times_ns
        ]
    )

    share, speed = measured_targets(tmp_path, record)

    assert (share.value, share.is_met) == (0.5, False)
    assert (speed.value, speed.is_met) == (1.25, True)
    record.write(tmp_path / "quick.json.gz")
    (tmp_path / "submit.json").write_text('{"verdict": "not_faster", "reason": "as fast"}')
    text = page(tmp_path, {"noise": "no time left"})
    assert f"| {share.text} | 0.5 | no |" in text
    assert "- noise: no time left" in text
    assert "`submit`: not_faster, as fast" in text


def test_matmul_and_attention_have_rivals_of_their_own(tmp_path: Path) -> None:
    rivals = {"matmul": ("torch", 1.0), "attention": ("sdpa_cudnn", 0.9)}
    cases = {name: quick_case(name) for name in rivals}
    measurements = []
    for name, (rival, _) in rivals.items():
        for implementation, median_ns in ((rival, 95.0), ("triton", 100.0)):
            measurements.append(
                make_measurement(cases[name].id, implementation=implementation, median_ns=median_ns)
            )
    record = make_record(
        measurements=measurements,
        cases=tuple(
            make_case(
                case.id,
                kernel=name,
                family=find_kernel(name).family,
                direction=case.direction,
            )
            for name, case in cases.items()
        ),
    )

    targets = {target.text.split("/")[0]: target for target in measured_targets(tmp_path, record)}

    assert {name: (target.value, target.limit) for name, target in targets.items()} == {
        name: (0.95, limit) for name, (_, limit) in rivals.items()
    }


def quick_case(kernel: str) -> Case:
    return next(case for case in find_kernel(kernel).cases if "quick" in case.tags)


def test_timers_are_compared() -> None:
    cupti, event = (
        make_record(measurements=[make_measurement(median_ns=ns)]) for ns in (1_000, 1_100)
    )
    rows = list(
        compare_timers(
            {"cupti": cupti, "cuda_graph": make_record(measurements=[]), "cuda_event": event}
        )
    )

    assert rows[0] == "| case | implementation | cupti | cuda_graph | cuda_event | difference |"
    assert rows[2] == f"| {CASE_ID} | torch | 1 µs |  | 1.1 µs | 10.0% |"


def test_the_page_shows_each_timer_of_the_first_launches_and_why_one_failed(tmp_path: Path) -> None:
    times = {"copy": {"cupti": "TimerError: no permission", "cuda_event": 1_000.0}}
    (tmp_path / "contact.json").write_text(json.dumps({"times": times}))

    text = page(tmp_path, {})

    assert "- copy: cupti failed (TimerError: no permission), cuda_event 1 µs" in text
    # do_bench_cudagraph of Triton 3.6 does not
    assert "do_bench of Triton empties the cache before each launch; the others do not." in text


def test_the_page_sets_what_was_measured_beside_the_predictions_for_this_gpu(
    tmp_path: Path,
) -> None:
    def facts(function: str, target: str, predicted_ns: float) -> StaticFacts:
        estimate = CodeEstimate(
            predicted_ns=predicted_ns,
            variants_ns=(predicted_ns, 2 * predicted_ns),
            limit="memory",
            element_count=1,
            instructions_per_element=1.0,
        )
        return make_static_facts(
            CASE_ID,
            function=function,
            target=target,
            estimate=estimate,
        )

    predicted = [
        facts("first_kernel", "sm_90", 1_000.0),
        facts("second_kernel", "sm_90", 3_000.0),
        facts("first_kernel", "sm_100", 500.0),
    ]
    document = {"static_facts": [entry.model_dump(mode="json") for entry in predicted]}
    (tmp_path / PREDICTIONS).write_text(json.dumps(document))
    measurement = make_measurement(implementation="triton", median_ns=5_000.0)
    record = make_record(measurements=[measurement], environment=H200)
    record.write(tmp_path / "quick.json.gz")

    rows = [line for line in page(tmp_path, {}).splitlines() if line.startswith(f"| {CASE_ID} |")]

    assert rows == [f"| {CASE_ID} | memory | 4 µs | 4 µs to 8 µs | 5 µs | 1.25 |"]


def test_the_page_shows_counters_with_the_executed_beside_the_declared_arithmetic(
    tmp_path: Path,
) -> None:
    case = make_case(CASE_ID, flop_count=2e9)
    make_record(measurements=[make_measurement()], cases=(case,), environment=H200).write(
        tmp_path / "headlines.json.gz"
    )
    values = {"issue_slots_share": 0.87, "duration_ns": 5_000.0, "executed_flop_count": 4e9}
    call = {
        "case_id": CASE_ID,
        "implementation": "triton",
        "counters": [{"function": "_kernel", "values": values}],
    }
    (tmp_path / "counters-softmax.json").write_text(json.dumps({"calls": [call]}))

    (row,) = [line for line in page(tmp_path, {}).splitlines() if "_kernel" in line]

    assert row.startswith(f"| {CASE_ID} triton | _kernel | 5 µs |  | 87.0% |")
    assert row.endswith("| 4 GFLOP / 2 GFLOP |")


def test_the_page_names_the_state_of_the_gpu_and_shares_of_the_datasheet(tmp_path: Path) -> None:
    telemetry = telemetry_of([make_reading(0.0)], started_at=make_record().started_at)
    health = {"performance_state": 0.0, "ecc_uncorrected_errors": 1.0, "pcie_width": 16.0}
    ceiling = make_ceiling(
        resource="memory",
        level="dram",
        per_s=4.32e12,
        method="copy",
    )
    make_record(
        environment=H200,
        ceilings=(ceiling,),
        telemetry=telemetry.model_copy(update={"health": health}),
    ).write(tmp_path / "first.json.gz")

    text = page(tmp_path, {})

    assert "P0, PCIe x16, 0 corrected and 1 uncorrected ECC errors" in text
    assert "- memory dram: copy, 90% of peak (datasheet)" in text
