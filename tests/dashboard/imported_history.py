"""A stored project that has values of another tool only: an excerpt of a public history."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.importers.reading import import_file
from roofwatch.importers.records import to_records
from roofwatch.importers.table_map import TableMap
from roofwatch.model.history import Regression
from tests.builders import PROJECT

IMPORTS = Path(__file__).parent.parent / "data" / "imports"
LIGER_MAP = TableMap.parse(
    [
        "case=kernel_name,kernel_operation_mode parameters=x_name,x_value",
        "value=y_value_50 low=y_value_20 high=y_value_80 implementation=kernel_provider",
        "metric=metric_name unit=metric_unit better=lower commit=commit measured=timestamp",
        "device=gpu_name",
    ]
)


def store_liger(engine: Engine, folder: Path) -> list[Regression]:
    """Import, store and judge rows of three kernels of Liger-Kernel, with rows of a library."""
    return _store(engine, IMPORTS / "liger_history.csv.gz", folder, table=LIGER_MAP)


def store_amdgpu(engine: Engine, folder: Path) -> list[Regression]:
    """Import, store and judge ten benchmarks of AMDGPU.jl, whose machine the file does not name."""
    return _store(engine, IMPORTS / "amdgpu_history.js.gz", folder)


def _store(
    engine: Engine, path: Path, folder: Path, *, table: TableMap | None = None
) -> list[Regression]:
    _, run = import_file(path, None if table is None else "table", table=table)
    for record in to_records(run, path, project=PROJECT, revision=None, folder=folder):
        ingest_record(engine, record)
    return analyse_project(engine, PROJECT)
