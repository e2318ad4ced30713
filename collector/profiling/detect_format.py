"""Read a profiler's file, whichever it is: told apart by what is in it, never by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofwatch.collector.profiling import ncu_files as ncu_report_file
from roofwatch.collector.profiling import nsys
from roofwatch.collector.profiling.chrome_trace import scan_trace
from roofwatch.collector.profiling.kineto import TraceSummary
from roofwatch.collector.profiling.ncu_files import read_ncu_csv, read_ncu_report
from roofwatch.collector.profiling.nsys import read_nsys
from roofwatch.collector.profiling.nsys_csv import read_nsys_csv
from roofwatch.collector.profiling.profile_file import TOP_COUNT, ProfileError, head_of, read_bytes

KNOWN = (
    "a trace of torch.profiler (Kineto, Chrome's format, plain or gzip), a report (.ncu-rep) or CSV of Nsight Compute, "
    "or an sqlite export or statistics as CSV of Nsight Systems"
)


def read_profile(path: Path, *, top: int | None = TOP_COUNT) -> dict[str, Any]:
    """What is in a profiler's file, as plain values; `format` says which it is.

    Args:
        path: The file.
        top: Names of kernels that are told of a trace, the longest first; None for all.

    Raises:
        ProfileError: it cannot be read, is none of those known, or is cut short.
    """
    if path.is_dir():
        raise ProfileError(f"{path}: is a folder; name one file in it")
    head = head_of(path)
    if head.startswith(ncu_report_file.MAGIC):
        return read_ncu_report(path)
    if head.startswith(nsys.MAGIC):
        found = read_nsys(path, top=top)
    else:
        content = read_bytes(path)
        trace = TraceSummary()
        header = scan_trace(content, str(path), trace.add)
        if header is not None:
            found = trace.to_dict(header, top=top)
        elif _is_record(content):
            raise ProfileError(
                f"{path}: is a record of roofwatch, and no profiler's file: roofwatch ingest stores it, roofwatch "
                "compare BASE HEAD judges two, roofwatch diagnose CASE --record FILE says what binds a case"
            )
        else:
            found = read_ncu_csv(content, str(path)) or read_nsys_csv(content, str(path), top=top)
    if found is None:
        raise ProfileError(f"{path}: nothing that is known here; what can be read is {KNOWN}")
    return found


def _is_record(content: bytes) -> bool:
    return content.lstrip().startswith(b"{") and b'"run_id"' in content and b'"schema_version"' in content
