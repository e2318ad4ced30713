"""Store a made-up history of three GPUs over 95 days, on which the dashboard is tried out.

    python -m tests.dashboard.made_up_history FOLDER

120 commits are measured on an H100, a B200 and an MI300X. It has three releases, a new driver and a
new toolchain, four hot days of the H100, planted changes of kernels with their machine code, pairs
that confirm some of them, a repair, and newest values that nothing has judged yet.
"""

import hashlib
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.agenda import take_job
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.agenda import JobKind, PlannedJob
from roofwatch.model.history import Regression
from roofwatch.model.machine import Ceiling, DeviceState, Environment
from roofwatch.model.measurement import (
    Block,
    CacheState,
    CaseRecord,
    Measurement,
    Timer,
)
from roofwatch.model.record import Commit, PairMember, RunRecord, Side, SourceLine
from roofwatch.model.results import StaticFacts

PROJECT = "acme/kernels"
DAY_COUNT = 95
COMMIT_COUNT = 120
_BLOCK_COUNT = 4
_PAIR_BLOCK_COUNT = 16
_DRIVER_AT, _TOOLCHAIN_AT = 62, 88
_HOT_COMMITS = range(93, 98)
_RELEASES = {18: "v0.4.0", 58: "v0.5.0", 99: "v0.6.0"}
_AUTHORS = ("Mara Lindqvist", "Tomás Pereira", "Wen Li", "Aisha Bello", "Jonas Weber")
_SUBJECTS = (
    "Document the layout of paged caches",
    "Use async copies in the prologue of {kernel}",
    "Skip masked tiles of {kernel}",
    "Add tests of odd shapes for {kernel}",
    "Rename the helpers of {kernel}",
    "Clean up the launcher of {kernel}",
    "Support strided inputs in {kernel}",
)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    memory_gib: int
    power_limit_w: float
    kind: str
    compute_capability: str
    target: str
    memory_per_s: float
    """Measured ceilings."""
    bfloat16_per_s: float
    float8_per_s: float


GPUS = (
    Gpu(
        name="NVIDIA H100",
        memory_gib=80,
        power_limit_w=700,
        kind="cuda",
        compute_capability="9.0",
        target="sm_90",
        memory_per_s=2.9e12,
        bfloat16_per_s=6.6e14,
        float8_per_s=1.28e15,
    ),
    Gpu(
        name="NVIDIA B200",
        memory_gib=180,
        power_limit_w=1_000,
        kind="cuda",
        compute_capability="10.0",
        target="sm_100",
        memory_per_s=6.9e12,
        bfloat16_per_s=1.55e15,
        float8_per_s=3.1e15,
    ),
    Gpu(
        name="AMD MI300X",
        memory_gib=192,
        power_limit_w=750,
        kind="hip",
        compute_capability="9.4",
        target="gfx942",
        memory_per_s=4.2e12,
        bfloat16_per_s=5.9e14,
        float8_per_s=1.1e15,
    ),
)


@dataclass(frozen=True)
class Kernel:
    name: str
    family: str
    dtype: str
    shapes: tuple[str, ...]
    share: float
    """Share of the measured ceiling that our implementation reaches."""
    rival: str


KERNELS = (
    Kernel("rms_norm", "normalisation", "bfloat16", ("n=8192", "n=16384", "n=5120"), 0.86, "torch"),
    Kernel("layer_norm", "normalisation", "bfloat16", ("n=8192", "n=12288"), 0.83, "torch"),
    Kernel("softmax", "reduction", "bfloat16", ("n=4096", "n=128256"), 0.66, "torch"),
    Kernel("swiglu", "activation", "bfloat16", ("n=14336", "n=28672"), 0.9, "torch"),
    Kernel("quantize_fp8", "quantisation", "float8_e4m3fn", ("n=8192", "n=16384"), 0.78, "torch"),
    Kernel("gemm", "matmul", "bfloat16", ("m=4096", "m=8192"), 0.93, "cublas"),
    Kernel("gemm_fp8", "matmul", "float8_e4m3fn", ("m=4096", "m=8192", "m=512"), 0.71, "cublas"),
    Kernel("fused_moe", "moe", "bfloat16", ("m=4096", "m=256"), 0.58, "torch"),
    Kernel("flash_attention", "attention", "bfloat16", ("t=4096", "t=16384"), 0.57, "cudnn"),
    Kernel("paged_attention", "attention", "bfloat16", ("t=8192", "t=32768"), 0.6, "torch"),
)
_COMPUTE = {"matmul", "moe", "attention"}


@dataclass(frozen=True)
class PlantedStep:
    """A change of one kernel at one commit."""

    commit_number: int
    kernel: str
    factor: float
    subject: str
    gpus: frozenset[str] = frozenset(gpu.name for gpu in GPUS)
    shapes: tuple[str, ...] = ()
    """All if empty."""
    repaired_at: int = COMMIT_COUNT
    is_confirmed: bool = True
    """A pair measured it again."""
    configuration: dict[str, int] | None = None
    """Of the machine code from then on."""


PLANTED = (
    PlantedStep(30, "softmax", 0.83, "Read each row of softmax once (#1254)"),
    PlantedStep(
        44,
        "flash_attention",
        1.22,
        "Split the softmax of flash_attention in two passes (#1268)",
        repaired_at=79,
    ),
    PlantedStep(
        90,
        "fused_moe",
        1.14,
        "Sort tokens by expert on the device (#1301)",
        gpus=frozenset({"NVIDIA H100", "NVIDIA B200"}),
        is_confirmed=False,
    ),
    PlantedStep(
        103,
        "rms_norm",
        1.08,
        "Compute rms_norm in one pass over padded rows (#1312)",
        gpus=frozenset({"NVIDIA H100"}),
    ),
    PlantedStep(
        112,
        "gemm_fp8",
        1.31,
        "Use tiles of 128x256x32 in gemm_fp8 (#1317)",
        gpus=frozenset({"NVIDIA B200"}),
        shapes=("m=4096", "m=8192"),
        configuration={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 32, "num_warps": 4},
    ),
    PlantedStep(
        112,
        "quantize_fp8",
        1.09,
        "Use tiles of 128x256x32 in gemm_fp8 (#1317)",
        gpus=frozenset({"NVIDIA B200"}),
    ),
    PlantedStep(115, "swiglu", 0.92, "Vectorise the loads of swiglu (#1320)"),
    PlantedStep(
        COMMIT_COUNT - 1,
        "layer_norm",
        1.17,
        "Fuse the residual into layer_norm (#1331)",
        gpus=frozenset({"NVIDIA H100"}),
        is_confirmed=False,
    ),
)


def store(engine: Engine, ended_at: datetime) -> list[Regression]:
    """Ingest all runs and pairs, plan the jobs of a runner, and analyse; the newest commit was made
    at `ended_at`.
    """
    commits = list(_commits(ended_at))
    for record in _records(commits):
        ingest_record(engine, record)
    _plan_jobs(engine, commits)
    return analyse_project(engine, PROJECT)


def _commits(ended_at: datetime) -> Iterator[Commit]:
    rng = np.random.default_rng(5)
    between = timedelta(days=DAY_COUNT) / (COMMIT_COUNT - 1)
    planted = {change.commit_number: change.subject for change in PLANTED}
    repaired = {
        change.repaired_at: f"Restore the single pass of {change.kernel} (#1279)"
        for change in PLANTED
        if change.repaired_at < COMMIT_COUNT
    }
    for number in range(COMMIT_COUNT):
        kernel = KERNELS[int(rng.integers(len(KERNELS)))].name
        subject = _SUBJECTS[number % len(_SUBJECTS)].format(kernel=kernel)
        subject = f"{subject} (#{1_190 + number})"
        tag = _RELEASES.get(number)
        yield Commit(
            sha=_sha(number),
            parents=(_sha(number - 1),) if number else (),
            first_parent_count=number + 1,
            committed_at=ended_at - between * (COMMIT_COUNT - 1 - number),
            author=_AUTHORS[int(rng.integers(len(_AUTHORS)))],
            subject=planted.get(number) or repaired.get(number) or subject,
            branch="main",
            tags=() if tag is None else (tag,),
        )


def _sha(number: int) -> str:
    return hashlib.sha1(f"made up {number}".encode(), usedforsecurity=False).hexdigest()


def _records(commits: list[Commit]) -> Iterator[RunRecord]:
    for gpu in GPUS:
        for number, commit in enumerate(commits):
            yield _run(gpu, number, commit)
        yield from _pair(gpu, commits, 0, 0)
        for change in PLANTED:
            if change.is_confirmed and gpu.name in change.gpus:
                yield from _pair(
                    gpu,
                    commits,
                    change.commit_number - 1,
                    change.commit_number,
                    kernel=change.kernel,
                )


def _run(gpu: Gpu, number: int, commit: Commit) -> RunRecord:
    started_at = commit.committed_at + timedelta(minutes=40)
    rng = np.random.default_rng([number, GPUS.index(gpu)])
    # of the eight nodes that share the work, each keeps its own small deviation
    node = int(rng.integers(2))
    measurements: list[Measurement] = []
    for kernel in KERNELS:
        for shape in kernel.shapes:
            ours, rival = (
                _measurement(
                    gpu, number, kernel, shape, implementation, rng=rng, started_at=started_at
                )
                for implementation in ("triton", kernel.rival)
            )
            measurements += [ours.model_copy(update={"reference_ns": rival.median_ns}), rival]
    return RunRecord(
        run_id=uuid.UUID(int=rng.integers(1 << 62).item() << 62 | number, version=4),
        project=PROJECT,
        commit=commit,
        started_at=started_at,
        finished_at=started_at + timedelta(minutes=9),
        harness_version="1",
        environment=_environment(gpu, number),
        machine=hashlib.sha256(f"{gpu.name} {node}".encode()).hexdigest()[:12],
        ceilings=_ceilings(gpu, rng),
        cases=tuple(_case(kernel, shape) for kernel in KERNELS for shape in kernel.shapes),
        measurements=tuple(measurements),
        static_facts=tuple(_static_facts(gpu, number)),
        source_digests={kernel.name: _source_digest(kernel, number) for kernel in KERNELS},
        source_lines=tuple(
            SourceLine(
                kernel=kernel.name,
                implementation="triton",
                function=f"_{kernel.name}_kernel",
                file=f"kernels/{kernel.name}.py",
                line=38,
                is_jitted=True,
            )
            for kernel in KERNELS
        ),
        suite="bench_kernels.py",
        spent_ns={
            "compile": 95 * 10**9,
            "check": 70 * 10**9,
            "warm_up": 40 * 10**9,
            "timing": 290 * 10**9,
        },
    )


def _environment(gpu: Gpu, number: int) -> Environment:
    is_hip = gpu.kind == "hip"
    old_driver, new_driver = ("6.3.1", "6.4.0") if is_hip else ("570.86.15", "580.65.06")
    return Environment(
        device_kind="hip" if is_hip else "cuda",
        device_name=gpu.name,
        device_memory_bytes=gpu.memory_gib * 2**30,
        power_limit_w=gpu.power_limit_w,
        driver_version=new_driver if number >= _DRIVER_AT else old_driver,
        compute_capability=gpu.compute_capability,
        cpu_name="AMD EPYC 9654",
        core_count=96,
        thread_count=96,
        os="Linux 6.8",
        python_version="3.12.7",
        torch_version="2.13.0" if number >= _TOOLCHAIN_AT else "2.12.1",
        triton_version="3.7.1" if number >= _TOOLCHAIN_AT else "3.6.0",
        cuda_version=None if is_hip else "13.0",
    )


def _ceilings(gpu: Gpu, rng: np.random.Generator) -> tuple[Ceiling, ...]:
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


def _case(kernel: Kernel, shape: str) -> CaseRecord:
    name, length = shape.split("=")
    size = int(length)
    memory_bytes, flop_count = 4.0 * 8_192 * size, 8.0 * 8_192 * size
    if kernel.family in _COMPUTE:
        flop_count, memory_bytes = 2.0 * size * 8_192 * 8_192, 2.0 * (size * 8_192 * 2 + 8_192**2)
    return CaseRecord(
        case_id=_case_id(kernel, shape),
        kernel=kernel.name,
        family=kernel.family,
        shape={name: size},
        dtype=kernel.dtype,
        direction="fwd",
        flop_count=flop_count,
        memory_bytes=memory_bytes,
        tags=("quick", "decode" if size <= 512 else "prefill"),
    )


def _case_id(kernel: Kernel, shape: str) -> str:
    return f"{kernel.name}/{shape}/{kernel.dtype}/fwd"


def _roof_ns(gpu: Gpu, case: CaseRecord, kernel: Kernel) -> float:
    if kernel.family not in _COMPUTE:
        return case.memory_bytes / gpu.memory_per_s * 1e9
    per_s = gpu.float8_per_s if kernel.dtype.startswith("float8") else gpu.bfloat16_per_s
    return case.flop_count / per_s * 1e9


def _share(gpu: Gpu, number: int, kernel: Kernel, shape: str, implementation: str) -> float:
    """Share of the measured ceiling that an implementation reaches at a commit."""
    if implementation != "triton":
        return min(0.95, kernel.share * 1.04)
    share = kernel.share - 0.02 * kernel.shapes.index(shape)
    for change in PLANTED:
        is_there = change.commit_number <= number < change.repaired_at
        is_of_case = change.kernel == kernel.name and (not change.shapes or shape in change.shapes)
        if is_there and is_of_case and gpu.name in change.gpus:
            share /= change.factor
    return share


def _measurement(
    gpu: Gpu,
    number: int,
    kernel: Kernel,
    shape: str,
    implementation: str,
    *,
    rng: np.random.Generator,
    started_at: datetime,
    block_count: int = _BLOCK_COUNT,
) -> Measurement:
    case = _case(kernel, shape)
    share = _share(gpu, number, kernel, shape, implementation)
    is_hot = gpu.name == "NVIDIA H100" and number in _HOT_COMMITS
    median_ns = _roof_ns(gpu, case, kernel) / share * float(np.exp(0.006 * rng.normal()))
    if is_hot:
        median_ns *= 1.13
    faults = ("hw_thermal_slowdown",) if is_hot else ()
    state = DeviceState(
        reading_count=10,
        sm_clock_mhz=1_410 if is_hot else 1_755,
        power_w=gpu.power_limit_w * 0.9,
        temperature_c=88 if is_hot else 62,
        clock_event_reasons=faults,
        degraded_by=faults,
    )
    blocks: list[Block] = []
    for step in range(block_count):
        samples = median_ns * np.exp(0.004 * rng.normal(size=5))
        blocks.append(
            Block(
                started_at=started_at + timedelta(seconds=step),
                samples_ns=tuple(samples.tolist()),
                device_state=state,
            )
        )
    return Measurement(
        case_id=case.case_id,
        implementation=implementation,
        outcome="ok",
        timer=Timer.CUPTI,
        cache=CacheState.COLD,
        blocks=tuple(blocks),
        bound="compute" if kernel.family in _COMPUTE else "memory",
        utilisation=min(1.0, _roof_ns(gpu, case, kernel) / median_ns),
    )


def _static_facts(gpu: Gpu, number: int) -> Iterator[StaticFacts]:
    for kernel in KERNELS:
        configuration: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
        configuration["num_warps"] = 8
        registers, local_bytes, code = 168, 0, f"{kernel.name} {gpu.target}"
        for change in PLANTED:
            if (
                change.kernel != kernel.name
                or not change.commit_number <= number < change.repaired_at
            ):
                continue
            code += f" {change.commit_number}"
            if change.configuration is not None:
                configuration = change.configuration
                registers, local_bytes = 255, 96
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


def _source_digest(kernel: Kernel, number: int) -> str:
    """A digest that changes where the kernel's code does."""
    changed_at = [change.commit_number for change in PLANTED if change.kernel == kernel.name]
    changed_at += [change.repaired_at for change in PLANTED if change.kernel == kernel.name]
    passed = [str(commit_number) for commit_number in changed_at if commit_number <= number]
    return hashlib.sha256(f"{kernel.name} {' '.join(passed)}".encode()).hexdigest()


def _pair(
    gpu: Gpu, commits: list[Commit], base: int, head: int, *, kernel: str = ""
) -> Iterator[RunRecord]:
    """Measure two commits in one job: all kernels, or one."""
    pair_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{gpu.name} {base} {head} {kernel}")
    started_at = commits[head].committed_at + timedelta(hours=3)
    rng = np.random.default_rng([base, head, GPUS.index(gpu)])
    machine = _run(gpu, head, commits[head]).machine
    for side, number in ((Side.BASE, base), (Side.HEAD, head)):
        whole = _run(gpu, number, commits[number])
        measurements: list[Measurement] = []
        for timed in KERNELS:
            if kernel not in {"", timed.name}:
                continue
            for shape in timed.shapes:
                measured = _measurement(
                    gpu,
                    number,
                    timed,
                    shape,
                    "triton",
                    rng=rng,
                    started_at=started_at,
                    block_count=_PAIR_BLOCK_COUNT,
                )
                measurements.append(measured)
        yield whole.model_copy(
            update={
                "run_id": uuid.uuid5(pair_id, side),
                "machine": machine,
                "pairing": PairMember(pair_id=pair_id, side=side),
                "measurements": tuple(measurements),
                "started_at": started_at,
                "finished_at": started_at + timedelta(minutes=4),
            }
        )


def _plan_jobs(engine: Engine, commits: list[Commit]) -> None:
    newest, previous = commits[-1], commits[-2]
    for gpu in GPUS:
        confirm = PlannedJob(
            key=f"confirm:{previous.sha}:{newest.sha}",
            kind=JobKind.CONFIRM,
            reason="layer_norm/n=8192/bfloat16/fwd triton: the newest value differs by +17.0%",
            expected_s=240,
            base_sha=previous.sha,
            head_sha=newest.sha,
        )
        calibrate = replace(
            confirm,
            key=f"calibrate:{newest.sha}:{newest.sha}",
            kind=JobKind.CALIBRATE,
            reason="the noise floor is old",
            expected_s=1_080,
            base_sha=newest.sha,
        )
        jobs = [confirm, calibrate] if gpu.name == "NVIDIA H100" else [calibrate]
        runner_class = _environment(gpu, COMMIT_COUNT).runner_class
        take_job(engine, PROJECT, runner_class, jobs, uuid.uuid4())


if __name__ == "__main__":
    with open_store(folder=Path(sys.argv[1])) as opened:
        regressions = store(opened, datetime.now(UTC).replace(microsecond=0))
    for regression in regressions:
        print(regression.commit.short_sha, regression.kernel, regression.verdict)
