"""The ncu command line, its counters, and what its error messages mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import FACTS
from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.record.results import Counters, ProfilerFinding
from roofwatch.install import INSTALL_ROOT

_PERMISSION = (
    "this user may not read the GPU's counters (ERR_NVGPUCTRPERM). Any of these helps: run as administrator, with "
    "`sudo -E env PATH=$PATH roofwatch ncu ...`; let everybody read them, with the line `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d and a restart; give a container the "
    "capability CAP_SYS_ADMIN, with --cap-add=SYS_ADMIN"
)
_HELD = (
    "another tool holds the GPU's counters, as DCGM does on many clusters (dcgm-exporter in Kubernetes): pause it with "
    "`dcgmi profile --pause`, and let it go on afterwards with `dcgmi profile --resume`"
)
_NOT_TAKEN = "it does not take what it was asked ({line}); see ncu --list-sets and ncu --query-metrics"
_UNKNOWN_DEVICE = "this version of it does not know the GPU ({line}); install one that does"
_KNOWN = (
    (re.compile("ERR_NVGPUCTRPERM"), _PERMISSION),
    (re.compile("driver resource was unavailable"), _HELD),
    (re.compile("failed to find metric|unrecognised option|did not match any", re.IGNORECASE), _NOT_TAKEN),
    (re.compile("not supported on", re.IGNORECASE), _UNKNOWN_DEVICE),
)
_NO_KERNELS = "No kernels were profiled"
_ERROR_LINE = re.compile(r"^==ERROR==\s*(?P<text>.+)$", re.MULTILINE)
_WARNING_LINE = re.compile(r"^==WARNING==\s*(?P<text>.+)$", re.MULTILINE)
# what it says when the program it looks into failed, which that program says better itself
_OF_THE_TARGET = re.compile("application returned an error|error occurred while trying to profile", re.IGNORECASE)


def trouble_of(output: str) -> str | None:
    """Why nothing could be counted, in words and with what helps; None where it says nothing that is known.

    Args:
        output: All that Nsight Compute and the process it looked into printed.
    """
    for pattern, words in _KNOWN:
        for line in _errors(output):
            if pattern.search(line):
                return words.format(line=line)
    return None


def saw_no_kernel(output: str) -> bool:
    """Whether it says that nothing was launched while it looked."""
    return any(_NO_KERNELS in match["text"] for match in _WARNING_LINE.finditer(output))


def last_error(output: str) -> str | None:
    """The last error of the tool's own; None if it printed none."""
    own = [line for line in _errors(output) if not _OF_THE_TARGET.search(line)]
    return own[-1] if own else None


def _errors(output: str) -> list[str]:
    return [match["text"].strip() for match in _ERROR_LINE.finditer(output)]


STALL_PREFIX, STALL_SUFFIX = "stall_", "_share"
_PERCENT = "_pct"
_MAX_NAME, _MAX_MESSAGE = 500, 4_000
_ADVICE_TYPES = frozenset({"OPT", "WRN"})


def counters_of(profile: Mapping[str, Any], case_id: str, implementation: str) -> tuple[Counters, ...]:
    """One entry for each kernel of the call, in the order of their launches.

    Args:
        profile: What a report or CSV of Nsight Compute says, from `roofwatch.collector.profiling`.
        case_id: The case that was called.
        implementation: The implementation that was called.
    """
    return tuple(
        Counters(
            case_id=case_id,
            implementation=implementation,
            function=str(kernel["name"])[:_MAX_NAME],
            launch_index=index,
            values=_values(kernel),
            findings=_findings(kernel.get("findings", ())),
        )
        for index, kernel in enumerate(profile["kernels"])
    )


def stalls_of(values: Mapping[str, float]) -> dict[str, float]:
    """Shares of a warp's time that it waits, by reason, the largest first."""
    found = {
        name.removeprefix(STALL_PREFIX).removesuffix(STALL_SUFFIX): share
        for name, share in values.items()
        if name.startswith(STALL_PREFIX) and name.endswith(STALL_SUFFIX)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _values(kernel: Mapping[str, Any]) -> dict[str, float]:
    values = {_name(fact): _value(fact, kernel[fact]) for fact in FACTS if fact in kernel}
    for reason, share in kernel.get("stalls", {}).items():
        values[f"{STALL_PREFIX}{reason}{STALL_SUFFIX}"] = share
    return values


def _name(fact: str) -> str:
    return fact.removesuffix(_PERCENT) + "_share" if fact.endswith(_PERCENT) else fact


def _value(fact: str, value: float) -> float:
    return value / 100 if fact.endswith(_PERCENT) else float(value)


def _findings(rules: Sequence[Mapping[str, Any]]) -> tuple[ProfilerFinding, ...]:
    """Those that advise something: by estimate those of the whole kernel, then those of a part, then the others."""
    findings = [
        ProfilerFinding(
            rule=rule["rule"][:_MAX_NAME],
            message=rule["message"][:_MAX_MESSAGE],
            estimated_speedup=_share(rule["estimated_speedup_pct"]),
            is_estimate_of_a_part=rule["speedup_scope"] == "local",
        )
        for rule in rules
        if rule["type"] in _ADVICE_TYPES
    ]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: ProfilerFinding) -> tuple[bool, bool, float]:
    return finding.estimated_speedup is None, finding.is_estimate_of_a_part, -(finding.estimated_speedup or 0.0)


def _share(percent: float | None) -> float | None:
    return None if percent is None else min(max(percent / 100, 0.0), 1.0)


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
