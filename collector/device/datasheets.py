"""What vendors say of their devices: dense peaks and memory bandwidth, one entry per device that torch can name.

A figure is that of the vendor's document, halved where the document counts the zeros of 2:4 sparsity. A device that is
not listed, a slice of one, or a dtype that its document leaves out has no peak here: nothing is guessed from a sibling.

The clock that a peak holds at is not always printed, but follows from it: a multiprocessor does a fixed number of
operations per clock. Sources of those: NVIDIA's architecture whitepapers (A100, H100, Ada, RTX Blackwell), per SM;
AMD's CDNA 3 and CDNA 4 whitepapers, per compute unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from roofwatch.collector.record.machine import Ceiling, DeviceState


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """One device.

    Args:
        names: As torch gives them.
        source: The vendor's document.
        multiprocessors: SMs, or AMD's compute units.
        bytes_per_s: Of device memory.
        flop_per_s: Dense, by dtype of the operands, float32 accumulation where there is a choice; `tf32` is float32
            rounded to ten bits of mantissa.
        flop_per_clock: The same per clock and multiprocessor.
    """

    names: tuple[str, ...]
    source: str
    multiprocessors: int
    bytes_per_s: float
    flop_per_s: Mapping[str, float]
    flop_per_clock: Mapping[str, int]

    def clock_mhz(self, dtype: str) -> float:
        """The clock that the peak of a dtype holds at."""
        return self.flop_per_s[dtype] / (self.multiprocessors * self.flop_per_clock[dtype]) / 1e6

    def flop_per_s_at(self, dtype: str, sm_clock_mhz: float) -> float:
        """The peak of a dtype at another clock: arithmetic scales with it."""
        return self.flop_per_s[dtype] * sm_clock_mhz / self.clock_mhz(dtype)


_E4M3 = "float8_e4m3fn"


def _peaks(float32: float, tf32: float, half: float, fp8: float | None, int8: float) -> dict[str, float]:
    """Peaks in FLOP/s from teraflops; float16 and bfloat16 are alike on all of these."""
    teraflops = {"float32": float32, "tf32": tf32, "float16": half, "bfloat16": half, _E4M3: fp8, "int8": int8}
    return {dtype: value * 1e12 for dtype, value in teraflops.items() if value}


_AMPERE_PER_CLOCK = {"float32": 128, "tf32": 1024, "float16": 2048, "bfloat16": 2048, "int8": 4096}
_HOPPER_PER_CLOCK = {"float32": 256, "tf32": 2048, "float16": 4096, "bfloat16": 4096, _E4M3: 8192, "int8": 8192}
_BLACKWELL_PER_CLOCK = {"float32": 256, "tf32": 4096, "float16": 8192, "bfloat16": 8192, _E4M3: 16384, "int8": 16384}
_ADA_PER_CLOCK = {"float32": 256, "tf32": 512, "float16": 1024, "bfloat16": 1024, _E4M3: 2048, "int8": 2048}
# GeForce halves what is added up in float32
_GEFORCE_PER_CLOCK = {"float32": 256, "tf32": 256, "float16": 512, "bfloat16": 512, _E4M3: 1024, "int8": 2048}
_CDNA_3_PER_CLOCK = {"float32": 256, "tf32": 1024, "float16": 2048, "bfloat16": 2048, _E4M3: 4096, "int8": 4096}
_CDNA_4_PER_CLOCK = {"float32": 256, "float16": 4096, "bfloat16": 4096, _E4M3: 8192, "int8": 8192}

_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix A"
_RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A"
_A100_PEAKS = _peaks(19.5, 156, 312, None, 624)
_H100_PEAKS = _peaks(67, 494.5, 989.5, 1979, 1979)
_MI300_PEAKS = _peaks(163.4, 653.7, 1307.4, 2614.9, 2614.9)


def _row(
    name: str, source: str, multiprocessors: int, gb_per_s: float, peaks: dict[str, float], per_clock: dict[str, int]
) -> Datasheet:
    names = (name, f"{name} OAM", f"{name} VF") if per_clock is _CDNA_3_PER_CLOCK else (name,)
    return Datasheet(
        names=names,
        source=source,
        multiprocessors=multiprocessors,
        bytes_per_s=gb_per_s * 1e9,
        flop_per_s=peaks,
        flop_per_clock=per_clock,
    )


DATASHEETS: tuple[Datasheet, ...] = (
    *(
        _row(name, "NVIDIA A100 Tensor Core GPU datasheet (1758950)", 108, gb_per_s, _A100_PEAKS, _AMPERE_PER_CLOCK)
        for name, gb_per_s in (
            ("NVIDIA A100-SXM4-40GB", 1_555),
            ("NVIDIA A100-PCIE-40GB", 1_555),
            ("NVIDIA A100-SXM4-80GB", 2_039),
            ("NVIDIA A100 80GB PCIe", 1_935),
        )
    ),
    _row("NVIDIA H100 80GB HBM3", f"{_H100}, H100 SXM", 132, 3_350, _H100_PEAKS, _HOPPER_PER_CLOCK),
    _row("NVIDIA H100 PCIe", f"{_H100}, H100 PCIe", 114, 2_000, _peaks(51, 378, 756.5, 1513, 1513), _HOPPER_PER_CLOCK),
    _row("NVIDIA H200", "NVIDIA H200 Tensor Core GPU datasheet, H200 SXM", 132, 4_800, _H100_PEAKS, _HOPPER_PER_CLOCK),
    _row(
        "NVIDIA B200",
        "NVIDIA Blackwell datasheet, HGX B200, per GPU",
        148,
        7_700,
        _peaks(75, 1100, 2250, 4500, 4500),
        _BLACKWELL_PER_CLOCK,
    ),
    _row(
        "NVIDIA L4",
        "NVIDIA L4 Tensor Core GPU datasheet",
        58,
        300,
        _peaks(30.3, 60, 121, 242.5, 242.5),
        _ADA_PER_CLOCK,
    ),
    _row("NVIDIA L40S", "NVIDIA L40S GPU datasheet", 142, 864, _peaks(91.6, 183, 362.05, 733, 733), _ADA_PER_CLOCK),
    _row("NVIDIA GeForce RTX 4090", _ADA, 128, 1_008, _peaks(82.6, 82.6, 165.2, 330.3, 660.6), _GEFORCE_PER_CLOCK),
    _row(
        "NVIDIA GeForce RTX 5090", _RTX_BLACKWELL, 170, 1_792, _peaks(104.8, 104.8, 209.5, 419, 838), _GEFORCE_PER_CLOCK
    ),
    *(
        _row(name, f"{name} accelerator data sheet", 304, gb_per_s, _MI300_PEAKS, _CDNA_3_PER_CLOCK)
        for name, gb_per_s in (("AMD Instinct MI300X", 5_300), ("AMD Instinct MI325X", 6_000))
    ),
    *(
        _row(name, f"{name} GPU data sheet", 256, 8_000, peaks, _CDNA_4_PER_CLOCK)
        for name, peaks in (
            ("AMD Instinct MI350X", _peaks(144.2, 0, 2306.9, 4613.7, 4613.7)),
            ("AMD Instinct MI355X", _peaks(157.3, 0, 2516.6, 5033.2, 5033.2)),
        )
    ),
)


def datasheet_of(device_name: str) -> Datasheet | None:
    """That of a device by the name that torch gives; None for one that is not listed, or a slice of one."""
    return next((sheet for sheet in DATASHEETS if device_name in sheet.names), None)


def datasheet_ceilings(device_name: str, dtypes: Sequence[str]) -> list[Ceiling]:
    """The published ceilings of a device, at the clock that its vendor states them for.

    Args:
        device_name: As torch gives it.
        dtypes: Those that are wanted; others, and those that the document leaves out, are not.
    """
    sheet = datasheet_of(device_name)
    if sheet is None:
        return []
    memory = Ceiling(resource="memory", level="dram", per_s=sheet.bytes_per_s, method=sheet.source, source="datasheet")
    return [
        memory,
        *(
            Ceiling(
                resource="compute",
                dtype=dtype,
                per_s=per_s,
                method=f"{sheet.source}, dense, at {sheet.clock_mhz(dtype):.0f} MHz",
                source="datasheet",
            )
            for dtype, per_s in sheet.flop_per_s.items()
            if dtype in dtypes
        ),
    ]


SUSPICIOUS_ABOVE = 1.05
"""A measured ceiling above the vendor's by more is doubted, since no memory and no arithmetic unit does 5 % more than
its makers claim at the clock that they claim it for.
"""


@dataclass(frozen=True)
class PublishedCeiling:
    """A measured ceiling, and what the datasheet has beside it."""

    measured: Ceiling
    published_per_s: float
    at_clock_per_s: float
    """The same at the clock that was seen; for memory, whose clock is its own, as published."""
    sm_clock_mhz: float | None = None
    """That was seen while it was measured, or else in the run; None where nobody watched."""

    @property
    def share(self) -> float:
        """Of what the datasheet allows at the clock that was seen."""
        return self.measured.per_s / self.at_clock_per_s

    @property
    def is_suspicious(self) -> bool:
        return self.measured.per_s > SUSPICIOUS_ABOVE * max(self.published_per_s, self.at_clock_per_s)


def beside_datasheet(
    ceilings: Sequence[Ceiling],
    device_name: str,
    *,
    at_ceilings: Sequence[DeviceState] = (),
    sm_clock_mhz: float | None = None,
) -> list[PublishedCeiling]:
    """The measured ceilings that the datasheet has a figure for; none of a device that is not listed.

    Args:
        ceilings: Of one run.
        device_name: As torch gives it.
        at_ceilings: Of the device while each measured one was taken, in their order.
        sm_clock_mhz: That was seen in the run, for records without the above; the clock of the datasheet counts where
            none was.
    """
    sheet = datasheet_of(device_name)
    if sheet is None:
        return []
    found = []
    measured = [ceiling for ceiling in ceilings if ceiling.source == "measured"]
    for ceiling, state in zip_longest(measured, at_ceilings[: len(measured)]):
        dtype = ceiling.dtype or ""
        clock_mhz = sm_clock_mhz if state is None else state.sm_clock_mhz or sm_clock_mhz
        if ceiling.resource == "memory" and ceiling.level == "dram":
            found.append(PublishedCeiling(ceiling, sheet.bytes_per_s, sheet.bytes_per_s, clock_mhz))
        elif ceiling.resource == "compute" and dtype in sheet.flop_per_s:
            at_clock = sheet.flop_per_s_at(dtype, clock_mhz or sheet.clock_mhz(dtype))
            found.append(PublishedCeiling(ceiling, sheet.flop_per_s[dtype], at_clock, clock_mhz))
    return found
