"""Write a report of Nsight Compute with every counter that roofwatch names, at made-up values.

    python -m tests.collector.profiling.made_report tests/data/ncu/every_counter.ncu-rep

No published report has them all. The file is the first kernel of a real one with other metrics.
NVIDIA's module contains the descriptors of the messages in such a file.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from roofwatch.collector.profiling.executed_work import WORK_METRICS

REAL_REPORT = Path(__file__).parents[2] / "data" / "profiles" / "sgemm_profile.ncu-rep"
DEVICE_NAME = "NVIDIA H200"
_MAGIC_BYTES = 4
_REPORT = "ProfilerReport/ProfilerReport.proto"
_PACKAGE = "NV.Profiler.Messages"
_ACTIVE = "avg.pct_of_peak_sustained_active"
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op"
RAW_VALUES: dict[str, float] = {
    **dict.fromkeys(WORK_METRICS, 0.0),
    "gpu__time_duration.sum": 41_000.0,
    "sm__inst_issued.avg.pct_of_peak_sustained_active": 61.0,
    "sm__inst_executed.avg.per_cycle_active": 2.44,
    f"sm__pipe_fma_cycles_active.{_ACTIVE}": 12.0,
    f"sm__pipe_alu_cycles_active.{_ACTIVE}": 13.0,
    f"sm__pipe_fp64_cycles_active.{_ACTIVE}": 1.0,
    f"sm__inst_executed_pipe_xu.{_ACTIVE}": 14.0,
    f"sm__inst_executed_pipe_lsu.{_ACTIVE}": 15.0,
    f"sm__pipe_tensor_cycles_active.{_ACTIVE}": 70.0,
    f"sm__inst_executed_pipe_tensor_op_hmma.{_ACTIVE}": 3.0,
    f"sm__inst_executed_pipe_tensor_op_gmma.{_ACTIVE}": 5.0,
    f"sm__inst_executed_pipe_tensor_op_imma.{_ACTIVE}": 7.0,
    f"sm__inst_executed_pipe_tensor_op_dmma.{_ACTIVE}": 9.0,
    f"{_SECTORS}_ld.ratio": 16.0,
    f"{_SECTORS}_st.ratio": 4.0,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 4_096.0,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 96.0,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 32.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 5e8,
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 8e9,
}
"""By Nsight Compute's name."""


def write_report(path: Path) -> None:
    """Write the real report's first kernel with `RAW_VALUES`."""
    message = _messages()
    header, block, result = _first_kernel(REAL_REPORT.read_bytes(), message)
    names = list(block.StringTable.Strings)
    counted = [metric for metric in result.MetricResults if _is_kept(names[metric.NameId])]
    del result.MetricResults[:]
    for metric in counted:
        if names[metric.NameId] == "device__attribute_display_name":
            metric.MetricValue.StringValue = DEVICE_NAME
        if names[metric.NameId] == "device__attribute_compute_capability_major":
            metric.MetricValue.DoubleValue = 9.0
        if names[metric.NameId] == "device__attribute_compute_capability_minor":
            metric.MetricValue.DoubleValue = 0.0
    result.MetricResults.extend(counted)
    for name, value in RAW_VALUES.items():
        metric = result.MetricResults.add(NameId=len(names))
        metric.MetricValue.DoubleValue = value
        names.append(name)
    # the rules spoke about the real values
    del result.RuleResults[:]
    block.ClearField("Process")
    del block.StringTable.Strings[:]
    block.StringTable.Strings.extend(names)
    content = _sized(result.SerializeToString())
    block.PayloadSize = len(content)
    path.write_bytes(header + _sized(block.SerializeToString()) + content)


def _is_kept(name: str) -> bool:
    """Whether a metric describes the launch or the device rather than what was counted."""
    return name.startswith(("launch__", "device__"))


def _first_kernel(content: bytes, message: Any) -> tuple[bytes, Any, Any]:
    """The magic and header of a report, and its first block of one result."""
    offset = _MAGIC_BYTES + 4 + _size_at(content, _MAGIC_BYTES)
    header = content[:offset]
    while True:
        head_end = offset + 4 + _size_at(content, offset)
        block = message("BlockHeader").FromString(content[offset + 4 : head_end])
        if block.NumResults:
            start = head_end + 4
            end = start + _size_at(content, head_end)
            return header, block, message("ProfileResult").FromString(content[start:end])
        offset = head_end + block.PayloadSize


def _size_at(content: bytes, offset: int) -> int:
    return int.from_bytes(content[offset : offset + 4], "little")


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "little") + content


def _messages() -> Any:
    """A function that returns the class of a message by name."""
    module = importlib.util.find_spec("ncu_report._ncu_report")
    assert module is not None
    assert module.origin is not None
    library = Path(module.origin).read_bytes()
    pool = descriptor_pool.DescriptorPool()
    _add(_REPORT, library, pool, set())
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    )


def _add(name: str, library: bytes, pool: Any, added: set[str]) -> None:
    """Add a file of descriptors, after those that it imports."""
    file = _descriptor(name, library)
    for imported in file.dependency:
        if imported not in added:
            _add(imported, library, pool, added)
    pool.Add(file)
    added.add(name)


def _descriptor(name: str, library: bytes) -> Any:
    """Find a serialised descriptor: it begins with its name, and the longest part that can be
    parsed is it.
    """
    start = library.index(b"\n" + bytes([len(name)]) + name.encode())
    found = descriptor_pb2.FileDescriptorProto()
    end = start
    while True:
        end = _end_of_field(library, end)
        try:
            longer = descriptor_pb2.FileDescriptorProto.FromString(library[start:end])
        except DecodeError:
            return found
        if longer.name != name or longer.DiscardUnknownFields():
            return found
        found = longer


def _end_of_field(content: bytes, offset: int) -> int:
    _, offset = _number(content, offset)
    length, offset = _number(content, offset)
    return offset + length


def _number(content: bytes, offset: int) -> tuple[int, int]:
    """Read a variable-length integer; return it and the position after it."""
    value = 0
    shift = 0
    while content[offset] & 0x80:
        value |= (content[offset] & 0x7F) << shift
        offset += 1
        shift += 7
    return value | content[offset] << shift, offset + 1


if __name__ == "__main__":
    write_report(Path(sys.argv[1]))
