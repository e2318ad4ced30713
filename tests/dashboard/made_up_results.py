"""What one run of the made-up history measures: its environment, times and machine code."""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np

from roofwatch.model.machine import Ceiling, DeviceState, Environment
from roofwatch.model.measurement import Block, CacheState, CaseRecord, Measurement, Timer
from roofwatch.model.results import StaticFacts
from tests.dashboard.made_up_plan import KERNELS, PLANTED, Gpu, Kernel

BLOCK_COUNT = 4
_DRIVER_AT = 62
_TOOLCHAIN_AT = 88
_HOT_COMMITS = range(93, 98)
"""Of the H100: 1.13 times slower, and it says why."""


def make_environment(gpu: Gpu, number: int) -> Environment:
    is_hip = gpu.kind == "hip"
    has_new_driver = number >= _DRIVER_AT
    has_new_toolchain = number >= _TOOLCHAIN_AT
    # ROCm and CUDA number their drivers in their own ways.
    if is_hip:
        driver = "6.4.0" if has_new_driver else "6.3.1"
    else:
        driver = "580.65.06" if has_new_driver else "570.86.15"
    return Environment(
        device_kind="hip" if is_hip else "cuda",
        device_name=gpu.name,
        device_memory_bytes=gpu.memory_gib * 2**30,
        power_limit_w=gpu.power_limit_w,
        driver_version=driver,
        compute_capability=gpu.compute_capability,
        cpu_name="AMD EPYC 9654",
        core_count=96,
        thread_count=96,
        os="Linux 6.8",
        python_version="3.12.7",
        torch_version="2.13.0" if has_new_toolchain else "2.12.1",
        triton_version="3.7.1" if has_new_toolchain else "3.6.0",
        cuda_version=None if is_hip else "13.0",
    )


def make_ceilings(gpu: Gpu, rng: np.random.Generator) -> tuple[Ceiling, ...]:
    # A ceiling is measured in each run, and varies a little.
    drawn = 1 + 0.004 * rng.normal(size=3)
    method = "best of 5"
    return (
        Ceiling(
            resource="memory",
            level="dram",
            per_s=gpu.memory_per_s * float(drawn[0]),
            method=method,
        ),
        Ceiling(
            resource="compute",
            dtype="bfloat16",
            per_s=gpu.bfloat16_per_s * float(drawn[1]),
            method=method,
        ),
        Ceiling(
            resource="compute",
            dtype="float8_e4m3fn",
            per_s=gpu.float8_per_s * float(drawn[2]),
            method=method,
        ),
    )


def make_case(kernel: Kernel, shape: str) -> CaseRecord:
    name, length = shape.split("=")
    size = int(length)
    if kernel.is_compute_bound:
        # A product of [size, 8192] and [8192, 8192] in two bytes a number.
        flop_count = 2.0 * size * 8_192 * 8_192
        memory_bytes = 2.0 * (size * 8_192 * 2 + 8_192**2)
    else:
        # [8192, size] read and written, and eight operations on each number.
        flop_count = 8.0 * 8_192 * size
        memory_bytes = 4.0 * 8_192 * size
    phase = "decode" if size <= 512 else "prefill"
    return CaseRecord(
        case_id=_case_id(kernel, shape),
        kernel=kernel.name,
        family=kernel.family,
        shape={name: size},
        dtype=kernel.dtype,
        direction="fwd",
        flop_count=flop_count,
        memory_bytes=memory_bytes,
        tags=("quick", phase),
    )


def _case_id(kernel: Kernel, shape: str) -> str:
    return f"{kernel.name}/{shape}/{kernel.dtype}/fwd"


def _roof_ns(gpu: Gpu, case: CaseRecord, kernel: Kernel) -> float:
    if not kernel.is_compute_bound:
        return case.memory_bytes / gpu.memory_per_s * 1e9
    if kernel.dtype.startswith("float8"):
        per_s = gpu.float8_per_s
    else:
        per_s = gpu.bfloat16_per_s
    return case.flop_count / per_s * 1e9


def _share(
    gpu: Gpu,
    number: int,
    kernel: Kernel,
    shape: str,
    implementation: str,
) -> float:
    """Share of the measured ceiling that an implementation reaches at a commit."""
    # A library does not change with our commits.
    if implementation != "triton":
        return min(0.95, kernel.share * 1.04)
    share = kernel.share - 0.02 * kernel.shapes.index(shape)
    for change in PLANTED:
        if not change.is_present(kernel, number) or gpu.name not in change.gpus:
            continue
        if not change.shapes or shape in change.shapes:
            share /= change.factor
    return share


def make_measurement(
    gpu: Gpu,
    number: int,
    kernel: Kernel,
    shape: str,
    implementation: str,
    *,
    rng: np.random.Generator,
    started_at: datetime,
    block_count: int = BLOCK_COUNT,
) -> Measurement:
    case = make_case(kernel, shape)
    share = _share(
        gpu=gpu,
        number=number,
        kernel=kernel,
        shape=shape,
        implementation=implementation,
    )
    is_hot = gpu.name == "NVIDIA H100" and number in _HOT_COMMITS
    roof_ns = _roof_ns(gpu, case, kernel)
    noise = float(np.exp(0.006 * rng.normal()))
    median_ns = roof_ns / share * noise
    if is_hot:
        median_ns *= 1.13
    state = _device_state(gpu, is_hot=is_hot)
    blocks: list[Block] = []
    for step in range(block_count):
        samples = median_ns * np.exp(0.004 * rng.normal(size=5))
        block = Block(
            started_at=started_at + timedelta(seconds=step),
            samples_ns=tuple(samples.tolist()),
            device_state=state,
        )
        blocks.append(block)
    bound = "compute" if kernel.is_compute_bound else "memory"
    return Measurement(
        case_id=case.case_id,
        implementation=implementation,
        outcome="ok",
        timer=Timer.CUPTI,
        cache=CacheState.COLD,
        blocks=tuple(blocks),
        bound=bound,
        utilisation=min(1.0, roof_ns / median_ns),
    )


def _device_state(gpu: Gpu, *, is_hot: bool) -> DeviceState:
    faults = ("hw_thermal_slowdown",) if is_hot else ()
    return DeviceState(
        reading_count=10,
        sm_clock_mhz=1_410 if is_hot else 1_755,
        power_w=gpu.power_limit_w * 0.9,
        temperature_c=88 if is_hot else 62,
        clock_event_reasons=faults,
        degraded_by=faults,
    )


def make_static_facts(gpu: Gpu, number: int) -> Iterator[StaticFacts]:
    for kernel in KERNELS:
        configuration = {
            "BLOCK_M": 128,
            "BLOCK_N": 128,
            "BLOCK_K": 64,
            "num_warps": 8,
        }
        registers = 168
        local_bytes = 0
        code = f"{kernel.name} {gpu.target}"
        for change in PLANTED:
            if not change.is_present(kernel, number):
                continue
            # The hash of the code changes with the commit.
            code += f" {change.commit_number}"
            if change.configuration is not None:
                configuration = change.configuration
                # Larger tiles need more registers than a thread has, and spill.
                registers = 255
                local_bytes = 96
        yield StaticFacts(
            case_id=_case_id(kernel, kernel.shapes[0]),
            implementation="triton",
            function=f"_{kernel.name}_kernel",
            target=gpu.target,
            outcome="ok",
            configuration=dict(configuration),
            registers=registers,
            local_bytes=local_bytes,
            shared_bytes=98_304,
            code_bytes=24_576,
            code_hash=hashlib.sha256(code.encode()).hexdigest(),
        )


def source_digest(kernel: Kernel, number: int) -> str:
    """A digest that changes where the kernel's code does."""
    changed_at: list[int] = []
    for change in PLANTED:
        if change.kernel == kernel.name:
            changed_at += [change.commit_number, change.repaired_at]
    passed = [str(commit_number) for commit_number in changed_at if commit_number <= number]
    code = f"{kernel.name} {' '.join(passed)}"
    return hashlib.sha256(code.encode()).hexdigest()
