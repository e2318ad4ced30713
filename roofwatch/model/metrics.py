"""The table of metrics: key, unit, which direction is better, and format; and the metrics of
imported values.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache, partial


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"
    UNKNOWN = "unknown"
    """The value is shown and never judged; only of imported values."""


class Layer(StrEnum):
    """Part of a record that a metric comes from."""

    MEASURED = "measured"
    ACCURACY = "accuracy"
    STATIC = "static"
    OPERATORS = "operators"
    """What a call does in torch, counted without running it."""
    IMPORTED = "imported"
    """Values of other tools' files, whose metrics are not in the table."""


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    unit: str
    better: Better
    layer: Layer
    format: Callable[[float], str]
    work: str = ""
    """Field of a case: the metric is this amount per second of the time."""
    is_inverse_of_time: bool = False
    """Metric times time is a constant of the case, so the quartiles follow from the time's."""

    def is_worse(self, *, base: float, head: float) -> bool:
        if self.better is Better.LOWER:
            return head > base
        return head < base

    @property
    def direction(self) -> str:
        """For example `lower is better`."""
        if self.better is Better.UNKNOWN:
            return "direction unknown"
        return f"{self.better} is better"


_TIME_STEPS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_ENERGY_STEPS = ((1e9, "J"), (1e6, "mJ"), (1e3, "µJ"))
_RATE_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTE_STEPS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def _scaled(value: float, steps: tuple[tuple[float, str], ...], plain: str) -> str:
    # 999.6 µs rounds to 1 ms, not to 1e+03 µs
    for size, prefix in steps:
        if abs(_three_digits(value)) >= size:
            return f"{_written(value / size)} {prefix}"
    return f"{_written(value)} {plain}".rstrip()


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _written(value: float) -> str:
    if 1_000 <= abs(_three_digits(value)) < math.inf:
        return f"{_three_digits(value):,.0f}"
    return f"{value:.3g}"


def format_ns(value: float) -> str:
    """Nanoseconds as text with three significant digits: `1.23 ms`."""
    return _scaled(value, _TIME_STEPS, "ns")


def _format_rate(unit: str, value: float) -> str:
    return _scaled(value, _RATE_STEPS, "") + unit


def _format_joules(value: float) -> str:
    return _scaled(value * 1e9, _ENERGY_STEPS, "nJ")


def format_bytes(value: float) -> str:
    """Bytes as text, in powers of 1024: `48 KiB`."""
    for size, unit in _BYTE_STEPS:
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} B"


def format_counter_name(name: str) -> str:
    """Write the name of a hardware counter in words; one of Nsight Compute stays as it is, so that
    people can search for it.
    """
    if "__" in name:
        return name
    return name.replace("_", " ")


def format_counter(name: str, value: float) -> str:
    """Write a hardware counter in the unit at the end of its name: `130 MiB`, `12.0%`, `4.1 µs`,
    `1.32 GHz`.
    """
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_ns"):
        return format_ns(value)
    if name.endswith("_hz"):
        return f"{value / 1e9:.3g} GHz"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _sizes_of(unit: str) -> dict[str, float]:
    """Size of each spelling of a unit and its multiples."""
    if unit == "ns":
        return {name: size for size, name in (*_TIME_STEPS, (1e3, "us"), (1.0, "ns"))}
    if unit == "bytes":
        multiples = (*_BYTE_STEPS, (10**9, "GB"), (10**6, "MB"), (1, "B"))
        return {name: float(size) for size, name in multiples}
    if unit == "share":
        return {"%": 0.01}
    sizes = {unit: 1.0}
    if unit.endswith("/s"):
        sizes |= {f"{prefix}{unit}": size for size, prefix in _RATE_STEPS}
    return sizes


def parse_amount(text: str, unit: str) -> float:
    """Read what people write for a metric's unit: `600 TFLOP/s`, `2 ms`, `48 KiB`, `5%`.

    Raises:
        ValueError: no number with that unit or a multiple of it.
    """
    sizes = _sizes_of(unit)
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(\D+)", text.replace(" ", ""))
    if parts is None or parts[2] not in sizes:
        raise ValueError(
            f'write a number and one of {", ".join(sizes)}, such as "5{next(iter(sizes))}"'
        )
    # in decimal, where 70 × 0.01 is 0.7
    return float(Decimal(parts[1]) * Decimal(str(sizes[parts[2]])))


_format_flop_per_s, _format_bytes_per_s, _format_tokens_per_s = (
    partial(_format_rate, unit) for unit in ("FLOP/s", "B/s", " tokens/s")
)
_format_count = "{:.0f}".format
_format_share = "{:.1%}".format
_format_error = "{:.2e}".format
_format_ratio = "{:.3g}×".format

RATIO_TO_REFERENCE = "ratio_to_reference"
"""Metric of a time over the time of a library in the same run."""
_ROWS = (
    Metric("median_ns", "time", "ns", Better.LOWER, Layer.MEASURED, format_ns),
    Metric(
        "flop_per_s",
        "compute rate",
        "FLOP/s",
        Better.HIGHER,
        Layer.MEASURED,
        _format_flop_per_s,
        work="flop_count",
    ),
    Metric(
        "memory_bytes_per_s",
        "memory rate",
        "B/s",
        Better.HIGHER,
        Layer.MEASURED,
        _format_bytes_per_s,
        work="memory_bytes",
    ),
    Metric(
        "bus_bytes_per_s",
        "bus bandwidth",
        "B/s",
        Better.HIGHER,
        Layer.MEASURED,
        _format_bytes_per_s,
        work="bus_bytes",
    ),
    Metric(
        "tokens_per_s",
        "token rate",
        "tokens/s",
        Better.HIGHER,
        Layer.MEASURED,
        _format_tokens_per_s,
        work="token_count",
    ),
    Metric(
        "utilisation",
        "utilisation of the roof",
        "share",
        Better.HIGHER,
        Layer.MEASURED,
        _format_share,
        is_inverse_of_time=True,
    ),
    Metric(
        RATIO_TO_REFERENCE,
        "time / library's time",
        "ratio",
        Better.LOWER,
        Layer.MEASURED,
        _format_ratio,
    ),
    Metric(
        "joules_per_launch", "energy of a launch", "J", Better.LOWER, Layer.MEASURED, _format_joules
    ),
    Metric("host_ns", "host time of a launch", "ns", Better.LOWER, Layer.MEASURED, format_ns),
    Metric(
        "peak_allocated_bytes",
        "peak allocated memory",
        "bytes",
        Better.LOWER,
        Layer.MEASURED,
        format_bytes,
    ),
    Metric(
        "rmse_ratio", "error (RMSE / RMS)", "ratio", Better.LOWER, Layer.ACCURACY, _format_error
    ),
    Metric(
        "max_abs_error", "largest error", "absolute", Better.LOWER, Layer.ACCURACY, _format_error
    ),
    Metric(
        "registers", "registers per thread", "registers", Better.LOWER, Layer.STATIC, _format_count
    ),
    Metric(
        "spilled_registers",
        "spilled registers",
        "registers",
        Better.LOWER,
        Layer.STATIC,
        _format_count,
    ),
    Metric(
        "spill_store_count",
        "stores to local memory",
        "instructions",
        Better.LOWER,
        Layer.STATIC,
        _format_count,
    ),
    Metric(
        "spill_load_count",
        "loads from local memory",
        "instructions",
        Better.LOWER,
        Layer.STATIC,
        _format_count,
    ),
    Metric(
        "local_bytes", "local memory per thread", "bytes", Better.LOWER, Layer.STATIC, format_bytes
    ),
    Metric(
        "shared_bytes", "shared memory per block", "bytes", Better.LOWER, Layer.STATIC, format_bytes
    ),
    Metric(
        "theoretical_occupancy",
        "theoretical occupancy",
        "share",
        Better.HIGHER,
        Layer.STATIC,
        _format_share,
    ),
    Metric(
        "instruction_count",
        "instructions",
        "instructions",
        Better.LOWER,
        Layer.STATIC,
        _format_count,
    ),
    Metric("code_bytes", "code size", "bytes", Better.LOWER, Layer.STATIC, format_bytes),
    Metric(
        "moved_bytes", "bytes moved in torch", "bytes", Better.LOWER, Layer.OPERATORS, format_bytes
    ),
    Metric(
        "peak_bytes",
        "memory of temporaries and results",
        "bytes",
        Better.LOWER,
        Layer.OPERATORS,
        format_bytes,
    ),
    Metric(
        "wait_count",
        "waits for the device",
        "waits",
        Better.LOWER,
        Layer.OPERATORS,
        _format_count,
    ),
)

METRICS: Mapping[str, Metric] = {row.key: row for row in _ROWS}
TIME = METRICS["median_ns"]
OPERATOR_METRICS = tuple(row.key for row in _ROWS if row.layer is Layer.OPERATORS)
"""Each is a property of `OperatorCost`."""
RATES = tuple(row for row in _ROWS if row.work)
"""Metrics computed as work of a case over its time, and stored nowhere."""
STORED = tuple(
    row for row in _ROWS if row.layer is Layer.MEASURED and row is not TIME and not row.work
)
"""Metrics that a measurement may have besides its time: each is a property of `Measurement` and a
column of the table `measurement`, both named by its key.
"""


SHARE_OF_STEP = "share of step: "
"""Start of the metric of a function's share of a workload's step."""
RATIO_TO = ", ratio to "
"""In the title of an imported metric, before the reference that its values are divided by."""
_NS_BY_UNIT = {
    **dict.fromkeys(("ns", "nsec"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "usec"), 1e3),
    **dict.fromkeys(("ms", "msec"), 1e6),
    **dict.fromkeys(("s", "sec", "seconds"), 1e9),
}
"""Size of the units in which other tools write times."""


def _format_time(value_ns: float) -> str:
    """A time with three significant digits, zeros at the end too: `3.00 s`."""
    for size, unit in _TIME_STEPS:
        if abs(value_ns) >= size:
            return f"{value_ns / size:#.3g} {unit}".replace(". ", " ")
    return f"{value_ns:.3g} ns"


_IMPORTED_KEY = re.compile(
    r"(?P<title>.+) \((?P<unit>.*), (?P<better>lower|higher|unknown)\)", re.DOTALL
)


def imported_key(title: str, unit: str, better: Better) -> str:
    """Key of an imported metric. Another unit or direction is another metric."""
    return f"{title} ({unit}, {better})"


def is_metric(key: str) -> bool:
    return key in METRICS or _IMPORTED_KEY.fullmatch(key) is not None


@lru_cache(maxsize=10_000)  # equal keys give one object, and queries group by it
def metric(key: str) -> Metric:
    """Look a metric up, or read what the key of an imported metric says.

    Raises:
        KeyError: no such metric.
    """
    listed = METRICS.get(key)
    if listed is not None:
        return listed
    imported = _IMPORTED_KEY.fullmatch(key)
    if imported is None:
        raise KeyError(f"metric {key!r} is not known; choose from {', '.join(METRICS)}")
    title, unit, better = imported.groups()

    scale_ns = _NS_BY_UNIT.get(unit)

    def write(value: float) -> str:
        if scale_ns is not None:
            return _format_time(value * scale_ns)
        return f"{value:.4g} {unit}".rstrip()

    write_known = {"share": _format_share, "bytes": format_bytes}.get(unit, write)
    if RATIO_TO in title:
        write_known = _format_ratio
    return Metric(key, title, unit, Better(better), Layer.IMPORTED, write_known)
