"""What was ingested reads back equal."""

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_cases, load_record
from roofwatch.db.queries.runs import read_run_detail
from roofwatch.db.schema.runs import CaseRow, RunRow
from roofwatch.model.machine import DeviceState, Outcome, Telemetry
from roofwatch.model.measurement import (
    AutotuneTiming,
    Autotuning,
    Block,
    CacheState,
    MemoryUse,
    Timer,
)
from roofwatch.model.record import PairMember, RunRecord, Side
from roofwatch.model.regime import Regime
from roofwatch.model.results import CaseProfile, CodeEstimate, Counters, ProfilerFinding
from tests.builders import (
    make_accuracy,
    make_activity,
    make_case,
    make_ceiling,
    make_commit,
    make_environment,
    make_imported,
    make_measurement,
    make_profile,
    make_record,
    make_static_facts,
    make_tensor_error,
)
from tests.databases import ingest_all, stored_record

BACKWARD = "swiglu/n_rows=3,N=5,M=7,routing=zipf/bfloat16/bwd"


_USE: dict[str, Any] = {
    "timer": Timer.CUPTI,
    "cache": CacheState.ROTATED,
    "memory": MemoryUse(
        peak_allocated_bytes=7, peak_reserved_bytes=9, allocation_count=2, fragmentation=1 / 3
    ),
    "autotuning": (
        Autotuning(
            function="_body",
            key="(64, 'fp16')",
            chosen={"BLOCK": 64, "num_warps": 4},
            timings=(
                AutotuneTiming(configuration={"BLOCK": 64, "num_warps": 4}, time_ns=1e4),
                AutotuneTiming(configuration={"BLOCK": 128, "num_warps": 8}, time_ns=None),
            ),
            duration_ns=10**9,
        ),
    ),
}


def full_record(**fields: Any) -> RunRecord:
    """A record with something in every field."""
    uneven = (
        Block(
            started_at=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
            samples_ns=(0.1, 1e9, 7.0),
            span_ns=(0.2, 2e9, 8.0),
            host_ns=1 / 3,
            launch_delay_ns=0.0,
            kernel_count=2,
            is_kernel_set_varying=True,
            device_state=DeviceState(
                reading_count=3, power_w=0.1, clock_event_reasons=("sw_power_cap",)
            ),
        ),
        Block(started_at=datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC), samples_ns=(1 / 3,)),
    )
    return make_record(
        3,
        measurements=[
            make_measurement(
                implementation="triton",
                blocks=uneven,
                launches_per_sample=10,
                utilisation=1 / 7,
                **_USE,
            ),
            make_measurement(BACKWARD, outcome=Outcome.OUT_OF_MEMORY),
            make_measurement(bound=None, utilisation=None),
        ],
        ceilings=[make_ceiling(up_to_bytes=2**25)],
        cases=[
            make_case(tags=("quick", "70b"), bus_bytes=1e9 / 3, token_count=64.0),
            make_case(BACKWARD),
        ],
        accuracies=[
            make_accuracy(
                BACKWARD,
                tensors=[
                    make_tensor_error(tensor=name, baseline_rmse_ratio=share)
                    for name, share in (("out", 1 / 3), ("grad_x", 0.0), ("grad_w", None))
                ],
                regimes=[make_tensor_error(regime=Regime.PEAKED, passed=False)],
            ),
            make_accuracy(
                implementation="triton", executor="interpreter", outcome=Outcome.INCORRECT
            ),
            make_accuracy(outcome=Outcome.CRASHED),
        ],
        imported=[
            make_imported(low=1 / 3, high=2.0, sample_count=7),
            make_imported(BACKWARD, outcome=Outcome.CRASHED, message="it failed", unit=""),
        ],
        static_facts=[
            make_static_facts(
                target="gfx942",
                toolchain={"triton": "3.7.1", "llvm": "22"},
                thread_count=256,
                accumulation_registers=64,
                scalar_registers=40,
                spilled_registers=12,
                spill_store_count=3,
                spill_load_count=4,
                local_bytes=None,
                static_shared_bytes=128,
                tensor_memory_columns=0,
                theoretical_occupancy=1 / 3,
                occupancy_limits=("registers", "shared memory"),
                instruction_count=300,
                instructions={"tensor.mfma": 32, "global_load.128": 4},
                compile_ns={"ttir": 10**9, "hsaco": 3},
            ),
            make_static_facts(
                configuration={"z": 1, "a": 1e20, "m": 0.1, "none": None, "flag": True, "text": "ü"}
            ),
            make_static_facts(
                function="_estimated_kernel",
                code="second version",
                estimate=CodeEstimate(
                    predicted_ns=1e6 / 3,
                    variants_ns=(1e6 / 3, 5e5),
                    limit="memory",
                    bounds_ns={"memory": 1e6 / 3, "issue": 1.5},
                    element_count=4_096,
                    instructions_per_element=1 / 7,
                    has_unknown_trips=True,
                ),
            ),
            make_static_facts(BACKWARD, outcome=Outcome.COMPILE_ERROR),
        ],
        counters=[
            Counters(
                case_id=BACKWARD,
                implementation="triton",
                function="_body",
                launch_index=index,
                values={"dram_bytes": 1e9 / 3, "achieved_occupancy": 0.5},
                findings=(
                    ProfilerFinding(rule="SOLBottleneck", message="slow", estimated_speedup=0.25),
                ),
            )
            for index in range(2)
        ],
        profiles=[
            make_profile(
                BACKWARD,
                make_activity(
                    "void gemm<float, 128>(Grüße)",
                    count=6,
                    total_ns=6_000,
                    max_ns=1_500,
                    grid=(128, 1, 1),
                    block=(256, 1, 1),
                    registers=64,
                    shared_bytes=0,
                    estimated_occupancy=1 / 3,
                ),
                make_activity("Memcpy DtoD", kind="memcpy", total_ns=1_500, bytes=2**40),
                span_ns=9_000,
                busy_ns=8_000,
                launch_delay_ns=-1 / 3,
                left_out_count=7,
                left_out_ns=500,
            ),
            CaseProfile(
                case_id=BACKWARD, implementation="torch", call_count=1, span_ns=0, busy_ns=0
            ),
        ],
        preset="quick",
        telemetry=Telemetry(
            status="ok",
            started_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
            offset_ms=(0.0, 50.5),
            sm_clock_mhz=(1980.0, None),
            clock_event_reasons=(("sw_power_cap",), ()),
        ),
        spent_ns={"timing": 10**12, "check": 1},
        commit=make_commit(3, is_dirty=True, branch=None, subject="Grüße, 世界"),
        environment=make_environment(
            device_kind="cuda",
            power_limit_w=699.5,
            driver_version="580.1",
            compute_capability="9.0",
        ),
        pairing=PairMember(pair_id=uuid.uuid4(), side=Side.HEAD),
        **fields,
    )


def read_back(store: Engine, record: RunRecord) -> RunRecord:
    ingest_record(store, record)
    return stored_record(store, record.run_id)


def test_a_record_with_everything_reads_back_equal_to_the_byte(store: Engine) -> None:
    record = full_record()

    loaded = read_back(store, record)

    assert loaded == record
    assert loaded.content_hash == record.content_hash


def test_times_of_other_zones_read_back(store: Engine) -> None:
    somewhere = timezone(timedelta(hours=5, minutes=30))
    record = make_record(
        commit=make_commit(committed_at=datetime(2026, 3, 1, 17, 30, tzinfo=somewhere))
    )

    loaded = read_back(store, record)

    assert loaded == record
    assert loaded.commit.committed_at.isoformat() == "2026-03-01T12:00:00+00:00"
    assert loaded.content_hash == record.content_hash


def test_what_has_no_column_reads_back(store: Engine) -> None:
    document = json.loads(make_record().to_json())
    where = {
        "kernel": "rms_norm",
        "implementation": "triton",
        "function": "_kernel",
        "file": "a/b.py",
        "line": 3,
    }
    document["source_lines"] = [where | {"is_jitted": True}, where | {"line": 5}]
    document["skipped"] = ["softmax"]
    record = RunRecord.from_json(json.dumps(document).encode(), name="record.json")

    loaded = read_back(store, record)

    assert loaded == record
    assert loaded.content_hash == record.content_hash


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            make_record(0, cases=[make_case(flop_count=100.0, family="first")]),
            make_record(1, cases=[make_case(flop_count=200.0, family="second")]),
        ),
        (
            make_record(commit=make_commit(branch="feature", is_dirty=True)),
            make_record(commit=make_commit(branch="main")),
        ),
    ],
    ids=["of a case, its cost and family", "of a commit, its branch and state"],
)
def test_each_run_keeps_what_it_recorded(
    store: Engine, first: RunRecord, second: RunRecord
) -> None:
    ingest_record(store, first)

    assert read_back(store, second) == second
    assert stored_record(store, first.run_id) == first


@pytest.fixture
def without_samples(store: Engine) -> RunRecord:
    """A stored record whose samples were removed."""
    record = make_record(measurements=[make_measurement()], accuracies=[make_accuracy()])
    ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(text("DELETE FROM sample_set"))
    return record


def test_a_record_without_samples_is_not_loaded(store: Engine, without_samples: RunRecord) -> None:
    run_id = without_samples.run_id

    with (
        Session(store) as session,
        pytest.raises(StoreError, match=f"run {run_id}: its samples are no longer kept"),
    ):
        load_record(session, run_id)


def test_the_summary_of_a_record_without_samples_remains(
    store: Engine, without_samples: RunRecord
) -> None:
    with Session(store) as session:
        detail = read_run_detail(session, without_samples.run_id)

    assert detail is not None
    assert [(case.median_ns, case.sample_count) for case in detail.cases] == [(10_000, 6)]


def test_other_results_of_a_record_without_samples_remain(
    store: Engine, without_samples: RunRecord
) -> None:
    case_id = without_samples.measurements[0].case_id
    with Session(store) as session:
        (case,) = load_cases(
            session, RunRow.run_id == without_samples.run_id, CaseRow.name == case_id
        )

    assert (case.measurements, case.accuracies) == ((), without_samples.accuracies)


def test_a_record_is_read_as_far_as_it_is_about_one_case(store: Engine) -> None:
    whole, other = full_record(), make_record(1, measurements=[make_measurement(BACKWARD)])
    # one run of the commit compiled its code, another did not
    clean = whole.model_copy(update={"run_id": uuid.uuid4(), "commit": make_commit(3)})
    uncompiled = make_record(3, measurements=[make_measurement(BACKWARD)])
    ingest_all(store, whole, other, clean, uncompiled)

    with Session(store) as session:
        run_ids = [whole.run_id, other.run_id, uncompiled.run_id]
        records = load_cases(session, RunRow.run_id.in_(run_ids), CaseRow.name == BACKWARD)

    found = {record.run_id: record for record in records}
    assert found[uncompiled.run_id].static_facts == found[whole.run_id].static_facts
    assert found[other.run_id].measurements == other.measurements
    parts = (
        "cases",
        "measurements",
        "accuracies",
        "static_facts",
        "counters",
        "profiles",
        "imported",
    )
    narrowed = {
        name: tuple(one for one in getattr(whole, name) if one.case_id == BACKWARD)
        for name in parts
    }
    assert narrowed["measurements"]
    assert len(narrowed["cases"]) < len(whole.cases)
    assert found[whole.run_id] == whole.model_copy(update=narrowed)


def test_a_run_that_is_not_there_is_named(store: Engine) -> None:
    run_id = uuid.uuid4()

    with (
        Session(store) as session,
        pytest.raises(StoreError, match=f"run {run_id}: not in this database"),
    ):
        load_record(session, run_id)
