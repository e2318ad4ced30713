"""JSON of PyTorch's benchmark database, version 3, in both directions.

Source: pytorch/test-infra, clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from roofwatch.importers import (
    UNKNOWN,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    number_of,
    with_words,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CaseRecord, measured_values
from roofwatch.model.metrics import Better
from roofwatch.model.record import RunRecord

_UNIT = "roofwatch_unit"
_BETTER = "roofwatch_better"
_STATISTIC = "roofwatch_statistic"
"""Where an export puts what the database's format has no field for."""


def _parse(document: Any, _path: Path) -> ImportedRun:
    entries = document if isinstance(document, list) else [document]
    rows: list[ImportedRow] = []
    for entry in entries:
        rows.extend(_rows_of_entry(entry))
    commits = {row.commit for row in rows}
    commit = ImportedCommit()
    if len(commits) == 1 and rows[0].commit is not None:
        commit = rows[0].commit
    first: Json = entries[0]
    return ImportedRun(
        tool="PyTorch benchmark database",
        tool_version=first.get("schema_version", "v3"),
        rows=tuple(rows),
        commit=commit,
        project=first.get("repo"),
        device=_device(first),
    )


def _device(entry: Json) -> str | None:
    info: Json = entry["benchmark"].get("extra_info") or {}
    runner: Json = next(iter(entry.get("runners") or []), {})
    names = (runner.get("gpu_info"), info.get("device"), info.get("arch"), runner.get("name"))
    return next((name for name in names if name), None)


def _rows_of_entry(entry: Json) -> Iterator[ImportedRow]:
    benchmark = entry["benchmark"]
    model = entry.get("model") or {}
    metric = entry["metric"]
    parameters = _parameters(entry)
    unit = parameters.pop(_UNIT, "")
    better = Better(parameters.pop(_BETTER, UNKNOWN))
    statistic = parameters.pop(_STATISTIC, None)
    values = metric["benchmark_values"]
    shared: dict[str, Any] = {
        "case": str(model.get("name") or benchmark.get("name") or "benchmark"),
        "metric": metric["name"],
        "unit": unit,
        "parameters": parameters,
        "implementation": model.get("backend") or "",
        "commit": ImportedCommit(
            sha=entry.get("head_sha") or None,
            measured_at=number_of(entry.get("timestamp")),
            branch=entry.get("head_branch") or None,
        ),
    }
    # an empty list is how the database writes a failure
    if not values:
        yield ImportedRow(
            value=None,
            better=better,
            outcome=Outcome.CRASHED,
            message="the metric has no value",
            **shared,
        )
    # several values are samples, unless the entry says what they are
    if statistic is None:
        statistic = "value" if len(values) == 1 else "sample"
    for value in values:
        number = number_of(value)
        is_ok = number is not None
        yield ImportedRow(
            value=number,
            better=better,
            statistic=statistic,
            sample_count=1,
            outcome=Outcome.OK if is_ok else Outcome.CRASHED,
            message=None if is_ok else f"its value is {value}",
            **shared,
        )
    # a target is no measurement, but worth drawing
    target = number_of(metric.get("target_value"))
    if target is not None:
        yield ImportedRow(
            value=target,
            better=UNKNOWN,
            statistic="target",
            **shared,
        )


def _parameters(entry: Json) -> dict[str, Any]:
    benchmark = entry["benchmark"]
    model = entry.get("model") or {}
    metric = entry["metric"]
    parameters: dict[str, Any] = {
        "benchmark": benchmark.get("name"),
        "mode": benchmark.get("mode"),
        "dtype": benchmark.get("dtype"),
        "type": model.get("type"),
    }
    for part in (benchmark, model, metric):
        parameters |= part.get("extra_info") or {}
    for name, value in (entry.get("inputs") or {}).items():
        parameters[f"input {name}"] = json.dumps(value, sort_keys=True)
    return {key: value for key, value in parameters.items() if value not in (None, "", {}, [])}


# --- export


def to_pytorch(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Write records as entries of the database, one for each metric; failed results are left
    out.
    """
    entries: list[dict[str, Any]] = []
    for record in records:
        cases = {case.case_id: case for case in record.cases}
        for measurement in record.measurements:
            case = cases[measurement.case_id]
            for name, value in measured_values(measurement, case).items():
                entries.append(
                    _entry(
                        record=record,
                        case=case,
                        implementation=measurement.implementation,
                        metric=name,
                        value=value,
                        extra_info={},
                    )
                )
        for imported in record.imported:
            if imported.value is None:
                continue
            extra = {
                _UNIT: imported.unit,
                _BETTER: str(imported.better),
                _STATISTIC: imported.statistic,
            }
            case = cases[imported.case_id]
            entries.append(
                _entry(
                    record=record,
                    case=case,
                    implementation=imported.implementation,
                    metric=imported.metric,
                    value=imported.value,
                    extra_info=extra,
                )
            )
    return entries


def _entry(
    record: RunRecord,
    case: CaseRecord,
    implementation: str,
    metric: str,
    value: float,
    extra_info: dict[str, str],
) -> dict[str, Any]:
    environment = record.environment
    return {
        "timestamp": int(record.started_at.timestamp()),
        "schema_version": "v3",
        "name": record.project,
        "repo": record.project,
        "head_branch": record.commit.branch or "",
        "head_sha": record.commit.sha,
        "runners": [
            {"name": environment.runner_class, "gpu_info": environment.device_name, "type": ""}
        ],
        "benchmark": {
            "name": record.project,
            "mode": case.direction,
            "dtype": case.dtype,
            "extra_info": {},
        },
        "model": {
            "name": case.kernel,
            "type": case.family,
            "backend": implementation,
            "extra_info": {key: str(length) for key, length in case.shape.items()},
        },
        "metric": {"name": metric, "benchmark_values": [value], "extra_info": extra_info},
    }


PYTORCH = JsonImporter(_parse, with_words(b'"benchmark_values"', b'"metric"'))
