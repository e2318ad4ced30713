"""Records of kernels with one known bottleneck each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose
from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Diagnosis, DiagnosisFinding
from roofwatch.model.machine import Ceiling, DeviceState, Environment, Outcome
from roofwatch.model.measurement import (
    AutotuneTiming,
    Autotuning,
    Block,
    CacheState,
    Measurement,
    Timer,
)
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CodeEstimate, Counters, ProfilerFinding, StaticFacts
from tests.builders import (
    NOON,
    make_case,
    make_ceiling,
    make_environment,
    make_measurement,
    make_profile,
    make_record,
    make_static_facts,
)

NORM = "rms_norm/n_rows=8192,n_cols=8192/bfloat16/fwd"
PRODUCT = "matmul/M=4096,N=4096,K=4096/bfloat16/fwd"
COLLECTIVE = "all_reduce/size=1048576,ranks=8/bfloat16/fwd"
CHAIN = "launch_chain/n_launches=12,n_elements=1024/float32/fwd"
EMPTY = "empty_launch/n_elements=1/float32/fwd"
COST: dict[str, dict[str, Any]] = {
    # 400 MB at 4 TB/s take 100 µs; a GFLOP at 800 TFLOP/s 1.25 µs
    NORM: {"flop_count": 1e9, "memory_bytes": 4e8},
    # 80 GFLOP at 800 TFLOP/s take 100 µs; 40 MB at 4 TB/s 10 µs
    PRODUCT: {"flop_count": 8e10, "memory_bytes": 4e7},
    COLLECTIVE: {"flop_count": 0.0, "memory_bytes": 4e6, "bus_bytes": 3.5e6},
    CHAIN: {"flop_count": 12_288.0, "memory_bytes": 8_192.0},
    EMPTY: {"flop_count": 1.0, "memory_bytes": 8.0},
}


def gpu(**fields: Any) -> Environment:
    known = {
        "device_kind": "cuda",
        "device_name": "Example GPU",
        "compute_capability": "9.0",
        "driver_version": "570",
    }
    return make_environment(**known | fields)


def gpu_ceilings() -> tuple[Ceiling, ...]:
    return (
        make_ceiling(per_s=4e12, method="copy"),
        make_ceiling(level="cache", per_s=8e12, up_to_bytes=2**20, method="rounds"),
        make_ceiling(
            resource="compute", level=None, dtype="float32", per_s=50e12, method="float32 matmul"
        ),
        make_ceiling(
            resource="compute", level=None, dtype="bfloat16", per_s=800e12, method="bfloat16 matmul"
        ),
    )


def timed(
    case_id: str,
    busy_ns: float,
    *,
    span_ns: float | None = None,
    state: DeviceState | None = None,
    blocks: tuple[Block, ...] | None = None,
    autotuning: tuple[Autotuning, ...] = (),
    implementation: str = "triton",
    **of_block: Any,
) -> Measurement:
    """A measurement by CUPTI, in two blocks of three equal launches."""
    one = Block(
        started_at=NOON,
        samples_ns=(busy_ns,) * 3,
        span_ns=(span_ns or busy_ns,) * 3,
        **{"host_ns": 8_000.0, "kernel_count": 1, "device_state": state or steady()} | of_block,
    )
    return make_measurement(
        case_id,
        implementation=implementation,
        timer=Timer.CUPTI,
        cache=CacheState.COLD,
        blocks=blocks or (one, one),
        autotuning=autotuning,
        bound=None,
        utilisation=None,
    )


def steady(**fields: Any) -> DeviceState:
    return DeviceState(**{"reading_count": 20, "sm_clock_mhz": 1_800.0} | fields)


def code(case_id: str, target: str = "sm_90", **fields: Any) -> StaticFacts:
    """Machine code without a problem by default."""
    fine: dict[str, Any] = {
        "function": "_kernel",
        "target": target,
        "theoretical_occupancy": 0.5,
        "occupancy_limits": ("registers",),
        "instruction_count": 300,
        "instructions": {"global_load.128": 8, "global_store.128": 4, "tensor.HGMMA": 16},
    }
    return make_static_facts(case_id, **fine | fields)


def counted(
    case_id: str, *, findings: tuple[ProfilerFinding, ...] = (), **values: float
) -> Counters:
    return Counters(
        case_id=case_id,
        implementation="triton",
        function="_kernel",
        values=values,
        findings=findings,
    )


def record(
    case_id: str,
    *measurements: Measurement,
    facts: tuple[StaticFacts, ...] | None = None,
    counters: tuple[Counters, ...] = (),
    **fields: Any,
) -> RunRecord:
    """A run on a GPU with machine code without a problem,
    and counters that match the cost model.
    """
    case_ids = list(
        dict.fromkeys([case_id, *(measurement.case_id for measurement in measurements)])
    )
    fine = counted(case_id, dram_bytes=COST[case_id]["memory_bytes"])
    known: dict[str, Any] = {
        "environment": gpu(),
        "ceilings": gpu_ceilings(),
        "cases": tuple(make_case(each, **COST[each]) for each in case_ids),
        "measurements": measurements,
        "static_facts": (code(case_id),) if facts is None else facts,
        "counters": counters or (fine,),
    }
    return make_record(**known | fields)


def evidence(of: RunRecord, implementation: str = "triton") -> Evidence:
    """About the first case of a record."""
    return collect_evidence(of, [(of.cases[0].case_id, implementation)])[0]


def diagnosed(of: RunRecord, implementation: str = "triton") -> Diagnosis:
    return diagnose(evidence(of, implementation))


def found(of: RunRecord, rule: str, implementation: str = "triton") -> DiagnosisFinding | None:
    """Return the finding of a rule about the first case of a record."""
    return next(
        (each for each in diagnosed(of, implementation).findings if each.rule == rule), None
    )


def without_counters(of: RunRecord) -> RunRecord:
    return of.model_copy(update={"counters": ()})


# --- on a CPU


def cpu_ceilings() -> tuple[Ceiling, ...]:
    return (
        make_ceiling(per_s=20e9, method="copy"),
        make_ceiling(level="cache", per_s=100e9, up_to_bytes=32 * 2**20, method="small copy"),
        make_ceiling(resource="compute", level=None, dtype="float32", per_s=200e9, method="matmul"),
    )


def on_cpu(median_ns: float, *, flop_count: float, memory_bytes: float, **fields: Any) -> RunRecord:
    """A run of one case on a CPU."""
    case_id = "rms_norm/n_rows=64,n_cols=128/float32/fwd"
    known: dict[str, Any] = {
        "ceilings": cpu_ceilings(),
        "cases": (make_case(case_id, flop_count=flop_count, memory_bytes=memory_bytes),),
        "measurements": (make_measurement(case_id, median_ns=median_ns, implementation="triton"),),
    }
    return make_record(**known | fields)


# --- one of each


def _degraded() -> RunRecord:
    hot = steady(sm_clock_mhz=1_200.0, degraded_by=("hw_thermal_slowdown",))
    blocks = tuple(
        Block(
            started_at=NOON,
            samples_ns=(time,) * 3,
            span_ns=(time,) * 3,
            host_ns=8_000.0,
            device_state=state,
        )
        for time, state in ((110_000.0, steady()), (165_000.0, hot))
    )
    return record(NORM, timed(NORM, 1.0, blocks=blocks))


def _operators() -> RunRecord:
    profile = make_profile(
        "rms_norm/n_rows=64,n_cols=128/float32/fwd",
        operator_bytes={"pow": 4_000_000, "mean": 3_000_000, "mul": 5_000_000},
        elementwise_names=("mul", "pow"),
    )
    return on_cpu(900e3, flop_count=1e5, memory_bytes=2e6, profiles=(profile,))


def _tuned(chosen_ns: float, other_ns: float) -> RunRecord:
    configurations = [{"BLOCK": size} for size in (128, 256)]
    tuning = Autotuning(
        function="_kernel",
        chosen=configurations[0],
        timings=tuple(
            AutotuneTiming(configuration=configuration, time_ns=time)
            for configuration, time in zip(configurations, (chosen_ns, other_ns), strict=True)
        ),
    )
    return record(NORM, timed(NORM, 110_000.0, autotuning=(tuning,)))


def _suspicious() -> RunRecord:
    ceilings = [*gpu_ceilings()[1:], make_ceiling(per_s=5.5e12, method="copy")]
    return record(
        NORM,
        timed(NORM, 80_000.0),
        ceilings=tuple(ceilings),
        environment=gpu(device_name="NVIDIA H200"),
    )


def _untimed() -> RunRecord:
    spilling = [
        code(NORM, target, local_bytes=96, spill_store_count=24, spill_load_count=30)
        for target in ("sm_80", "sm_90")
    ]
    return make_record(
        cases=(make_case(NORM, **COST[NORM]),),
        measurements=[make_measurement(NORM, implementation="triton", outcome=Outcome.UNSUPPORTED)],
        static_facts=[*spilling, code(NORM, "sm_100")],
    )


def _estimated() -> RunRecord:
    """Compiled, never timed and never counted: two launches that the cycle model estimates."""
    estimate = CodeEstimate(
        predicted_ns=800_000.0,
        variants_ns=(800_000.0, 700_000.0, 1_100_000.0),
        limit="issue",
        bounds_ns={"memory": 697_000.0, "issue": 790_000.0, "alu": 200_000.0},
        element_count=1,
        instructions_per_element=30.0,
    )
    small = CodeEstimate(
        predicted_ns=5_000.0,
        limit="memory",
        bounds_ns={"memory": 3_000.0},
        element_count=1,
        instructions_per_element=30.0,
    )
    facts = (
        code(NORM, estimate=estimate),
        code(NORM, function="_small_kernel", estimate=small),
    )
    return without_counters(record(NORM, facts=facts))


AILMENTS: dict[str, Callable[[], RunRecord]] = {
    "memory, near the roof": lambda: record(NORM, timed(NORM, 110_000.0)),
    "memory, with room": lambda: record(NORM, timed(NORM, 150_000.0)),
    "memory, twice the traffic": lambda: record(
        NORM, timed(NORM, 220_000.0), counters=(counted(NORM, dram_bytes=8e8),)
    ),
    "cache": lambda: record(
        NORM, timed(NORM, 200_000.0), counters=(counted(NORM, dram_bytes=1e8, l2_bytes=1.5e9),)
    ),
    "compute, near the roof": lambda: record(PRODUCT, timed(PRODUCT, 115_000.0)),
    "compute, no tensor cores": lambda: record(
        PRODUCT,
        timed(PRODUCT, 2_000_000.0),
        facts=(code(PRODUCT, instructions={"global_load.128": 8, "barrier": 2}),),
    ),
    "latency, few warps": lambda: record(
        NORM,
        timed(NORM, 400_000.0),
        facts=(code(NORM, theoretical_occupancy=0.125, occupancy_limits=("shared memory",)),),
        counters=(
            counted(
                NORM,
                dram_bytes=4e8,
                achieved_occupancy_share=0.11,
                stall_long_scoreboard_share=0.62,
            ),
        ),
    ),
    "latency, too many instructions": lambda: record(
        NORM,
        timed(NORM, 180_000.0),
        counters=(
            counted(
                NORM,
                dram_bytes=4e8,
                issue_slots_share=0.93,
                fma_pipe_share=0.41,
                xu_pipe_share=0.77,
            ),
        ),
    ),
    "compute, masked tiles computed": lambda: record(
        PRODUCT,
        timed(PRODUCT, 150_000.0),
        counters=(counted(PRODUCT, executed_flop_count=14e10),),
    ),
    "latency, too few blocks": lambda: record(
        NORM,
        timed(NORM, 400_000.0),
        counters=(counted(NORM, dram_bytes=4e8, waves_per_multiprocessor=0.25),),
    ),
    "latency, a half empty round": lambda: record(
        NORM,
        timed(NORM, 180_000.0),
        counters=(counted(NORM, dram_bytes=4e8, waves_per_multiprocessor=1.25),),
    ),
    "launch, pauses": lambda: record(
        NORM, timed(NORM, 110_000.0, span_ns=200_000.0, kernel_count=4)
    ),
    "launch, nothing to do": lambda: record(EMPTY, timed(EMPTY, 2_100.0, host_ns=1_200.0)),
    "launch, many small kernels": lambda: record(
        CHAIN,
        timed(CHAIN, 30_000.0, span_ns=31_000.0, kernel_count=12, host_ns=20_000.0),
        timed(EMPTY, 2_000.0, host_ns=1_500.0),
    ),
    "host": lambda: record(NORM, timed(NORM, 110_000.0, host_ns=440_000.0)),
    "links": lambda: record(COLLECTIVE, timed(COLLECTIVE, 50_000.0)),
    "spills": lambda: record(
        NORM,
        timed(NORM, 150_000.0),
        facts=(code(NORM, local_bytes=904, spill_store_count=226, spill_load_count=240),),
    ),
    "narrow loads": lambda: record(
        NORM,
        timed(NORM, 150_000.0),
        facts=(code(NORM, instructions={"global_load.16": 32, "global_store.16": 32}),),
    ),
    "no room": lambda: record(NORM, facts=(code(NORM, theoretical_occupancy=0.0),)),
    "does not compile": lambda: record(
        NORM, facts=(make_static_facts(NORM, function="_kernel", outcome=Outcome.COMPILE_ERROR),)
    ),
    "wrong": lambda: record(
        NORM, make_measurement(NORM, implementation="triton", outcome=Outcome.INCORRECT)
    ),
    "throttled": _degraded,
    "a ceiling above the datasheet": _suspicious,
    "varying kernels": lambda: record(NORM, timed(NORM, 110_000.0, is_kernel_set_varying=True)),
    "host gaps": lambda: record(NORM, timed(NORM, 110_000.0, has_host_gaps=True)),
    "another is faster": lambda: record(
        NORM, timed(NORM, 150_000.0), timed(NORM, 110_000.0, implementation="compile")
    ),
    "autotuning, a close second": lambda: _tuned(100.0, 101.0),
    "autotuning, not the fastest": lambda: _tuned(120.0, 100.0),
    "the profiler's own rule": lambda: record(
        NORM,
        timed(NORM, 150_000.0),
        counters=(
            counted(
                NORM,
                dram_bytes=4e8,
                findings=(
                    ProfilerFinding(
                        rule="UncoalescedGlobalAccess",
                        message="This kernel has uncoalesced global accesses.",
                        estimated_speedup=0.2,
                    ),
                ),
            ),
        ),
    ),
    "without counters": lambda: without_counters(record(NORM, timed(NORM, 150_000.0))),
    "not timed": _untimed,
    "not timed, estimated": _estimated,
    "nothing is known": lambda: record(NORM, facts=()),
    "CPU, memory": lambda: on_cpu(6e6, flop_count=1e6, memory_bytes=1e8),
    "CPU, cache": lambda: on_cpu(24e3, flop_count=1e5, memory_bytes=2e6),
    "CPU, its data is not in the fastest cache": lambda: on_cpu(
        105e3, flop_count=1e5, memory_bytes=2e6
    ),
    "CPU, arithmetic": lambda: on_cpu(6e6, flop_count=1e9, memory_bytes=1e6),
    "CPU, above the roof": lambda: on_cpu(4e6, flop_count=1e9, memory_bytes=1e6),
    "CPU, operators one after another": lambda: on_cpu(900e3, flop_count=1e5, memory_bytes=2e6),
    "CPU, counted operators one after another": _operators,
    "CPU, calls": lambda: on_cpu(35e3, flop_count=1e3, memory_bytes=1e4),
}
