"""Builders of small records and their parts, with defaults for all fields that a test does not
name.

Commits are numbered: `make_commit(3)` is always the same, the child of `make_commit(2)`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.check_report import CheckReport, TensorReport
from roofwatch.model.history import (
    Cause,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
)
from roofwatch.model.machine import Ceiling, Environment, Outcome
from roofwatch.model.measurement import Block, CacheState, CaseRecord, Measurement, Timer
from roofwatch.model.metrics import Better
from roofwatch.model.proofs import OverflowProof, Proof, UnprovenAccess
from roofwatch.model.record import Artefact, Commit, PairMember, RunRecord, Side
from roofwatch.model.results import (
    Accuracy,
    CaseProfile,
    ImportedValue,
    ProfiledActivity,
    StaticFacts,
    TensorError,
)
from roofwatch.model.source_line import SourceLine
from roofwatch.model.verdict import Verdict
from roofwatch.model.worker_protocol import ImplementationInfo, KernelInfo

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CASE_ID = "rms_norm/n_rows=64,n_cols=128/float32/fwd"
PROJECT = "example/project"


def sha_of(number: int, *, branch: str = "main") -> str:
    """The sha of the numbered commit."""
    return hashlib.sha1(f"{branch} {number}".encode(), usedforsecurity=False).hexdigest()


def make_commit(number: int = 0, **fields: Any) -> Commit:
    """The numbered commit of the main branch."""
    defaults: dict[str, Any] = {
        "sha": sha_of(number),
        "parents": (sha_of(number - 1),) if number else (),
        "first_parent_count": number + 1,
        "committed_at": NOON + timedelta(hours=number),
        "author": "Test Author",
        "subject": f"Change number {number}",
        "branch": "main",
    }
    return Commit(**defaults | fields)


def make_environment(**fields: Any) -> Environment:
    defaults: dict[str, Any] = {
        "device_kind": "cpu",
        "device_name": "Example CPU",
        "device_memory_bytes": 16 * 2**30,
        "cpu_name": "Example CPU",
        "core_count": 4,
        "thread_count": 4,
        "os": "Linux 6.1",
        "python_version": "3.11.7",
        "torch_version": "2.13.0",
        "triton_version": "3.7.1",
        "compile_knobs": {"TRITON_DEFAULT_FP_FUSION": "0"},
    }
    return Environment(**defaults | fields)


def make_ceiling(**fields: Any) -> Ceiling:
    """A memory ceiling of 10 GB/s, unless fields say otherwise."""
    defaults: dict[str, Any] = {
        "resource": "memory",
        "level": "dram",
        "per_s": 1e10,
        "method": "best of 5",
    }
    return Ceiling(**defaults | fields)


def make_case(case_id: str = CASE_ID, **fields: Any) -> CaseRecord:
    """A case with this id: `kernel/dim=length,.../dtype/direction`."""
    kernel, shape, dtype, direction = case_id.split("/")
    lengths = (dimension.split("=") for dimension in shape.split(","))
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "kernel": kernel,
        "family": "normalisation",
        "shape": {name: int(length) if length.isdigit() else length for name, length in lengths},
        "dtype": dtype,
        "direction": direction,
        "flop_count": 32_768.0,
        "memory_bytes": 65_536.0,
    }
    return CaseRecord(**defaults | fields)


def make_blocks(medians_ns: Iterable[float], *, started_at: datetime = NOON) -> tuple[Block, ...]:
    """One block of three samples per median: 1 % below it, at it, 1 % above it."""
    return tuple(
        Block(
            started_at=started_at + timedelta(seconds=step),
            samples_ns=(median_ns * 0.99, median_ns, median_ns * 1.01),
        )
        for step, median_ns in enumerate(medians_ns)
    )


def make_measurement(
    case_id: str = CASE_ID,
    *,
    median_ns: float = 10_000.0,
    outcome: Outcome = Outcome.OK,
    **fields: Any,
) -> Measurement:
    """A measurement in two blocks around `median_ns`;
    without samples unless the outcome is `ok`.
    """
    is_ok = outcome is Outcome.OK
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "implementation": "torch",
        "outcome": outcome,
        "message": None if is_ok else f"it ended as {outcome}",
        "timer": Timer.PERF_COUNTER,
        "cache": CacheState.HOT,
        "blocks": make_blocks([median_ns, median_ns]) if is_ok else (),
        "bound": "memory" if is_ok else None,
        "utilisation": 0.5 if is_ok else None,
    }
    return Measurement(**defaults | fields)


def make_tensor_error(**fields: Any) -> TensorError:
    defaults: dict[str, Any] = {
        "tensor": "out",
        "max_abs_error": 1e-6,
        "rmse_ratio": 1e-7,
        "passed": True,
    }
    return TensorError(**defaults | fields)


def make_accuracy(
    case_id: str = CASE_ID,
    *,
    rmse_ratio: float = 1e-7,
    outcome: Outcome = Outcome.OK,
    **fields: Any,
) -> Accuracy:
    """A check of one output; `incorrect` has a tensor that did not pass, other failures compared
    nothing.
    """
    compared = (make_tensor_error(rmse_ratio=rmse_ratio, passed=outcome is Outcome.OK),)
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "implementation": "torch",
        "executor": "device",
        "outcome": outcome,
        "message": None if outcome is Outcome.OK else f"it ended as {outcome}",
        "tensors": compared if outcome in {Outcome.OK, Outcome.INCORRECT} else (),
    }
    return Accuracy(**defaults | fields)


def make_imported(
    case_id: str = CASE_ID, *, outcome: Outcome = Outcome.OK, **fields: Any
) -> ImportedValue:
    """A time of another tool; a failure has no value."""
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "implementation": "asv",
        "metric": "time",
        "statistic": "median",
        "unit": "s",
        "better": Better.LOWER,
        "outcome": outcome,
        "value": 1.5 if outcome is Outcome.OK else None,
    }
    return ImportedValue(**defaults | fields)


def make_check_report(**fields: Any) -> CheckReport:
    usual = {
        "case_id": CASE_ID,
        "implementation": "triton",
        "executor": "device",
        "outcome": Outcome.OK,
    }
    return CheckReport.model_validate(usual | fields)


def make_unproven_access(**fields: Any) -> UnprovenAccess:
    """A load whose offset overflows."""
    usual = {
        "function": "_kernel",
        "pointer": "x_ptr",
        "kind": "load",
        "proof": Proof.UNSAFE,
        "reason": "a 32-bit integer reaches 3,758,082,048",
    }
    return UnprovenAccess.model_validate(usual | fields)


def make_overflow_proof(**fields: Any) -> OverflowProof:
    usual = {"case_id": CASE_ID, "implementation": "triton", "proof": Proof.FITS}
    return OverflowProof.model_validate(usual | fields)


def make_tensor_report(**fields: Any) -> TensorReport:
    """A gradient with three wrong elements."""
    usual = {
        "tensor": "grad_x",
        "dtype": "float32",
        "shape": (4, 2),
        "passed": False,
        "errors": {"rmse_ratio": 0.5, "elementwise": 0.25},
        "limits": {"rmse_ratio": 1e-5, "elementwise": 1e-4},
        "baseline": {"rmse_ratio": 1e-7, "elementwise": 1e-6},
        "max_abs_error": 2.0,
        "nonfinite_count": 0,
        "wrong_count": 3,
        "where": "column 1",
        "values": "zero",
        "worst": ({"index": (2, 1), "expected": 1.5, "got": 0.0},),
    }
    return TensorReport.model_validate(usual | fields)


def make_implementation_info(name: str = "torch", **fields: Any) -> ImplementationInfo:
    usual: dict[str, Any] = {"language": "torch", "directions": ("fwd",), "unsupported_targets": {}}
    usual |= {"is_compiled": False}
    return ImplementationInfo.model_validate({"name": name} | usual | fields)


def make_kernel_info(name: str, **fields: Any) -> KernelInfo:
    usual = {"family": "other", "formula": "", "source": "", "cases": ()}
    return KernelInfo.model_validate({"name": name} | usual | fields)


def code_hash_of(code: str) -> str:
    """A code hash: equal for equal text."""
    return hashlib.sha256(code.encode()).hexdigest()


def make_static_facts(
    case_id: str = CASE_ID,
    *,
    code: str = "first version",
    outcome: Outcome = Outcome.OK,
    **fields: Any,
) -> StaticFacts:
    """Facts of a Triton function for sm_90; equal `code` gives an equal code hash."""
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "implementation": "triton",
        "function": "_rms_norm_kernel",
        "target": "sm_90",
        "outcome": outcome,
    }
    if outcome is Outcome.OK:
        defaults |= {
            "configuration": {"BLOCK": 128, "num_warps": 4},
            "registers": 32,
            "local_bytes": 0,
            "shared_bytes": 1_024,
            "code_bytes": 2_048,
            "code_hash": code_hash_of(code),
        }
    else:
        defaults["message"] = f"it ended as {outcome}"
    return StaticFacts(**defaults | fields)


def make_activity(name: str = "_rms_norm_kernel", **fields: Any) -> ProfiledActivity:
    """Three launches of a kernel, a microsecond each."""
    defaults: dict[str, Any] = {"kind": "kernel", "device": "0", "count": 3, "total_ns": 3_000}
    return ProfiledActivity(name=name, **defaults | fields)


def make_profile(case_id: str = CASE_ID, *rows: ProfiledActivity, **fields: Any) -> CaseProfile:
    """A profile of three calls; default rows: one kernel."""
    shown = rows or (make_activity(),)
    busy_ns = sum(row.total_ns for row in shown)
    defaults: dict[str, Any] = {
        "implementation": "triton",
        "call_count": 3,
        "span_ns": busy_ns,
        "busy_ns": busy_ns,
    }
    return CaseProfile(case_id=case_id, rows=shown, **defaults | fields)


def make_trace(events: Sequence[dict[str, Any]]) -> Trace:
    """A trace of torch.profiler with these events; decimal numbers may be text."""
    trace = Trace.read(json.dumps({"traceEvents": events}, default=str).encode(), "trace.json")
    assert trace is not None
    return trace


def make_record(
    number: int = 0,
    *,
    measurements: Sequence[Measurement] | None = None,
    accuracies: Sequence[Accuracy] = (),
    static_facts: Sequence[StaticFacts] = (),
    **fields: Any,
) -> RunRecord:
    """A run of the numbered commit, with one measurement unless other results are given.

    The cases are those of the results; the run id is a new one; the run starts an hour after its
    commit.
    """
    if measurements is None:
        measurements = () if accuracies or static_facts else (make_measurement(),)
    commit: Commit = fields.pop("commit", None) or make_commit(number)
    started_at = commit.committed_at + timedelta(hours=1)
    case_ids = dict.fromkeys(
        [
            *(measurement.case_id for measurement in measurements),
            *(accuracy.case_id for accuracy in accuracies),
            *(facts.case_id for facts in static_facts),
            *(value.case_id for value in fields.get("imported", ())),
        ]
    )
    defaults: dict[str, Any] = {
        "run_id": uuid.uuid4(),
        "project": PROJECT,
        "commit": commit,
        "started_at": started_at,
        "finished_at": started_at + timedelta(minutes=5),
        "harness_version": "1",
        "environment": make_environment(),
        "ceilings": (
            make_ceiling(),
            make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e11),
        ),
        "cases": tuple(make_case(case_id) for case_id in case_ids),
        "measurements": tuple(measurements),
        "accuracies": tuple(accuracies),
        "static_facts": tuple(static_facts),
        "suite": "bench_layers.py",
    }
    return RunRecord(**defaults | fields)


def make_complete_record(number: int = 0, **fields: Any) -> RunRecord:
    """A run with a measurement, a check and machine code."""
    measurements, accuracies = [make_measurement()], [make_accuracy()]
    return make_record(
        number,
        measurements=measurements,
        accuracies=accuracies,
        static_facts=[make_static_facts()],
        **fields,
    )


def make_artefact(content: bytes = b"a trace", **fields: Any) -> Artefact:
    """The entry of a record for a file with this content."""
    defaults: dict[str, Any] = {
        "name": "trace.json",
        "kind": "trace",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
    }
    return Artefact(**defaults | fields)


def make_pair_of_records(
    base: int = 0,
    head: int = 1,
    *,
    base_median_ns: float = 10_000.0,
    head_median_ns: float = 10_000.0,
    block_count: int = 3,
    **fields: Any,
) -> tuple[RunRecord, RunRecord]:
    """Two runs of one job, base and head, with one measurement each in blocks side by side."""
    pair_id = uuid.uuid4()

    def one_side(number: int, side: Side, median_ns: float) -> RunRecord:
        measured = make_measurement(blocks=make_blocks([median_ns] * block_count))
        return make_record(
            number,
            measurements=[measured],
            pairing=PairMember(pair_id=pair_id, side=side),
            **fields,
        )

    return one_side(base, Side.BASE, base_median_ns), one_side(head, Side.HEAD, head_median_ns)


def make_commit_ref(number: int = 0) -> CommitRef:
    """The numbered commit as queries return it."""
    commit = make_commit(number)
    return CommitRef(
        first_parent_count=commit.first_parent_count,
        sha=commit.sha,
        author=commit.author,
        subject=commit.subject,
        committed_at=commit.committed_at,
    )


def make_series_key(metric: str = "median_ns", **fields: Any) -> SeriesKey:
    """A series of the default measurement."""
    defaults: dict[str, Any] = {
        "project": PROJECT,
        "case_id": CASE_ID,
        "implementation": "torch",
        "metric": metric,
        "runner_class": make_environment().runner_class,
    }
    return SeriesKey(**defaults | fields)


def make_change_point(number: int = 1, **fields: Any) -> ChangePoint:
    """The default measurement became 20 % slower at the numbered commit."""
    defaults: dict[str, Any] = {
        "series": make_series_key(),
        "commit": make_commit_ref(number),
        "previous_commit": make_commit_ref(number - 1),
        "verdict": Verdict.REGRESSED,
        "before": 10_000.0,
        "after": 12_000.0,
        "evidence": "median rose from 10 µs to 12 µs",
    }
    return ChangePoint(**defaults | fields)


def make_regression(number: int = 1, **fields: Any) -> Regression:
    """One change point at the numbered commit, grouped."""
    defaults: dict[str, Any] = {
        "project": PROJECT,
        "commit": make_commit_ref(number),
        "kernel": "rms_norm",
        "verdict": Verdict.REGRESSED,
        "cause": Cause.CODE,
        "summary": "rms_norm became 20 % slower on 1 series",
        "change_points": (make_change_point(number),),
        "state": RegressionState.OPEN,
    }
    return Regression(**defaults | fields)


def make_source_line(**fields: Any) -> SourceLine:
    defaults: dict[str, Any] = {
        "kernel": "rms_norm",
        "implementation": "torch",
        "function": "rms_norm_torch",
        "file": "kernels/rms_norm.py",
        "line": 12,
    }
    return SourceLine(**defaults | fields)
