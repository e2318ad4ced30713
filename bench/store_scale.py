"""How long the two questions that people ask most take in stores of growing size, and what a measurement takes on disk.

    PYTHONPATH=. python bench/store_scale.py [MILLIONS ...] [--folder FOLDER] [--questions N] [--json]

One embedded server in a folder gets a database of each size (`made_up_store.py`). Then all of them are asked in turn,
so that whatever else the machine does meets each alike: for a trend of 2,000 points, and for what two commits of 2,000
cases each are compared by; of series and commits chosen by chance, with the next one seldom where the last one was. Two
times are told: until the database's answers are here, and until the functions of `db/` have made values of them. Beside
them stands what the server's processor spent, of which work of others on the machine takes little.

The server is measured as one that has been in use. A hundred million measurements take 12 GB, which the memory of the
machine should hold: the files are read once before. And the same questions are asked before until the server has used
all of its own memory. What is in the folder already is only measured.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import orjson
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from bench.hurried_server import has_indexes, hurrying
from bench.made_up_store import DEEP, WIDE, fill, settle
from bench.processor_time import spent_ns
from roofwatch.db.engine import migrate
from roofwatch.db.engine.session import make_engine, open_store, reading_session
from roofwatch.db.queries.comparing import read_runs_of_commits
from roofwatch.db.queries.series import read_series
from roofwatch.db.values import SeriesKey

_TARGET_MS = 50.0
_TARGET_GROWTH = 1.3
_TARGET_BYTES = 120


_FEWEST_ROUNDS = 12
"""Of questions before those that count: by then a connection has prepared each statement, after five times, and
Postgres has chosen, after five more, whether to plan it for its values.
"""
_MOST_ROUNDS = 100

Ask = Callable[[Session, random.Random, int], None]


@dataclass(frozen=True)
class Spread:
    p50: float
    p95: float


@dataclass(frozen=True)
class Took:
    """What a question took, in ms."""

    database_ms: Spread
    """Until the database's answers were here."""
    whole_ms: Spread
    """Until values were made of them."""
    server_ms: Spread
    """Of the server's processor."""


@dataclass(frozen=True)
class Result:
    measurement_count: int
    trend: Took
    comparison: Took
    bytes_per_measurement: float
    """Table and indexes."""
    bytes_shared_per_measurement: float
    """Of what measurements refer to: runs, series, cases, commits."""


@dataclass(frozen=True)
class Times:
    """Of each question, in ms."""

    database: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)

    def spreads(self) -> Took:
        return Took(
            *(Spread(*np.percentile(each, [50, 95]).tolist()) for each in (self.database, self.whole, self.server))
        )


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
        use(engines, is_loud=not arguments.json)
        results = measure(engines, arguments.questions)
    if arguments.json:
        print(orjson.dumps([asdict(result) for result in results], option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join([*map(_line, results), conclusion(results)]))


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


def use(engines: Mapping[int, Engine], *, is_loud: bool) -> None:
    """Ask until the server has read as much as its own memory holds. What one that has just started reads goes to pages
    that the system has yet to hand out: that takes longer than to read them, and a large store reads more.
    """
    rng = random.Random(8)  # noqa: S311 -- chooses questions, no secrets
    server = next(iter(engines.values()))
    until = _blocks(server, _READ) + _blocks(server, _OWN_MEMORY)
    for number in range(1, _MOST_ROUNDS + 1):
        for millions, engine in engines.items():
            for ask in (_ask_trend, _ask_comparison):
                with reading_session(engine) as session:
                    ask(session, rng, millions)
        if number >= _FEWEST_ROUNDS and _blocks(server, _READ) >= until:
            break
    if is_loud:
        print(f"  the server is in use after {number} rounds", flush=True)


_READ = "SELECT sum(blks_read) FROM pg_stat_database"
_OWN_MEMORY = "SELECT setting FROM pg_settings WHERE name = 'shared_buffers'"


def _blocks(server: Engine, query: str) -> int:
    with server.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


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
        trend=trend.spreads(),
        comparison=compare.spreads(),
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


def _times(engines: Mapping[int, Engine], ask: Ask, question_count: int) -> dict[int, Times]:
    times = {millions: Times() for millions in engines}
    clocks = {millions: _StatementClock(engine) for millions, engine in engines.items()}
    rng = random.Random(7)  # noqa: S311 -- chooses questions, no secrets
    for _ in range(question_count):
        for millions in rng.sample(list(engines), len(engines)):  # none always comes after the same one
            pids = _processes(engines[millions])
            clocks[millions].elapsed_s, before_ns = 0.0, sum(map(spent_ns, pids))
            started = time.perf_counter()
            with reading_session(engines[millions]) as session:
                ask(session, rng, millions)
            times[millions].whole.append((time.perf_counter() - started) * 1e3)
            times[millions].database.append(clocks[millions].elapsed_s * 1e3)
            times[millions].server.append((sum(map(spent_ns, pids)) - before_ns) / 1e6)
    return times


def _processes(engine: Engine) -> Sequence[int]:
    """Those of the server that answer: of an engine's one connection, and since Postgres 18 who reads for others."""
    found = "SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid() OR backend_type = 'io worker'"
    with reading_session(engine) as session:
        return session.scalars(text(found)).all()


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


def _line(result: Result) -> str:
    return (
        f"{result.measurement_count / 1e6:.0f} M measurements, p50 and p95 in ms: trend {_took(result.trend)}; "
        f"comparison {_took(result.comparison)}; {result.bytes_per_measurement:.1f} bytes on disk per measurement, "
        f"{result.bytes_shared_per_measurement:.1f} more of what they refer to"
    )


def _took(took: Took) -> str:
    return (
        f"{took.database_ms.p50:.1f} and {took.database_ms.p95:.1f} in the database ({took.whole_ms.p50:.1f} and "
        f"{took.whole_ms.p95:.1f} with its values made; of the server's processor {took.server_ms.p50:.1f} and "
        f"{took.server_ms.p95:.1f})"
    )


def conclusion(results: list[Result]) -> str:
    first, last = results[0], results[-1]
    growth = f"{last.measurement_count / first.measurement_count:.0f} times the measurements"
    lines = [
        f"{name}: with {growth} p50 is {b.database_ms.p50 / a.database_ms.p50:.2f} times as long, p95 "
        f"{b.database_ms.p95 / a.database_ms.p95:.2f} times (target {_TARGET_GROWTH}), {b.database_ms.p95:.1f} ms "
        f"(target {_TARGET_MS:.0f} ms); of the server's processor {b.server_ms.p50 / a.server_ms.p50:.2f} and "
        f"{b.server_ms.p95 / a.server_ms.p95:.2f} times"
        for name, a, b in (
            ("trend", first.trend, last.trend),
            ("comparison", first.comparison, last.comparison),
        )
    ]
    return "\n".join([*lines, f"bytes per measurement: {last.bytes_per_measurement:.1f} (target {_TARGET_BYTES})"])


if __name__ == "__main__":
    main()
