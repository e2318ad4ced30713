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
        flop_per_clock = self.multiprocessors * self.flop_per_clock[dtype]
        # 10¹² FLOP/s by 10⁶ Hz
        return self.teraflops[dtype] / flop_per_clock * 1e6

    def flop_per_s(self, dtype: str, sm_clock_mhz: float | None = None) -> float:
        """The peak of a dtype, scaled to another clock if given."""
        peak_flop_per_s = self.teraflops[dtype] * 1e12
        if sm_clock_mhz is None:
            return peak_flop_per_s
        return peak_flop_per_s * (sm_clock_mhz / self.clock_mhz(dtype))


def _rates(
    float32: float,
    tf32: float,
    half: float,
    fp8: float,
    int8: float,
) -> dict[str, float]:
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
_AMPERE = _rates(
    float32=128,
    tf32=1024,
    half=2048,
    fp8=0,
    int8=4096,
)
_HOPPER = _rates(
    float32=256,
    tf32=2048,
    half=4096,
    fp8=8192,
    int8=8192,
)
_BLACKWELL = _rates(
    float32=256,
    tf32=4096,
    half=8192,
    fp8=16384,
    int8=16384,
)
_ADA = _rates(
    float32=256,
    tf32=512,
    half=1024,
    fp8=2048,
    int8=2048,
)
_GEFORCE = _rates(
    float32=256,
    tf32=256,
    half=512,
    fp8=1024,
    int8=2048,
)  # half rate with float32 accumulation
_CDNA_3 = _rates(
    float32=256,
    tf32=1024,
    half=2048,
    fp8=4096,
    int8=4096,
)
_CDNA_4 = _rates(
    float32=256,
    tf32=0,
    half=4096,
    fp8=8192,
    int8=8192,
)

# 10¹² FLOP/s
_A100 = _rates(
    float32=19.5,
    tf32=156,
    half=312,
    fp8=0,
    int8=624,
)
_H100 = _rates(
    float32=67,
    tf32=494.5,
    half=989.5,
    fp8=1979,
    int8=1979,
)
_H100_PCIE = _rates(
    float32=51,
    tf32=378,
    half=756.5,
    fp8=1513,
    int8=1513,
)
_B200 = _rates(
    float32=75,
    tf32=1100,
    half=2250,
    fp8=4500,
    int8=4500,
)
_GB200 = _rates(
    float32=80,
    tf32=1250,
    half=2500,
    fp8=5000,
    int8=5000,
)
_L4 = _rates(
    float32=30.3,
    tf32=60,
    half=121,
    fp8=242.5,
    int8=242.5,
)
_L40S = _rates(
    float32=91.6,
    tf32=183,
    half=362.05,
    fp8=733,
    int8=733,
)
_RTX_4090 = _rates(
    float32=82.6,
    tf32=82.6,
    half=165.2,
    fp8=330.3,
    int8=660.6,
)
_RTX_5090 = _rates(
    float32=104.8,
    tf32=104.8,
    half=209.5,
    fp8=419,
    int8=838,
)
_MI300 = _rates(
    float32=163.4,
    tf32=653.7,
    half=1307.4,
    fp8=2614.9,
    int8=2614.9,
)
_MI350 = _rates(
    float32=144.2,
    tf32=0,
    half=2306.9,
    fp8=4613.7,
    int8=4613.7,
)
_MI355 = _rates(
    float32=157.3,
    tf32=0,
    half=2516.6,
    fp8=5033.2,
    int8=5033.2,
)

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
    ceilings: Sequence[Ceiling],
    device_name: str,
    *,
    sm_clock_mhz: float | None = None,
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
        # it would be compared with itself
        if ceiling.source == "datasheet":
            continue
        if ceiling.resource == "memory" and ceiling.level == "dram":
            published = at_clock = sheet.bytes_per_s
        elif ceiling.resource == "compute" and dtype in sheet.teraflops:
            published = sheet.flop_per_s(dtype)
            at_clock = sheet.flop_per_s(dtype, sm_clock_mhz)
        else:
            continue
        comparisons.append(
            DatasheetCeiling(
                measured=ceiling,
                published_per_s=published,
                at_clock_per_s=at_clock,
            )
        )
    return comparisons


def share_of_peak(
    utilisation: float | None,
    binding: Ceiling | None,
    published: Sequence[DatasheetCeiling],
) -> float | None:
    """Share of the datasheet's peak, from the share of the measured ceiling that binds.

    None if the datasheet does not state that ceiling.
    """
    if utilisation is None or binding is None:
        return None
    for comparison in published:
        if comparison.measured == binding:
            return utilisation * binding.per_s / comparison.published_per_s
    return None
