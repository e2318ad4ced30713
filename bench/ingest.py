"""How quickly full records are stored, beside the quickest and the usual ways to bring the same rows into the tables,
and where the time goes.

    python bench/ingest.py [--cases 20,200,2000] [--rounds N] [--json]

Each round stores a record (`full_record.py`) of a run that is new, of cases that are known, as nearly all runs are.
Then the run is removed and put back, its rows being finished already, by binary COPY, by SQLAlchemy's insert of lists
and by its `add_all` of objects; and once more from the record, as by an application that knows only mapped classes
(`orm_ingest.py`). What counts is all that the caller waits for. Foreign keys, indexes and constraints are the store's.

An ingest begins with a record that was validated. The time to parse and validate its JSON, which whoever sends it over
HTTP waits for too, is told beside, and so is the processor time of both sides, which others on the machine move less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import orjson
from sqlalchemy import Engine

from bench.finished_rows import add_objects, as_copied, copy, insert_rows, read_rows, remove_run
from bench.full_record import make_record
from bench.least_ingest import least_processor_s
from bench.made_up_store import settle
from bench.orm_ingest import store_by_objects
from bench.processor_time import ProcessorTime
from bench.stopwatch import Stopwatch
from roofwatch.collector.record.record import RunRecord
from roofwatch.cycles import look_for_cycles_seldom
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest import content, ingest, machine_code, measurements, said_measurements
from roofwatch.db.ingest.ingest import ingest_record

Made = TypeVar("Made")

_COPY_TARGET = 0.5
_ORM_TARGET = 10.0
_WAYS = {
    "ingest": "ingest of a record",
    "ingest_json": "the same from its JSON",
    "copy": "binary COPY of its rows",
    "insert": "SQLAlchemy: lists of its rows",
    "add_all": "SQLAlchemy: objects of its rows",
    "orm": "SQLAlchemy: the record, by objects",
}
_TARGETS = {"copy": f" (target {_COPY_TARGET})", "orm": f" (target {_ORM_TARGET:.0f})"}
_STEPS = {
    (ingest, "ensure_partitions"): "partitions, lock",
    (ingest, "lock_run"): "partitions, lock",
    (ingest, "facts_sha256"): "look up what runs share",
    (ingest, "identity_sha256"): "look up what runs share",
    (ingest, "find"): "look up what runs share",
    (ingest, "store_commit"): "look up what runs share",
    (ingest, "case_ids"): "look up what runs share",
    (ingest, "series_ids"): "look up what runs share",
    (ingest, "fact_ids"): "look up what runs share",
    (ingest, "note_values"): "look up what runs share",
    (machine_code, "fingerprint"): "fingerprints of machine code",
    (measurements, "summarise"): "medians and quartiles",
    (content, "write"): "say the record once more",
    (said_measurements, "make_head"): "what is packed with samples",
    (said_measurements.Gathering, "give"): "gather samples",
    (ingest, "run_values"): "the row of the run",
    (ingest, "load_run"): "the row of the run",
    (ingest, "complete_run"): "the row of the run",
    (ingest, "store_artefacts"): "the row of the run",
    (ingest, "store_record"): "rows, COPY of them",
    (ingest, "ingest_record"): "begin and commit",
}


@dataclass(frozen=True)
class Result:
    case_count: int
    row_count: int
    """Of one record, without what runs share."""
    record_bytes: int
    seconds: dict[str, float]
    """By the way, of one record: the median over the rounds."""
    processor_seconds: dict[str, float]
    """The same of processors, this process's and the server's: the mean over the rounds."""
    least_s: float
    """Processor time of what any ingest does before rows can be sent (`least_ingest.py`)."""
    step_ms: dict[str, float]
    """Where the time of an ingest goes: mean over the rounds."""

    def rows_per_s(self, way: str) -> float:
        return self.row_count / self.seconds[way]

    def ratio(self, way: str) -> float:
        """Of the ingest to another way, in rows per second."""
        return self.seconds[way] / self.seconds["ingest"]

    @property
    def copy_over_orm(self) -> float:
        """Of COPY of the finished rows to objects of the record: what no ingest can exceed that copies as much."""
        return self.seconds["orm"] / self.seconds["copy"]

    def processor_ratio(self, way: str) -> float:
        """The same in rows per second of processor time."""
        return self.processor_seconds[way] / self.processor_seconds["ingest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", default="20,200,2000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    look_for_cycles_seldom()
    results = []
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        for case_count in map(int, arguments.cases.split(",")):
            results.append(measure(engine, case_count, arguments.rounds))
            if not arguments.json:
                _print(results[-1])
    if arguments.json:
        told = [
            asdict(one) | {"ratios": {way: one.ratio(way) for way in _WAYS}, "copy_over_orm": one.copy_over_orm}
            for one in results
        ]
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())
    else:
        print(f"\nload at the end: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")


def measure(engine: Engine, case_count: int, round_count: int) -> Result:
    """All ways in turn, in each round, after one that warms up."""
    times: dict[str, list[float]] = defaultdict(list)
    processor_s: dict[str, float] = defaultdict(float)
    watch, processor = Stopwatch(), ProcessorTime(engine)
    row_count, size = 0, 0
    for number in range(round_count + 1):
        document = make_record(number, case_count).to_json()
        size = len(document)
        began_s = time.process_time()
        parsing_s, record = _timed(lambda document=document: RunRecord.from_json(document, name="made up"))
        parsing_processor_s = time.process_time() - began_s
        spent, processed = {}, {}
        processor.look()
        spent["ingest"], _ = _timed(lambda record=record: ingest_record(engine, record))
        processed["ingest"] = processor.look()
        spent["ingest_json"] = parsing_s + spent["ingest"]
        processed["ingest_json"] = parsing_processor_s + processed["ingest"]
        rows = read_rows(engine, record.run_id)
        row_count = sum(map(len, rows.values()))
        copied = as_copied(rows)
        ways: dict[str, Callable[[], None]] = {
            "copy": lambda copied=copied: copy(engine, copied),
            "insert": lambda rows=rows: insert_rows(engine, rows),
            "add_all": lambda rows=rows: add_objects(engine, rows),
            "orm": lambda record=record, rows=rows: store_by_objects(engine, record, rows),
        }
        for way, store in ways.items():
            remove_run(engine, record.run_id)
            processor.look()
            spent[way], _ = _timed(store)
            processed[way] = processor.look()
        if not number:
            settle(engine)
            continue
        for way in _WAYS:
            times[way].append(spent[way])
            processor_s[way] += processed[way] / round_count
        remove_run(engine, record.run_id)
        with watch.watch(_STEPS):
            ingest.ingest_record(engine, record)
    step_ms = {name: seconds / round_count * 1e3 for name, seconds in watch.spent_s.items()}
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    return Result(case_count, row_count, size, medians, dict(processor_s), least_processor_s(record), step_ms)


def _print(result: Result) -> None:
    size_mb = result.record_bytes / 1e6
    print(f"\n{result.case_count} cases: {result.row_count} rows of one record, {size_mb:.1f} MB of JSON")
    print(f"  {'way':<36} {'ms':>8} {'rows per second':>16}   ingest over it   processor ms   ingest over it")
    for way, name in _WAYS.items():
        of_clock = f"{result.seconds[way] * 1e3:>8.1f} {result.rows_per_s(way):>16,.0f} {result.ratio(way):>16.2f}"
        of_processor = f"{result.processor_seconds[way] * 1e3:>14.1f} {result.processor_ratio(way):>16.2f}"
        print(f"  {name:<36} {of_clock} {of_processor}{_TARGETS.get(way, '')}")
    print(f"  {'COPY over the record by objects':<36} {result.copy_over_orm:>43.1f} at most")
    print(f"  {'what comes before rows, at least':<36} {result.least_s * 1e3:>59.1f}")
    print("  of one ingest, ms:")
    for step, spent_ms in sorted(result.step_ms.items(), key=lambda item: -item[1]):
        print(f"    {step:<34} {spent_ms:>8.1f}")


def _timed(action: Callable[[], Made]) -> tuple[float, Made]:
    started = time.perf_counter()
    made = action()
    return time.perf_counter() - started, made


if __name__ == "__main__":
    main()
