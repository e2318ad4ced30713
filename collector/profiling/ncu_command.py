"""Command lines of Nsight Compute, the job of the process that it profiles, and the meaning of its messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import Failure
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
"""Counted in addition to any set of sections."""
_CACHE_CONTROL = {CacheState.COLD: "all", CacheState.HOT: "none"}

# our modules are imported first; after that the packages of the suite take precedence
_BOOT = """
import sys
root = sys.argv[1]
sys.path.insert(0, root)
from pathlib import Path
from roofwatch.collector.profiling.ncu_target import main
sys.path.remove(root)
sys.path.append(root)
main(Path(sys.argv[2]))
"""

_KNOWN_ERRORS = (
    (
        re.compile("ERR_NVGPUCTRPERM"),
        "this user may not read the GPU's counters (ERR_NVGPUCTRPERM). Either run as administrator: `sudo -E env "
        "PATH=$PATH roofwatch ncu ...`; or allow all users, with the line `options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d and a restart; or give the container the "
        "capability CAP_SYS_ADMIN: --cap-add=SYS_ADMIN",
    ),
    (
        re.compile("driver resource was unavailable"),
        "another tool uses the GPU's counters, for example DCGM (dcgm-exporter in Kubernetes): pause it with `dcgmi "
        "profile --pause`, and resume it afterwards with `dcgmi profile --resume`",
    ),
    (
        re.compile("failed to find metric|unrecognised option|did not match any", re.IGNORECASE),
        "unknown set, metric or option ({line}); see ncu --list-sets and ncu --query-metrics",
    ),
    (
        re.compile("not supported on", re.IGNORECASE),
        "this version does not support the GPU ({line}); install a newer one",
    ),
)
_ERROR_LINE = re.compile(r"^==ERROR==\s*(?P<text>.+)$", re.MULTILINE)
_NO_KERNELS = re.compile(r"^==WARNING==.*No kernels were profiled", re.MULTILINE)
_TARGET_FAILED = re.compile("application returned an error|error occurred while trying to profile", re.IGNORECASE)


class NcuJob(BaseModel):
    """One call of one case for the profiled process to make."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: SuiteSource
    case_id: str
    implementation: str
    device: str
    warm_up_count: int
    """Calls before the profiled one, for compilation and autotuning."""
    answer: Path
    """Where to write the `NcuAnswer`."""


class NcuAnswer(BaseModel):
    """How the call ended; no file is written if the process died."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure: Failure | None = None


def profile_command(
    executable: Path, target: Sequence[str], report: Path, *, metrics: str = "full", cache: CacheState = CacheState.COLD
) -> list[str]:
    """Build the command that profiles `target`, which starts and stops the profiler itself."""
    are_names = "__" in metrics  # all names of metrics have two underscores
    return [
        str(executable),
        *("--target-processes", "application-only"),
        *("--profile-from-start", "off"),
        *("--replay-mode", "kernel"),
        *("--clock-control", "none"),
        *("--cache-control", _CACHE_CONTROL[cache]),
        *(() if are_names else ("--set", metrics)),
        *("--metrics", metrics if are_names else ",".join(KEPT_METRICS)),
        *("--force-overwrite", "--export", str(report)),
        *target,
    ]


def import_command(executable: Path, report: Path) -> list[str]:
    """Build the command that prints the raw page of a report as CSV."""
    return [str(executable), "--import", str(report), "--csv", "--page", "raw", "--print-kernel-base", "function"]


def target_command(python: str, job_file: Path) -> list[str]:
    return [python, "-P", "-c", _BOOT, str(INSTALL_ROOT), str(job_file)]


def explain_error(output: str) -> str | None:
    """Explain a known error in the output of ncu and its target, with a way out; None if there is none."""
    for pattern, explanation in _KNOWN_ERRORS:
        for line in _error_lines(output):
            if pattern.search(line):
                return explanation.format(line=line)
    return None


def last_error(output: str) -> str | None:
    """The last error of ncu itself; None if there is none."""
    own = [line for line in _error_lines(output) if not _TARGET_FAILED.search(line)]
    return own[-1] if own else None


def saw_no_kernel(output: str) -> bool:
    return _NO_KERNELS.search(output) is not None


def _error_lines(output: str) -> list[str]:
    return [match["text"].strip() for match in _ERROR_LINE.finditer(output)]
