"""Rates of each GPU's multiprocessor, for the cycle model. One table, each number with its source.

A letter names a published value. [~] is an approximation: rounded, or carried over from another
GPU, and checked only by the tables in docs/explanation/cycle-model.md.

- [G] NVIDIA, CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions":
  results per clock and multiprocessor, by compute capability.
- [T] NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": size of
  shared memory and L1. Four warp schedulers: tuning guides of Ampere and Hopper.
- [D] Data sheets, in `collector/device/datasheets.py`.
- [H] Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499
  (2024): mma.sync at about 63 % of wgmma's peak on an H100; latency of the L2.
- [J] Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv
  1804.06826 (2018): 128 bytes a clock from shared memory.
- [A] AMD, CDNA 3 instruction set architecture: a wavefront of 64 runs on one of 4 SIMDs with 16
  lanes, so it takes 4 clocks. Transcendentals run at a quarter of that rate.
- [W] NVIDIA, A100 architecture white paper: the L2 delivers 5,120 bytes a clock to 108
  multiprocessors. AMD, CDNA 3 white paper: 2 KiB a clock to the 38 compute units of a die, each
  die with an L2 of 4 MiB; 17.2 TB/s from the Infinity Cache behind them.
- [S] NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory": transactions of
  32 bytes. [C] AMD, ROCm Compute Profiler, "L2 cache": its requests are of 64 or 128 bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from roofwatch.collector.compile.cycles.sectors import SMALLEST_SECTOR
from roofwatch.collector.device.datasheets import Datasheet, datasheet_of

DRAM_EFFICIENCY = 0.9
"""Share of the data sheet's bandwidth that a copy reaches: 4.3 of 4.8 TB/s on an H200, read."""
TENSOR_EFFICIENCY = 0.8
"""Share of the peak that a long product keeps under its power limit: cuBLAS reaches 790 of 989
TFLOP/s (bfloat16, 8192³) on an H200, read. An approximation for every other GPU."""
ISSUE_EFFICIENCY = 0.8
"""Share of the issue slots that dependent instructions fill at best: an approximation, from the
80 % at which Nsight Compute calls a pipe the bottleneck."""
LAUNCH_NS = 2_000.0
"""From the start of the grid to its end when it does nothing: an approximation. It matters only to
launches of a few microseconds."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Per multiprocessor and clock, or AMD's compute unit. Lanes are results per clock."""

    sheet: Datasheet
    warp_threads: int
    sector_size: int
    """Bytes that the caches move at once: [S] for NVIDIA, [C] for AMD."""
    issue: float
    """Instructions of a warp per clock [T, A]."""
    fma_lanes: float
    """[G, A]."""
    alu_lanes: float
    """Integer additions, logic and comparisons [G]; AMD has one vector pipe."""
    special_lanes: float
    """exp2, reciprocals, and conversions to and from integers [G, A]."""
    double_lanes: float
    """float64 [G, A]."""
    shared_bytes: float
    """LDS or shared memory: [J] for Volta, [~] for later GPUs and AMD."""
    l1_bytes: float
    """Accesses that hit the L1, and local memory [~]."""
    l1_size: int
    """Bytes of the L1 that local memory can fill: about half of L1 and shared memory [T, ~]."""
    l2_bytes: float
    """From the L2 to one multiprocessor, if all read: [W] for A100 and MI300X, else [~]."""
    l2_size: int | None
    """Bytes of the L2 that a multiprocessor reads, if another cache is behind it [W]."""
    last_cache_bytes: float
    """From the cache behind the L2 to one multiprocessor, if all read: an approximation, 65 % of
    the peak [W], calibrated on prefill attention of an MI350X (sglang #27793: 11 TB/s). Without
    such a cache, that of the L2."""
    memory_latency: float
    """Clocks from a load to its data from memory in a loaded system: about twice the latency of an
    idle one [~]."""
    l2_latency: float
    """Clocks of a load that hits the L2: spilled registers that the L1 does not hold. [H] for
    NVIDIA, [~] for AMD."""
    barrier: float
    """Clocks of a barrier of a block [~]."""
    shuffle: float
    """Clocks of a reduction over the lanes of a warp: five dependent shuffles of about 24 [~]."""
    tensor_wait: float
    """Clocks from issuing an asynchronous product to its first result, beyond its work: an
    approximation, calibrated on attention and block-scaled fp8 of an H100."""
    old_tensor_share: float
    """Of the tensor cores' rate, what mma.sync reaches: [H] for H100, [~] for B200, 1 if it is the
    only way."""
    atomic_lanes: float
    """float32 atomics of the whole device per clock: an approximation, calibrated on layer norm's
    gradient of weights on an A100 (Liger-Kernel #945: 5 to 12 times); the others follow it."""

    @property
    def processor_count(self) -> int:
        return self.sheet.multiprocessors

    @property
    def clock_hz(self) -> float:
        """The clock that the data sheet's peak refers to."""
        return self.sheet.clock_mhz("bfloat16") * 1e6

    @property
    def dram_bytes_per_clock(self) -> float:
        """Per multiprocessor."""
        bytes_per_s = self.sheet.bytes_per_s * DRAM_EFFICIENCY
        return bytes_per_s / self.clock_hz / self.processor_count

    def cache_bytes(self, operand_bytes: int | None) -> float:
        """Bytes per clock that one multiprocessor gets from the cache that holds the operands."""
        if self.l2_size is None or operand_bytes is None or operand_bytes <= self.l2_size:
            return self.l2_bytes
        return self.last_cache_bytes

    def tensor_flop(self, dtype: str) -> float:
        """FLOP per clock on the tensor cores; a dtype without a rate has that of bfloat16."""
        per_clock = self.sheet.flop_per_clock
        return TENSOR_EFFICIENCY * per_clock.get(dtype, per_clock["bfloat16"])


def _sheet(name: str) -> Datasheet:
    sheet = datasheet_of(name)
    assert sheet is not None, name
    return sheet


_A100 = Rates(
    sheet=_sheet("NVIDIA A100-SXM4-80GB"),
    warp_threads=32,
    sector_size=SMALLEST_SECTOR,
    issue=4,
    fma_lanes=64,
    alu_lanes=64,
    special_lanes=16,
    double_lanes=32,
    shared_bytes=128,
    l1_bytes=128,
    l1_size=96 * 1024,
    l2_bytes=47,
    l2_size=None,
    last_cache_bytes=47,
    memory_latency=800,
    l2_latency=260,
    barrier=30,
    shuffle=120,
    tensor_wait=0,
    old_tensor_share=1,
    atomic_lanes=40,
)
_H100 = replace(
    _A100,
    sheet=_sheet("NVIDIA H100 80GB HBM3"),
    fma_lanes=128,
    double_lanes=64,
    l1_size=128 * 1024,
    l2_bytes=40,
    last_cache_bytes=40,
    memory_latency=1_000,
    tensor_wait=100,
    old_tensor_share=0.63,
    atomic_lanes=48,
)
_B200 = replace(
    _H100,
    sheet=_sheet("NVIDIA B200"),
    l2_bytes=64,
    last_cache_bytes=64,
    tensor_wait=150,
    old_tensor_share=0.25,
    atomic_lanes=64,
)
_RTX_5090 = replace(
    _A100,
    sheet=_sheet("NVIDIA GeForce RTX 5090"),
    fma_lanes=128,
    double_lanes=2,
    l1_size=64 * 1024,
    l2_bytes=24,
    last_cache_bytes=24,
    atomic_lanes=48,
)
_RTX_4090 = replace(
    _RTX_5090,
    sheet=_sheet("NVIDIA GeForce RTX 4090"),
    atomic_lanes=36,
)
_MI300X = Rates(
    sheet=_sheet("AMD Instinct MI300X"),
    warp_threads=64,
    sector_size=64,
    issue=4,
    fma_lanes=64,
    alu_lanes=64,
    special_lanes=16,
    double_lanes=64,
    shared_bytes=128,
    l1_bytes=64,
    l1_size=32 * 1024,
    l2_bytes=50,
    l2_size=4 * 1024 * 1024,
    last_cache_bytes=17.5,
    memory_latency=1_600,
    l2_latency=500,
    barrier=40,
    shuffle=150,
    tensor_wait=0,
    old_tensor_share=1,
    atomic_lanes=64,
)
_MI355X = replace(
    _MI300X,
    sheet=_sheet("AMD Instinct MI355X"),
    l1_bytes=128,
    last_cache_bytes=18.2,
)

RATES: Mapping[str, Rates] = {
    "sm_80": _A100,
    "sm_89": _RTX_4090,
    "sm_90": _H100,
    "sm_100": _B200,
    "sm_120": _RTX_5090,
    "gfx942": _MI300X,
    "gfx950": _MI355X,
}
