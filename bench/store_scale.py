"""Time the dashboard's two main queries in growing databases, the analysis of a project, or the
ingest of records.

    PYTHONPATH=. python bench/store_scale.py [MILLIONS ...] [--folder FOLDER] [--questions N]
    PYTHONPATH=. python bench/store_scale.py --analyse SERIES
    PYTHONPATH=. python bench/store_scale.py --ingest CASES

The queries are a trend of 2,000 points and a comparison of two commits with 2,000 cases each, for
random series and commits. The target is a 95th percentile under 50 ms with 10 million measurements.
Databases in FOLDER are reused. The analysed series have 500 points with 2 % noise, and one in fifty
has a step of 20 %: 2,000 series within 10 s.
"""

import argparse
import gc
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine import migrate
from roofwatch.db.engine.session import make_engine, open_store, reading_session
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.comparing import read_runs_by_runner
from roofwatch.db.queries.series import read_series
from roofwatch.db.schema.measurements import MeasurementRow
from roofwatch.db.schema.table import Base
from roofwatch.model.history import SeriesKey
from roofwatch.model.machine import DeviceState, Telemetry
from roofwatch.model.measurement import Block, Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Counters
from tests.builders import (
    NOON,
    make_accuracy,
    make_measurement,
    make_record,
    make_static_facts,
    make_tensor_error,
)
from tests.db.made_up_store import DEEP, WIDE, Shape, fill, settle

_TARGET_MS = 50.0
_WARMUP_QUESTIONS = 12
"""Of each query and database, which fill caches and are not counted."""

Ask = Callable[[Session, random.Random, int], None]


def main() -> None:
    arguments = _parse_arguments()
    if arguments.analyse is not None:
        time_analysis(arguments.analyse)
        time_new_run(arguments.analyse)
        return
    if arguments.ingest is not None:
        time_ingest(arguments.ingest)
        return
    with (
        tempfile.TemporaryDirectory() as temporary,
        open_store(folder=arguments.folder or Path(temporary)) as server,
        ExitStack() as opened,
    ):
        engines: dict[int, Engine] = {}
        for millions in arguments.millions:
            engine = _open_database(server, millions)
            opened.callback(engine.dispose)
            grow(engine, millions)
            engines[millions] = engine
        gc.freeze()  # as the servers do
        for line in measure(engines, arguments.questions):
            print(line)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "millions",
        type=int,
        nargs="*",
        default=[1, 10],
    )
    parser.add_argument("--folder", type=Path, help="keep the databases here")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument(
        "--analyse",
        type=int,
        metavar="SERIES",
        help="analyse a project of that many series instead",
    )
    parser.add_argument(
        "--ingest",
        type=int,
        metavar="CASES",
        help="ingest records of that many cases instead",
    )
    return parser.parse_args()


def _judged_shape(series_count: int) -> Shape:
    return Shape(
        "judged",
        run_count=500,
        series_count=series_count,
        day_count=30,
        step_every=50,
    )


def time_analysis(series_count: int) -> None:
    """Analyse a synthetic project once, and print the time and memory that it took."""
    shape = _judged_shape(series_count)
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        fill(engine, shape, 0)
        settle(engine)
        started = time.monotonic()
        spent = time.process_time()
        regressions = analyse_project(engine, shape.project(0))
        elapsed_s = time.monotonic() - started
        python_s = time.process_time() - spent
        # Linux gives KiB.
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(
            f"{series_count} series of 500 points: analysed in {elapsed_s:.1f} s "
            f"({python_s:.1f} s in Python), {len(regressions)} regressions, "
            f"at most {peak_mib:.0f} MiB"
        )


def time_new_run(series_count: int, case_count: int = 200) -> None:
    """Analyse a synthetic project after one more run of some cases; print the processor time."""
    shape = _judged_shape(series_count)
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        fill(engine, shape, 0)
        settle(engine)
        analyse_project(engine, shape.project(0))
        for number in (600, 601):  # the first run fills caches
            measurements = [
                make_measurement(shape.case_id(case), implementation="triton")
                for case in range(case_count)
            ]
            record = make_record(number, measurements=measurements, project=shape.project(0))
            ingest_record(engine, record)
            python_before_s = time.process_time()
            server_before_s = _server_s(engine)
            analyse_project(engine, shape.project(0))
            python_s = time.process_time() - python_before_s
            server_s = _server_s(engine) - server_before_s
        print(
            f"a run of {case_count} cases into {series_count} series of 500 points: "
            f"{python_s:.1f} s in Python and {server_s:.1f} s in Postgres"
        )


def _server_s(engine: Engine) -> float:
    """Processor time of all processes of the server that still run."""
    with engine.connect() as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    postmaster = psutil.Process(backend).parent()
    assert postmaster is not None
    seconds = 0.0
    for process in (postmaster, *postmaster.children()):
        spent = process.cpu_times()
        seconds += spent.user + spent.system
    # A connection that has ended counts for its parent.
    ended = postmaster.cpu_times()
    return seconds + ended.children_user + ended.children_system


def _open_database(server: Engine, millions: int) -> Engine:
    name = f"scale_{millions}m"
    exists = text("SELECT count(*) FROM pg_database WHERE datname = :name")
    # CREATE DATABASE is refused within a transaction.
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(exists, {"name": name}):
            connection.execute(text(f"CREATE DATABASE {name}"))
    engine = make_engine(server.url.set(database=name))
    migrate.upgrade(engine)
    return engine


def grow(engine: Engine, millions: int) -> None:
    """Fill a database; indexes are built at the end, which is several times faster."""
    with engine.connect() as connection:
        stored = set(connection.scalars(text("SELECT name FROM project")))
        existing = set(connection.scalars(text("SELECT indexname::text FROM pg_indexes")))
    shapes = [(shape, pair) for pair in range(millions) for shape in (DEEP, WIDE)]
    # an earlier call may have filled a part
    missing = [(shape, pair) for shape, pair in shapes if shape.project(pair) not in stored]
    indexes = sorted(
        Base.metadata.tables[MeasurementRow.__tablename__].indexes,
        key=lambda index: str(index.name),
    )
    # A call that was interrupted may have left the tables full and the indexes missing.
    is_complete = not missing and all(index.name in existing for index in indexes)
    if is_complete:
        return
    with engine.begin() as connection:
        for index in indexes:
            if index.name in existing:
                index.drop(connection, checkfirst=False)
    for shape, pair in missing:
        fill(engine, shape, pair)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL maintenance_work_mem = '1GB'"))
        for index in indexes:
            index.create(connection)
    settle(engine)


def measure(engines: Mapping[int, Engine], question_count: int) -> Iterator[str]:
    """Run both queries this many times in each database, the databases in turn."""
    times_ms: dict[str, dict[int, list[float]]] = {}
    for name, ask in _QUESTIONS.items():
        # in turn, so that a busy minute slows all databases
        times_ms[name] = _times_ms(engines, ask, question_count)
    for millions, engine in engines.items():
        with engine.connect() as connection:
            count = connection.execute(
                text("SELECT sum(cardinality(series_ids)) FROM run")
            ).scalar_one()
            size = connection.execute(
                text("SELECT pg_total_relation_size('measurement')")
            ).scalar_one()
        cells: list[str] = []
        for name, times in times_ms.items():
            p50, p95 = np.percentile(times[millions], [50, 95])
            cells.append(f"{name} {p50:.1f} and {p95:.1f} ms")
        yield (
            f"{count / 1e6:.0f} M measurements, p50 and p95: {', '.join(cells)} "
            f"(target {_TARGET_MS:.0f} ms); "
            f"{size / count:.0f} bytes per measurement, with indexes"
        )


def _ask_trend(session: Session, rng: random.Random, millions: int) -> None:
    project = DEEP.project(rng.randrange(millions))
    case_id = DEEP.case_id(rng.randrange(DEEP.series_count))
    key = SeriesKey(
        project=project,
        case_id=case_id,
        implementation="triton",
        metric="median_ns",
        runner_class="made up",
    )
    (series,) = read_series(session, project, keys=[key])
    assert len(series.points) == DEEP.run_count


def _ask_comparison(session: Session, rng: random.Random, millions: int) -> None:
    project = WIDE.project(rng.randrange(millions))
    query = text(
        "SELECT sha FROM commit JOIN project ON project.id = project_id "
        "WHERE project.name = :project AND first_parent_count = ANY(:places)"
    )
    places = rng.sample(range(1, WIDE.run_count + 1), 2)
    shas = session.scalars(query, {"project": project, "places": places}).all()
    for of_runner in read_runs_by_runner(session, project, *shas):
        for detail in (of_runner.base, of_runner.head):
            assert detail is not None
            assert len(detail.cases) == WIDE.series_count


_QUESTIONS = {"trend": _ask_trend, "comparison": _ask_comparison}


def _times_ms(
    engines: Mapping[int, Engine],
    ask: Ask,
    question_count: int,
) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {millions: [] for millions in engines}
    rng = random.Random(7)  # noqa: S311 -- chooses questions, no secrets
    for number in range(_WARMUP_QUESTIONS + question_count):
        # in a new order each time, so that no database always answers after the same one
        for millions in rng.sample(list(engines), len(engines)):
            started = time.perf_counter()
            with reading_session(engines[millions]) as session:
                ask(session, rng, millions)
            if number >= _WARMUP_QUESTIONS:
                elapsed_s = time.perf_counter() - started
                times[millions].append(1e3 * elapsed_s)
    return times


_IMPLEMENTATIONS = ("torch", "compile", "triton")
_INGEST_TARGET_S = 3.0
"""For 2,000 cases on two cores."""
_TARGETS = ("sm_90", "sm_100")
_READINGS_PER_MEASUREMENT = 6
_TENSORS = tuple(make_tensor_error(tensor=tensor) for tensor in ("out", "grad_x"))
_COUNTERS = (
    "dram_bytes",
    "l2_bytes",
    "sm_throughput",
    "dram_throughput",
    "achieved_occupancy",
    "warp_stall_long",
)


def make_full_record(number: int, case_count: int) -> RunRecord:
    """Run number `number`: equal cases and machine code in each, new times."""
    rng = np.random.default_rng(number)
    # 40 kernels, as a large project has.
    case_ids = [f"kernel_{case % 40}/n={case}/float32/fwd" for case in range(case_count)]
    subjects = [
        (case_id, implementation) for case_id in case_ids for implementation in _IMPLEMENTATIONS
    ]
    measurements = [_timed(rng, case_id, implementation) for case_id, implementation in subjects]
    accuracies = [
        make_accuracy(case_id, implementation=implementation, tensors=_TENSORS)
        for case_id, implementation in subjects
    ]
    static_facts = [
        make_static_facts(
            case_id,
            code=f"{case_id} {target}",
            target=target,
            instructions={"global_load.128": 4},
        )
        for case_id in case_ids
        for target in _TARGETS
    ]
    return make_record(
        number,
        measurements=measurements,
        accuracies=accuracies,
        static_facts=static_facts,
        counters=tuple(_counters(rng, case_id) for case_id in case_ids),
        telemetry=_telemetry(rng, NOON, len(subjects) * _READINGS_PER_MEASUREMENT),
    )


def _counters(rng: np.random.Generator, case_id: str) -> Counters:
    values = rng.uniform(0, 1, size=len(_COUNTERS)).tolist()
    return Counters(
        case_id=case_id,
        implementation="triton",
        function="_body",
        values=dict(zip(_COUNTERS, values, strict=True)),
    )


def _timed(rng: np.random.Generator, case_id: str, implementation: str) -> Measurement:
    # multiples of 32 ns, the clock's resolution
    times = np.round(rng.normal(312_500, 400, size=(5, 20))) * 32
    state = DeviceState(
        reading_count=3,
        sm_clock_mhz=1_980.0,
        power_w=412.5,
        temperature_c=61.0,
    )
    blocks = tuple(
        Block(
            started_at=NOON,
            samples_ns=tuple(row),
            kernel_count=1,
            device_state=state,
        )
        for row in times.tolist()
    )
    return make_measurement(case_id, implementation=implementation, blocks=blocks)


def _telemetry(rng: np.random.Generator, started_at: datetime, reading_count: int) -> Telemetry:
    offset_ms = np.arange(reading_count) * 50.0
    power_w = np.round(rng.normal(412, 20, size=reading_count), 1)
    # 410 W for 50 ms are 20.5 J.
    energy_j = np.arange(reading_count) * 20.5
    return Telemetry(
        status="ok",
        started_at=started_at,
        offset_ms=tuple(offset_ms.tolist()),
        sm_clock_mhz=tuple(rng.choice([1_965.0, 1_980.0], size=reading_count).tolist()),
        memory_clock_mhz=(2_619.0,) * reading_count,
        power_w=tuple(power_w.tolist()),
        temperature_c=tuple(rng.choice([60.0, 61.0], size=reading_count).tolist()),
        energy_j=tuple(energy_j.tolist()),
    )


def time_ingest(case_count: int) -> None:
    """Store a synthetic record of a new run in each round; its cases are known after the first."""
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        seconds: list[float] = []
        for number in range(6):
            record = make_full_record(number, case_count)
            started = time.monotonic()
            ingest_record(engine, record)
            seconds.append(time.monotonic() - started)
    # Cases, series and machine code are new in the first record only.
    first_s, *later_s = seconds
    median_s = statistics.median(later_s)
    print(
        f"{case_count} cases: first {first_s:.2f} s, then median {median_s:.2f} s, "
        f"{median_s / _INGEST_TARGET_S:.2f} of the target of {_INGEST_TARGET_S:.0f} s"
    )


if __name__ == "__main__":
    main()
