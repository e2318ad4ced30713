"""Read reports of Nsight Compute (`.ncu-rep`) with NVIDIA's `ncu_report` module."""

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.profiling.ncu_metrics import Metric, facts, normalised

MAGIC = b"NVR\x00"
_MESSAGE_TYPES = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
"""Names of the module's `MsgType` on the details page."""
_SCOPES = {1: "local", 2: "global"}
"""Names of `SpeedupType`: an estimate for a part of the kernel, or for all of it."""
_LINK = re.compile(r"@(?:url:([^:@]*):[^@]*|(?:section|sass):[^:@]*:([^@]*)|source:[^@]*:([^@:]*))@")
_PAYLOAD_SIZE_FIELD = 5
_VARINT, _BYTES = 0, 2


def require_module() -> None:
    """Check that NVIDIA's module is installed.

    Raises:
        ProfileError: it is not.
    """
    if importlib.util.find_spec("ncu_report") is None:
        raise ProfileError(
            "reading reports of Nsight Compute needs NVIDIA's module: pip install ncu-report; a report can also be "
            "exported with: ncu --import FILE --page raw --csv"
        )


def read_ncu_report(path: Path) -> dict[str, Any]:
    """Read the metrics and rule results of each kernel.

    Raises:
        ProfileError: the module is not installed or cannot read the file.
    """
    require_module()
    if not _is_whole(path.read_bytes()):  # the module accepts truncated files
        raise ProfileError(f"{path}: not a whole report of Nsight Compute; copy it or record it again")
    import ncu_report

    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  the module raises errors of its native code
        raise ProfileError(f"{path}: not a whole report of Nsight Compute ({error}); record it again") from None
    ranges = [context.range_by_idx(at) for at in range(context.num_ranges())]
    actions = [
        (at, each.action_by_idx(number)) for at, each in enumerate(ranges) for number in range(each.num_actions())
    ]
    return {
        "format": "ncu-rep",
        "read_with": "ncu_report wheel",
        "ranges": len(ranges),
        "kernels": [_kernel(number, range_index, action) for number, (range_index, action) in enumerate(actions)],
    }


def _kernel(number: int, range_index: int, action: Any) -> dict[str, Any]:
    metrics = {name: [_metric(action.metric_by_name(name))] for name in action.metric_names()}

    def value(name: str) -> Any:
        return metrics[name][0].value if name in metrics else None

    major = value("device__attribute_compute_capability_major")
    minor = value("device__attribute_compute_capability_minor")
    device_name = action.metric_by_name("device__attribute_display_name")
    return {
        "id": str(number),
        "range": range_index,
        "name": action.name(),
        "metric_names": len(metrics),
        "grid": [int(value(f"launch__grid_dim_{axis}") or 1) for axis in "xyz"],
        "block": [int(value(f"launch__block_dim_{axis}") or 1) for axis in "xyz"],
        "grid_size_blocks": value("launch__grid_size"),
        "block_size_threads": value("launch__block_size"),
        "device": None if device_name is None else device_name.as_string(),
        "compute_capability": None if major is None else f"{major:.0f}.{minor:.0f}",
        **facts(metrics),
        "findings": [_finding(rule) for rule in action.rule_results_as_dicts()],
    }


def _finding(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule result with the fields of the details page."""
    message, estimate = rule.get("rule_message", {}), rule.get("speedup_estimation", {})
    scope = _SCOPES.get(int(estimate.get("type", 0)))
    return {
        "rule": rule["rule_identifier"],
        "type": _MESSAGE_TYPES.get(int(message.get("type", 0)), ""),
        "title": message.get("title", ""),
        "message": _LINK.sub(lambda link: next(filter(None, link.groups()), ""), message.get("message", "")),
        "estimated_speedup_pct": None if scope is None else estimate["speedup"],
        "speedup_scope": scope,
    }


def _metric(metric: Any) -> Metric:
    value = metric.value()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return normalised(value if is_number else None, metric.unit() or "")


def _is_whole(content: bytes) -> bool:
    """Return whether the last block ends at the end of the file.

    Source: Nsight Compute documentation, report file format. After the magic comes a header, then blocks. A header and
    the head of a block are protobuf messages after their length; the head gives the size of the payload after it.
    """
    at = len(MAGIC) + 4 + _int32(content, len(MAGIC))
    try:
        while at < len(content):
            head_end = at + 4 + _int32(content, at)
            at = head_end + _payload_bytes(content[at + 4 : head_end])
    except (IndexError, ValueError):
        return False
    return at == len(content)


def _int32(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _payload_bytes(head: bytes) -> int:
    """Read the payload size from a protobuf message of integers and nested messages; 0 if it has none."""
    at = 0
    while at < len(head):
        tag, at = _varint(head, at)
        value, at = _varint(head, at)
        if tag == _PAYLOAD_SIZE_FIELD << 3 | _VARINT:
            return value
        if tag & 7 not in {_VARINT, _BYTES}:
            raise ValueError(f"unexpected protobuf wire type {tag & 7}")
        at += value if tag & 7 == _BYTES else 0
    return 0


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer; return it and the position after it."""
    value = shift = 0
    while message[at] & 0x80:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1
