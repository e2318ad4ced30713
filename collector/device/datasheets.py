"""Vendors' peak rates of GPUs, and how measured ceilings compare with them.

Peaks are dense: figures for 2:4 sparsity are halved. A device or dtype that its document omits has
no entry. The clock of a peak follows from the fixed number of operations per clock and
multiprocessor. Sources: NVIDIA's architecture whitepapers (A100, H100, Ada, RTX Blackwell) per SM;
AMD's CDNA 3 and CDNA 4 whitepapers per compute unit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.model.machine import Ceiling

SUSPICIOUS_ABOVE = 1.05
"""A measured ceiling may exceed the datasheet's by this factor."""


@dataclass(frozen=True)
class Datasheet:
    """One device, by the names that torch reports; multiprocessors are AMD's compute units too."""

    names: tuple[str, ...]
    source: str
    multiprocessors: int
    gb_per_s: float
    """Device memory, in 10⁹ bytes per second."""
    teraflops: Mapping[str, float]
    """Peak by operand dtype, in 10¹² FLOP/s, with float32 accumulation if there is a choice."""
    flop_per_clock: Mapping[str, float]
    """Per multiprocessor."""

    @property
    def bytes_per_s(self) -> float:
        return self.gb_per_s * 1e9

    def clock_mhz(self, dtype: str) -> float:
        """The clock that a peak refers to."""
        return self.teraflops[dtype] / (self.multiprocessors * self.flop_per_clock[dtype]) * 1e6

    def flop_per_s(self, dtype: str, sm_clock_mhz: float | None = None) -> float:
        """The peak of a dtype, scaled to another clock if given."""
        peak_flop_per_s = self.teraflops[dtype] * 1e12
        if sm_clock_mhz is None:
            return peak_flop_per_s
        return peak_flop_per_s * (sm_clock_mhz / self.clock_mhz(dtype))


def _rates(float32: float, tf32: float, half: float, fp8: float, int8: float) -> dict[str, float]:
    """Rates by dtype; float16 and bfloat16 are equal on all devices, and 0 means not stated."""
    rates = {
        "float32": float32,
        "tf32": tf32,
        "float16": half,
        "bfloat16": half,
        "float8_e4m3fn": fp8,
        "int8": int8,
    }
    return {dtype: rate for dtype, rate in rates.items() if rate}


# FLOP per clock and multiprocessor
_AMPERE = _rates(128, 1024, 2048, 0, 4096)
_HOPPER = _rates(256, 2048, 4096, 8192, 8192)
_BLACKWELL = _rates(256, 4096, 8192, 16384, 16384)
_ADA = _rates(256, 512, 1024, 2048, 2048)
_GEFORCE = _rates(256, 256, 512, 1024, 2048)  # half rate with float32 accumulation
_CDNA_3 = _rates(256, 1024, 2048, 4096, 4096)
_CDNA_4 = _rates(256, 0, 4096, 8192, 8192)

# 10¹² FLOP/s
_A100 = _rates(19.5, 156, 312, 0, 624)
_H100 = _rates(67, 494.5, 989.5, 1979, 1979)
_H100_PCIE = _rates(51, 378, 756.5, 1513, 1513)
_B200 = _rates(75, 1100, 2250, 4500, 4500)
_GB200 = _rates(80, 1250, 2500, 5000, 5000)
_L4 = _rates(30.3, 60, 121, 242.5, 242.5)
_L40S = _rates(91.6, 183, 362.05, 733, 733)
_RTX_4090 = _rates(82.6, 82.6, 165.2, 330.3, 660.6)
_RTX_5090 = _rates(104.8, 104.8, 209.5, 419, 838)
_MI300 = _rates(163.4, 653.7, 1307.4, 2614.9, 2614.9)
_MI350 = _rates(144.2, 0, 2306.9, 4613.7, 4613.7)
_MI355 = _rates(157.3, 0, 2516.6, 5033.2, 5033.2)

_A100_SHEET = "NVIDIA A100 Tensor Core GPU datasheet (1758950)"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU datasheet"
_WHITEPAPER = "GPU Architecture whitepaper, appendix A"


def _amd_names(name: str) -> tuple[str, ...]:
    return (name, f"{name} OAM", f"{name} VF")


DATASHEETS: tuple[Datasheet, ...] = tuple(
    Datasheet(*row)
    for row in (
        (("NVIDIA A100-SXM4-40GB",), _A100_SHEET, 108, 1_555, _A100, _AMPERE),
        (("NVIDIA A100-PCIE-40GB",), _A100_SHEET, 108, 1_555, _A100, _AMPERE),
        (("NVIDIA A100-SXM4-80GB",), _A100_SHEET, 108, 2_039, _A100, _AMPERE),
        (("NVIDIA A100 80GB PCIe",), _A100_SHEET, 108, 1_935, _A100, _AMPERE),
        (("NVIDIA H100 80GB HBM3",), f"{_H100_SHEET}, H100 SXM", 132, 3_350, _H100, _HOPPER),
        (("NVIDIA H100 PCIe",), f"{_H100_SHEET}, H100 PCIe", 114, 2_000, _H100_PCIE, _HOPPER),
        (
            ("NVIDIA GH200 480GB",),
            "NVIDIA GH200 Grace Hopper Superchip datasheet",
            132,
            4_000,
            _H100,
            _HOPPER,
        ),
        (
            ("NVIDIA H200",),
            "NVIDIA H200 Tensor Core GPU datasheet, H200 SXM",
            132,
            4_800,
            _H100,
            _HOPPER,
        ),
        (
            ("NVIDIA B200",),
            "NVIDIA Blackwell datasheet, HGX B200, per GPU",
            148,
            7_700,
            _B200,
            _BLACKWELL,
        ),
        (
            ("NVIDIA GB200",),
            "NVIDIA GB200 NVL72 datasheet, per GPU",
            148,
            8_000,
            _GB200,
            _BLACKWELL,
        ),
        (("NVIDIA L4",), "NVIDIA L4 Tensor Core GPU datasheet", 58, 300, _L4, _ADA),
        (("NVIDIA L40S",), "NVIDIA L40S GPU datasheet", 142, 864, _L40S, _ADA),
        (
            ("NVIDIA GeForce RTX 4090",),
            f"NVIDIA Ada {_WHITEPAPER}",
            128,
            1_008,
            _RTX_4090,
            _GEFORCE,
        ),
        (
            ("NVIDIA GeForce RTX 5090",),
            f"NVIDIA RTX Blackwell {_WHITEPAPER}",
            170,
            1_792,
            _RTX_5090,
            _GEFORCE,
        ),
        (
            _amd_names("AMD Instinct MI300X"),
            "AMD Instinct MI300X accelerator data sheet",
            304,
            5_300,
            _MI300,
            _CDNA_3,
        ),
        (
            _amd_names("AMD Instinct MI325X"),
            "AMD Instinct MI325X accelerator data sheet",
            304,
            6_000,
            _MI300,
            _CDNA_3,
        ),
        (
            ("AMD Instinct MI350X",),
            "AMD Instinct MI350X GPU data sheet",
            256,
            8_000,
            _MI350,
            _CDNA_4,
        ),
        (
            ("AMD Instinct MI355X",),
            "AMD Instinct MI355X GPU data sheet",
            256,
            8_000,
            _MI355,
            _CDNA_4,
        ),
    )
)


def datasheet_of(device_name: str) -> Datasheet | None:
    """Find a device by torch's name; None if it is not listed, for example a MIG slice."""
    return next((sheet for sheet in DATASHEETS if device_name in sheet.names), None)


def datasheet_ceilings(device_name: str, dtypes: Sequence[str]) -> list[Ceiling]:
    """Published ceilings of a device, for memory and the given dtypes, at the vendor's clock."""
    sheet = datasheet_of(device_name)
    if sheet is None:
        return []
    memory = Ceiling(
        resource="memory",
        level="dram",
        per_s=sheet.bytes_per_s,
        method=sheet.source,
        source="datasheet",
    )
    return [
        memory,
        *(
            Ceiling(
                resource="compute",
                dtype=dtype,
                per_s=sheet.flop_per_s(dtype),
                method=f"{sheet.source}, dense, at {sheet.clock_mhz(dtype):.0f} MHz",
                source="datasheet",
            )
            for dtype in sheet.teraflops
            if dtype in dtypes
        ),
    ]


@dataclass(frozen=True)
class DatasheetCeiling:
    measured: Ceiling
    published_per_s: float
    at_clock_per_s: float
    """Scaled to the clock of the run; memory is not scaled."""

    @property
    def share(self) -> float:
        """Measured, relative to the published ceiling at the same clock."""
        return self.measured.per_s / self.at_clock_per_s

    @property
    def is_suspicious(self) -> bool:
        return self.measured.per_s > SUSPICIOUS_ABOVE * max(
            self.published_per_s, self.at_clock_per_s
        )


def compare_with_datasheet(
    ceilings: Sequence[Ceiling], device_name: str, *, sm_clock_mhz: float | None = None
) -> list[DatasheetCeiling]:
    """Compare measured ceilings with the datasheet; ceilings that it does not state are left out.

    The clock is that of the run; default the datasheet's.
    """
    sheet = datasheet_of(device_name)
    if sheet is None:
        return []
    comparisons = []
    for ceiling in ceilings:
        dtype = ceiling.dtype or ""
        if ceiling.source == "datasheet":
            continue
        if ceiling.resource == "memory" and ceiling.level == "dram":
            published = at_clock = sheet.bytes_per_s
        elif ceiling.resource == "compute" and dtype in sheet.teraflops:
            published = sheet.flop_per_s(dtype)
            at_clock = sheet.flop_per_s(dtype, sm_clock_mhz)
        else:
            continue
        comparisons.append(DatasheetCeiling(ceiling, published, at_clock))
    return comparisons
