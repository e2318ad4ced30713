"""The workload of the made-up history: a step of a model, which calls the made-up kernels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from roofwatch.collector.workload_values import shares_of_step
from roofwatch.model.machine import DeviceState
from roofwatch.model.measurement import Block, CacheState, CaseRecord, Measurement, Timer
from roofwatch.model.results import CaseProfile, ImportedValue, ProfiledActivity
from roofwatch.spec.workload import WORKLOADS
from tests.dashboard.made_up_plan import KERNELS

NAME = "llama_prefill"
CASE_ID = f"{NAME}/B=1,T=4096/bfloat16/fwd"
_LAYER_COUNT = 32
_TOKEN_COUNT = 4_096
_PROFILED_CALLS = 3
_GAP_NS_PER_LAUNCH = 900.0
_BLOCK_COUNT = 4


@dataclass(frozen=True)
class _Launches:
    """Launches of one case of a kernel in each layer."""

    kernel: str
    shape: str
    count: int


_LAUNCHES = (
    _Launches("rms_norm", "n=8192", 2),
    _Launches("quantize_fp8", "n=8192", 4),
    _Launches("gemm_fp8", "m=4096", 7),
    _Launches("paged_attention", "t=8192", 1),
    _Launches("swiglu", "n=14336", 1),
)


@dataclass(frozen=True, kw_only=True)
class WorkloadResults:
    """What a run adds for the workload."""

    case: CaseRecord
    measurements: tuple[Measurement, ...]
    profile: CaseProfile
    shares: tuple[ImportedValue, ...]


def make_workload(
    kernel_results: Sequence[Measurement],
    cases: Sequence[CaseRecord],
    *,
    rng: np.random.Generator,
    started_at: datetime,
) -> WorkloadResults:
    """Make the results of the step from those of its kernels in the same run."""
    medians_ns = {
        (result.case_id.rpartition("/")[0].rpartition("/")[0], result.implementation): (
            result.median_ns or 0.0
        )
        for result in kernel_results
    }
    ours_ns = dict(_busy_ns(medians_ns, is_ours=True))
    libraries_ns = dict(_busy_ns(medians_ns, is_ours=False))
    device_state = kernel_results[0].blocks[0].device_state
    libraries = _measurement("torch", libraries_ns, device_state, rng, started_at)
    ours = _measurement("triton", ours_ns, device_state, rng, started_at)
    profile = _profile(ours_ns)
    return WorkloadResults(
        case=_case(cases),
        measurements=(
            ours.model_copy(update={"reference_ns": libraries.median_ns}),
            libraries,
        ),
        profile=profile,
        shares=tuple(shares_of_step(profile)),
    )


def _case(cases: Sequence[CaseRecord]) -> CaseRecord:
    by_name = {f"{case.kernel}/{_shape_text(case.shape)}": case for case in cases}
    flop_count = 0.0
    memory_bytes = 0.0
    for launches in _LAUNCHES:
        case = by_name[f"{launches.kernel}/{launches.shape}"]
        flop_count += (case.flop_count or 0.0) * launches.count * _LAYER_COUNT
        memory_bytes += (case.memory_bytes or 0.0) * launches.count * _LAYER_COUNT
    return CaseRecord(
        case_id=CASE_ID,
        kernel=NAME,
        family=WORKLOADS,
        shape={"B": 1, "T": _TOKEN_COUNT},
        dtype="bfloat16",
        direction="fwd",
        flop_count=flop_count,
        memory_bytes=memory_bytes,
        token_count=float(_TOKEN_COUNT),
        tags=("quick", "prefill"),
    )


def _shape_text(shape: Mapping[str, object]) -> str:
    return ",".join(f"{name}={length}" for name, length in shape.items())


def _busy_ns(
    medians_ns: Mapping[tuple[str, str], float], *, is_ours: bool
) -> Iterator[tuple[_Launches, float]]:
    """Return the time of all launches of each kernel in one step."""
    rivals = {kernel.name: kernel.rival for kernel in KERNELS}
    for launches in _LAUNCHES:
        implementation = "triton" if is_ours else rivals[launches.kernel]
        launch_ns = medians_ns[f"{launches.kernel}/{launches.shape}", implementation]
        yield launches, launch_ns * launches.count * _LAYER_COUNT


def _gaps_ns() -> float:
    launch_count = sum(launches.count for launches in _LAUNCHES) * _LAYER_COUNT
    return _GAP_NS_PER_LAUNCH * launch_count


def _measurement(
    implementation: str,
    busy_ns: Mapping[_Launches, float],
    device_state: DeviceState | None,
    rng: np.random.Generator,
    started_at: datetime,
) -> Measurement:
    step_ns = sum(busy_ns.values()) + _gaps_ns()
    blocks: list[Block] = []
    for position in range(_BLOCK_COUNT):
        samples_ns = step_ns * np.exp(0.002 * rng.normal(size=5))
        block = Block(
            started_at=started_at + timedelta(seconds=position),
            samples_ns=tuple(samples_ns.tolist()),
            device_state=device_state,
        )
        blocks.append(block)
    return Measurement(
        case_id=CASE_ID,
        implementation=implementation,
        outcome="ok",
        timer=Timer.CUPTI,
        cache=CacheState.HOT,
        blocks=tuple(blocks),
    )


def _profile(busy_ns: Mapping[_Launches, float]) -> CaseProfile:
    rows: list[ProfiledActivity] = []
    for launches, call_ns in busy_ns.items():
        row = ProfiledActivity(
            kind="kernel",
            name=f"_{launches.kernel}_kernel",
            device="0",
            count=launches.count * _LAYER_COUNT * _PROFILED_CALLS,
            total_ns=round(call_ns) * _PROFILED_CALLS,
            call_ns=(round(call_ns),) * _PROFILED_CALLS,
        )
        rows.append(row)
    rows.sort(key=lambda row: row.total_ns, reverse=True)
    total_ns = sum(row.total_ns for row in rows)
    return CaseProfile(
        case_id=CASE_ID,
        implementation="triton",
        call_count=_PROFILED_CALLS,
        span_ns=total_ns + round(_gaps_ns()) * _PROFILED_CALLS,
        busy_ns=total_ns,
        rows=tuple(rows),
    )
