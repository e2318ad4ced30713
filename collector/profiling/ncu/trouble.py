"""What Nsight Compute says where it cannot count, with what helps. Pure."""

from __future__ import annotations

import re

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
