"""How long the two questions that people ask most take in stores of growing size, and what a measurement takes on disk.

    PYTHONPATH=. python bench/store_scale.py [MILLIONS ...] [--folder FOLDER] [--questions N] [--json]

One embedded server in a folder gets a database of each size (`made_up_store.py`). Then all of them are asked in turn,
so that whatever else the machine does meets each alike: for a trend of 2,000 points, and for what two commits of 2,000
cases each are compared by; of series and commits chosen by chance, with the next one seldom where the last one was. Two
times are told: until the database's answers are here, and until the functions of `db/` have made values of them. A
hundred million measurements take 12 GB, which the memory of the machine should hold: the files are read once before.
What is in the folder already is only measured.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from bench.hurried_server import has_indexes, hurrying
from bench.made_up_store import DEEP, WIDE, fill, settle
from db.reading.comparing import read_runs_of_commits
from db.reading.series import read_series
from db.server import migrate
from db.server.session import make_engine, open_store, reading_session
from db.values import SeriesKey

_TARGET_MS = 50.0
_TARGET_GROWTH = 1.3
_TARGET_BYTES = 120


@dataclass(frozen=True)
class Result:
    measurement_count: int
    trend_p50_ms: float
    trend_p95_ms: float
    trend_database_p50_ms: float
    trend_database_p95_ms: float
    compare_p50_ms: float
    compare_p95_ms: float
    compare_database_p50_ms: float
    compare_database_p95_ms: float
    bytes_per_measurement: float
    """Table and indexes."""
    bytes_shared_per_measurement: float
    """Of what measurements refer to: runs, series, cases, commits."""


@dataclass(frozen=True)
class Times:
    """Of each question: all of it, and until the database's answers were here."""

    whole_ms: list[float]
    database_ms: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("millions", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--folder", type=Path, help="Where the databases stay for the next time.")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        open_store(folder=(folder := arguments.folder or Path(temporary))) as server,
        ExitStack() as opened,
    ):
        engines = {}
        for millions in arguments.millions:
            engines[millions] = _open_database(server, millions)
            opened.callback(engines[millions].dispose)
            grow(engines[millions], millions, is_loud=not arguments.json)
        warm(folder, is_loud=not arguments.json)
        results = measure(engines, arguments.questions)
    if arguments.json:
        print(orjson.dumps([asdict(result) for result in results], option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join([*map(_line, results), _conclusion(results)]))


def _open_database(server: Engine, millions: int) -> Engine:
    name = f"scale_{millions}m"
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": name}):
            connection.execute(text(f"CREATE DATABASE {name}"))
    engine = make_engine(server.url.set(database=name))
    migrate.upgrade(engine)
    return engine


def grow(engine: Engine, millions: int, *, is_loud: bool) -> None:
    """Fill a database up to so many pairs of projects, unless it is."""
    with engine.connect() as connection:
        there = set(connection.scalars(text("SELECT name FROM project")))
    wanted = [(shape, pair) for pair in range(millions) for shape in (DEEP, WIDE)]
    missing = [(shape, pair) for shape, pair in wanted if shape.project(pair) not in there]
    if not missing and has_indexes(engine):
        return
    started = time.monotonic()
    with hurrying(engine):
        for done, (shape, pair) in enumerate(missing, start=1):
            fill(engine, shape, pair)
            if is_loud and done % 20 == 0:
                print(f"  {done // 2} M after {time.monotonic() - started:.0f} s", flush=True)
    settle(engine)
    if is_loud:
        print(f"  {millions} M indexed and analysed after {time.monotonic() - started:.0f} s", flush=True)


def warm(folder: Path, *, is_loud: bool) -> None:
    """Have the operating system remember all files, as those of a server in use."""
    if is_loud:
        print("  all files are read once", flush=True)
    for path in (folder / "data" / "base").rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(2**22):
                    pass


def measure(engines: Mapping[int, Engine], question_count: int) -> list[Result]:
    """Ask both questions so often of each database, the databases in turn."""
    trend = _times(engines, _ask_trend, question_count)
    compare = _times(engines, _ask_comparison, question_count)
    return [_result(engine, trend[millions], compare[millions]) for millions, engine in engines.items()]


def _result(engine: Engine, trend: Times, compare: Times) -> Result:
    with engine.connect() as connection:
        count = connection.execute(text("SELECT sum(cardinality(series_ids)) FROM run")).scalar_one()
        own = connection.execute(text(_OWN_BYTES)).scalar_one()
        shared = connection.execute(text(_SHARED_BYTES)).scalar_one()
    return Result(
        measurement_count=int(count),
        trend_p50_ms=_percentile(trend.whole_ms, 50),
        trend_p95_ms=_percentile(trend.whole_ms, 95),
        trend_database_p50_ms=_percentile(trend.database_ms, 50),
        trend_database_p95_ms=_percentile(trend.database_ms, 95),
        compare_p50_ms=_percentile(compare.whole_ms, 50),
        compare_p95_ms=_percentile(compare.whole_ms, 95),
        compare_database_p50_ms=_percentile(compare.database_ms, 50),
        compare_database_p95_ms=_percentile(compare.database_ms, 95),
        bytes_per_measurement=float(own / count),
        bytes_shared_per_measurement=float(shared / count),
    )


_OWN_BYTES = """
    SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits
    WHERE inhparent = 'measurement'::regclass
"""
_SHARED_BYTES = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
    WHERE oid IN ('run'::regclass, 'series'::regclass, '"case"'::regclass, 'case_version'::regclass,
        'commit'::regclass)
"""


def _ask_trend(session: Session, rng: random.Random, millions: int) -> None:
    project, case = DEEP.project(rng.randrange(millions)), DEEP.case_id(rng.randrange(DEEP.series_count))
    key = SeriesKey(project, case, "triton", "median_ns", runner_class="made up")
    (series,) = read_series(session, project, keys=[key])
    assert len(series.points) == DEEP.run_count


def _ask_comparison(session: Session, rng: random.Random, millions: int) -> None:
    project = WIDE.project(rng.randrange(millions))
    places = rng.sample(range(1, WIDE.run_count + 1), 2)
    shas = [
        session.execute(
            text(
                "SELECT sha FROM commit JOIN project ON project.id = project_id "
                "WHERE project.name = :project AND first_parent_count = :place"
            ),
            {"project": project, "place": place},
        ).scalar_one()
        for place in places
    ]
    for detail in read_runs_of_commits(session, project, *shas):
        assert len(detail.cases) == WIDE.series_count


def _times(
    engines: Mapping[int, Engine], ask: Callable[[Session, random.Random, int], None], question_count: int
) -> dict[int, Times]:
    times = {millions: Times([], []) for millions in engines}
    clocks = {millions: _StatementClock(engine) for millions, engine in engines.items()}
    rng = random.Random(7)  # noqa: S311 -- chooses questions, no secrets
    for number in range(question_count + 1):
        for millions, engine in engines.items():
            clocks[millions].elapsed_s = 0.0
            started = time.perf_counter()
            with reading_session(engine) as session:
                ask(session, rng, millions)
            elapsed_s = time.perf_counter() - started
            if number:  # in the first, statements are compiled
                times[millions].whole_ms.append(elapsed_s * 1e3)
                times[millions].database_ms.append(clocks[millions].elapsed_s * 1e3)
    return times


class _StatementClock:
    """Adds up how long statements take: psycopg returns when the last row is here."""

    def __init__(self, engine: Engine) -> None:
        self.elapsed_s = 0.0
        self._started = 0.0
        event.listen(engine, "before_cursor_execute", self._start)
        event.listen(engine, "after_cursor_execute", self._stop)

    def _start(self, *_: object) -> None:
        self._started = time.perf_counter()

    def _stop(self, *_: object) -> None:
        self.elapsed_s += time.perf_counter() - self._started


def _percentile(times: list[float], percent: float) -> float:
    return float(np.percentile(times, percent))


def _line(result: Result) -> str:
    return (
        f"{result.measurement_count / 1e6:.0f} M measurements, in the database p50 and p95 (and with its values made): "
        f"trend {result.trend_database_p50_ms:.1f} and {result.trend_database_p95_ms:.1f} ms "
        f"({result.trend_p50_ms:.1f} and {result.trend_p95_ms:.1f}), comparison {result.compare_database_p50_ms:.1f} "
        f"and {result.compare_database_p95_ms:.1f} ms ({result.compare_p50_ms:.1f} and {result.compare_p95_ms:.1f}); "
        f"{result.bytes_per_measurement:.1f} bytes on disk per measurement, {result.bytes_shared_per_measurement:.1f} "
        "more of what they refer to"
    )


def _conclusion(results: list[Result]) -> str:
    first, last = results[0], results[-1]
    growth = f"{last.measurement_count / first.measurement_count:.0f} times the measurements"
    p50 = {
        "trend": (first.trend_database_p50_ms, last.trend_database_p50_ms),
        "comparison": (first.compare_database_p50_ms, last.compare_database_p50_ms),
    }
    p95 = {
        "trend": (first.trend_database_p95_ms, last.trend_database_p95_ms),
        "comparison": (first.compare_database_p95_ms, last.compare_database_p95_ms),
    }
    lines = [
        f"{name}: with {growth} p50 is {p50[name][1] / p50[name][0]:.2f} times as long, p95 "
        f"{p95[name][1] / p95[name][0]:.2f} times (target {_TARGET_GROWTH}), {p95[name][1]:.1f} ms (target "
        f"{_TARGET_MS:.0f} ms)"
        for name in p50
    ]
    return "\n".join([*lines, f"bytes per measurement: {last.bytes_per_measurement:.1f} (target {_TARGET_BYTES})"])


if __name__ == "__main__":
    main()
