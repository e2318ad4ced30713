"""The command lines of Nsight Compute, as pure functions of what is wanted.

Source: Nsight Compute command line documentation. Clocks are left alone: locked to the base clock, as `ncu` does by
default, a kernel is counted in a state in which nobody runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.record.measurement import CacheState
from roofwatch.install import INSTALL_ROOT

KEPT_METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "l1tex__t_bytes.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
"""Counted beside the sections of any set. What an architecture does not have comes back as `n/a`, which is no value."""

_CACHE_CONTROL = {CacheState.COLD: "all", CacheState.HOT: "none"}

# Ours first while our own modules are imported, then last: a suite finds its own packages before ours.
_BOOT = """
import sys
root = sys.argv[1]
sys.path.insert(0, root)
from pathlib import Path
from roofwatch.collector.profiling.ncu.target import main
sys.path.remove(root)
sys.path.append(root)
main(Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class CounterChoice:
    """What is counted.

    Args:
        metrics: A set of sections such as `basic` or `full`, or names of metrics separated by commas.
        cache: `cold` empties the caches before each pass, `hot` leaves in them what the pass before left.
    """

    metrics: str = "full"
    cache: CacheState = CacheState.COLD

    @property
    def are_named(self) -> bool:
        """Metrics are given by name, not as a set; all of theirs have a unit's two underscores."""
        return "__" in self.metrics


def profile_command(executable: Path, target: Sequence[str], choice: CounterChoice, report: Path) -> list[str]:
    """The command that counts one call.

    Args:
        executable: Nsight Compute's `ncu`.
        target: The process to look into, which says itself when profiling starts and stops.
        choice: What is counted.
        report: The `.ncu-rep` file to write.
    """
    wanted = (
        ["--metrics", choice.metrics]
        if choice.are_named
        else ["--set", choice.metrics, "--metrics", ",".join(KEPT_METRICS)]
    )
    return [
        str(executable),
        *("--target-processes", "application-only"),
        *("--profile-from-start", "off"),
        *("--replay-mode", "kernel"),
        *("--clock-control", "none"),
        *("--cache-control", _CACHE_CONTROL[choice.cache]),
        *wanted,
        *("--force-overwrite", "--export", str(report)),
        *target,
    ]


def import_command(executable: Path, report: Path, page: str) -> list[str]:
    """The command that prints a page of a report, `raw` or `details`, as CSV."""
    return [
        *(str(executable), "--import", str(report)),
        *("--csv", "--page", page, "--print-kernel-base", "function"),
    ]


def target_command(python: str, job_file: Path) -> list[str]:
    """The command that does a `NcuJob`."""
    return [python, "-P", "-c", _BOOT, str(INSTALL_ROOT), str(job_file)]
