"""`roofwatch import` and `export`: records from other tools' files,
and the history that they make.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import URL, Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import reading_session
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.importers import FileImportError
from roofwatch.importers.reading import import_file, with_directions
from roofwatch.importers.records import to_records
from roofwatch.model.history import Regression
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better
from roofwatch.model.record import RunRecord
from tests.builders import make_record, sha_of
from tests.databases import ingest_all
from tests.docs.markdown import ROOT, code_blocks
from tests.git_repository import commit_file, make_repository
from tests.roofwatch.command import roofwatch
from tests.roofwatch.importers.test_formats import DATA, SERVING

START = datetime(2025, 1, 1, tzinfo=UTC)
FIELDS = (
    "case",
    "parameters",
    "metric",
    "unit",
    "direction",
    "statistic",
    "value",
    "sample_count",
    "outcome",
)


def data_js(values: Sequence[float], *, tool: str = "customSmallerIsBetter") -> str:
    """A `data.js` of one benchmark with one commit a day."""
    entries = [
        {
            "commit": {
                "id": sha_of(day),
                "message": f"Change {day}",
                "timestamp": (START + timedelta(day)).isoformat(),
            },
            "date": (START + timedelta(day)).timestamp() * 1e3,
            "tool": tool,
            "benches": [{"name": "sort", "value": value, "unit": "ms"}],
        }
        for day, value in enumerate(values)
    ]
    document = {"lastUpdate": 0, "repoUrl": "https://github.com/o/r", "entries": {"Suite": entries}}
    return "window.BENCHMARK_DATA = " + json.dumps(document)


def days_with_step(factor: float, days: int = 60) -> list[float]:
    """Daily values with 1 % of noise, and a step on day 40."""
    noise = np.random.default_rng(5).normal(1, 0.01, days)
    return [float(100 * one * (factor if day >= 40 else 1)) for day, one in enumerate(noise)]


def test_dry_run_prints_one_row_for_every_number_without_writing(tmp_path: Path) -> None:
    done = roofwatch(
        "import", DATA / "tritonbench_softmax_2024.json", "--dry-run", "--json", cwd=tmp_path
    )

    document = json.loads((DATA / "tritonbench_softmax_2024.json").read_text())
    assert done.status == 0
    assert list(done.parsed) == [
        "summary",
        "format",
        "tool_version",
        "commit",
        "dirty",
        "notes",
        "rows",
    ]
    assert [tuple(row) for row in done.parsed["rows"]] == [FIELDS] * len(document["metrics"])
    assert [row["value"] for row in done.parsed["rows"]] == list(document["metrics"].values())
    assert not list(tmp_path.iterdir())


def test_dry_run_shows_one_row_per_benchmark_with_a_note_on_what_is_only_stored(
    tmp_path: Path,
) -> None:
    stats = {"min": 1e-3, "max": 2e-3, "mean": 1.2e-3, "median": 1.1e-3, "rounds": 10}
    document = {
        "machine_info": {},
        "commit_info": {"id": sha_of(1), "time": str(START), "dirty": False},
        "benchmarks": [{"fullname": f"a.py::test_{name}", "stats": stats} for name in "xy"],
    }
    (tmp_path / "old.json").write_text(json.dumps(document))

    done = roofwatch("import", "old.json", "--dry-run", cwd=tmp_path)

    rows = [line for line in done.output.splitlines() if "a.py::test_" in line]
    assert len(rows) == 2
    assert all("0.0011" in row and "min, max, mean, rounds" in row for row in rows)


def test_a_damaged_file_stops_the_import_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_bytes((DATA / "pytest_benchmark_fib.json").read_bytes()[:-20])

    done = roofwatch(
        "import", DATA / "pytest_benchmark_fib.json", tmp_path / "cut.json", cwd=tmp_path
    )

    assert done.status == 2
    assert "cut.json" in done.error
    assert not (tmp_path / "roofwatch-records").exists()


def judged(store: Engine, *paths: Path, **directions: Better) -> list[Regression]:
    """Import files into a store, and judge their history."""
    for path in paths:
        run = with_directions(
            import_file(path)[1], [f"{name}={better}" for name, better in directions.items()]
        )
        ingest_all(store, *to_records(run, path, project="p", revision=None, folder=path.parent))
    return analyse_project(store, "p")


@pytest.mark.parametrize(
    ("tool", "factor", "verdicts"),
    [
        ("customSmallerIsBetter", 1.1, ["regressed"]),
        ("customBiggerIsBetter", 1.1, ["improved"]),
        ("customSmallerIsBetter", 1.0, []),
        ("unheardOf", 1.1, []),
    ],
)
def test_a_history_of_results_is_judged_by_its_direction(
    tmp_path: Path, store: Engine, tool: str, factor: float, verdicts: list[str]
) -> None:
    (tmp_path / "data.js").write_text(data_js(days_with_step(factor), tool=tool))

    found = judged(store, tmp_path / "data.js")

    assert [(one.verdict, one.commit.sha, one.is_alert) for one in found] == [
        (verdict, sha_of(40), True) for verdict in verdicts
    ]
    with reading_session(store) as session:
        (series,) = read_series(session, "p", list_series_keys(session, "p"))
    assert len(series.points) == 60


def test_a_given_direction_makes_an_unknown_metric_judged(tmp_path: Path, store: Engine) -> None:
    (tmp_path / "data.js").write_text(data_js(days_with_step(1.1), tool="unheardOf"))

    assert [one.verdict for one in judged(store, tmp_path / "data.js", value=Better.LOWER)] == [
        "regressed"
    ]
    with pytest.raises(FileImportError, match="the file has value"):
        judged(store, tmp_path / "data.js", speed=Better.LOWER)


def test_a_benchmark_that_fails_is_a_regression_unlike_one_that_is_skipped(
    tmp_path: Path, store: Engine
) -> None:
    for day in range(8):
        results = {
            "time_fails": None if day > 5 else 1.0,
            "time_skips": math.nan if day > 5 else 1.0,
        }
        shared = {
            "commit_hash": sha_of(day),
            "date": (START + timedelta(day)).timestamp() * 1e3,
            "version": 1,
        }
        (tmp_path / f"{day}.json").write_text(
            json.dumps({**shared, "params": {}, "results": results})
        )
    found = [one for day in range(8) for one in judged(store, tmp_path / f"{day}.json")]

    last = found[-1]
    assert {(one.verdict, one.kernel, one.commit.sha) for one in found} == {
        ("regressed", "time_fails", sha_of(6))
    }
    assert last.is_confirmed


def test_statistics_next_to_a_median_are_only_drawn(tmp_path: Path, store: Engine) -> None:
    for day, value in enumerate(days_with_step(1.2)):
        stats = dict.fromkeys(("min", "median", "mean", "max"), value) | {"rounds": 5}
        document = {
            "machine_info": {},
            "commit_info": {"id": sha_of(day), "time": str(START + timedelta(day)), "dirty": False},
            "benchmarks": [{"fullname": "a.py::test_sort", "stats": stats}],
        }
        (tmp_path / f"{day}.json").write_text(json.dumps(document))
    (found,) = judged(store, *(tmp_path / f"{day}.json" for day in range(60)))

    assert [point.series.definition.title for point in found.change_points] == ["time median"]
    with reading_session(store) as session:
        keys = list_series_keys(session, found.project)
    titles = {key.definition.title for key in keys}
    assert titles >= {"time min", "time mean", "time max", "time median"}


def test_importing_twice_stores_once(tmp_path: Path, store: Engine) -> None:
    (tmp_path / "data.js").write_text(data_js([1.0, 2.0]))
    for _ in range(2):
        judged(store, tmp_path / "data.js")

    with reading_session(store) as session:
        assert len(list_runs(session, "p")) == 2


def test_results_of_a_dirty_work_tree_stay_out_of_the_history(store: Engine) -> None:
    judged(store, DATA / "pytest_benchmark_fib.json")

    with reading_session(store) as session:
        assert list_series_keys(session, "p") == []
        assert list_series_keys(session, "p", include_dirty=True)


@pytest.mark.slow
def test_a_folder_becomes_a_judged_history_by_one_command(
    tmp_path: Path, database_url: URL
) -> None:
    (tmp_path / "data.js").write_text(data_js(days_with_step(1.1, 100)))
    url = database_url.render_as_string(hide_password=False)

    done = roofwatch(
        "import", tmp_path, "--ingest", "--json", cwd=tmp_path, ROOFWATCH_DATABASE_URL=url
    )

    assert [one["verdict"] for one in done.parsed["regressions"]] == ["regressed"]
    assert len(done.parsed["runs"]) == 100
    shown = roofwatch(
        "show", "series", "--project", "o/r", "--json", ROOFWATCH_DATABASE_URL=url
    ).parsed
    assert [one["key"]["metric"] for one in shown["series"]] == ["value (ms, lower)"]


def test_a_file_without_a_commit_needs_one(tmp_path: Path) -> None:
    file = DATA / "tritonbench_softmax_2024.json"
    refused = roofwatch("import", file, "--project", "p", cwd=tmp_path)
    assert refused.status == 2
    assert "--commit" in refused.error

    done = roofwatch(
        "import", file, "--project", "p", "--commit", sha_of(1), "--json", cwd=tmp_path
    )
    (path,) = done.parsed["records"]
    record = RunRecord.read(tmp_path / path)
    assert (record.commit.sha, record.project, len(record.imported)) == (sha_of(1), "p", 13)


def records_of(path: Path, folder: Path) -> list[RunRecord]:
    run = import_file(path)[1]
    return list(to_records(run, path, project="p", revision=sha_of(1), folder=folder))


def test_git_tells_what_the_imported_commits_lack(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "kernels")
    shas = [commit_file(folder, "file", str(number), f"Change {number}") for number in range(3)]
    file = DATA / "tritonbench_softmax_2024.json"

    run = import_file(file)[1]
    found = [
        record
        for sha in ("HEAD", shas[0], shas[1][:10])
        for record in to_records(run, file, project=None, revision=sha, folder=folder)
    ]

    assert [(one.commit.sha, one.commit.first_parent_count) for one in found] == [
        (shas[2], 3),
        (shas[0], 1),
        (shas[1], 2),
    ]
    assert {one.project for one in found} == {"kernels"}
    assert found[1].commit.subject == "Change 0"


def test_samples_become_quartiles(tmp_path: Path) -> None:
    document: dict[str, Any] = SERVING | {
        "ttfts": [0.1, 0.2, 0.3, 0.4, 0.0],
        "errors": ["", "", "", "", "lost"],
    }
    (tmp_path / "run.json").write_text(json.dumps(document))

    (record,) = records_of(tmp_path / "run.json", tmp_path)

    (ttft,) = [value for value in record.imported if value.statistic == "sample"]
    assert ttft.value == 0.25
    assert (ttft.low, ttft.high) == pytest.approx((0.175, 0.325))
    # the fifth request failed
    assert ttft.sample_count == 4


def test_failures_hold_no_value(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(SERVING | {"completed": 0}))

    (record,) = records_of(tmp_path / "run.json", tmp_path)

    failed = [value for value in record.imported if value.outcome is not Outcome.OK]
    assert {value.value for value in failed} == {None}


def test_hostile_names_make_a_valid_record(tmp_path: Path) -> None:
    name = "a/../\x00\x1b[31m" + "x" * 5_000
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                name: {"y<img src=x>" * 90: {"value": 1.0}, "z" * 900: {"value": 2.0}},
                "short": {"m": {"value": 3.0}},
            }
        )
    )

    (record,) = records_of(tmp_path / "run.json", tmp_path)

    assert RunRecord.from_json(record.to_json(), name="record") == record
    assert {value.value for value in record.imported} == {1.0, 2.0, 3.0}
    assert not {"\0", "<", "\x1b"} & set(record.to_json().decode())


def test_imported_results_are_not_compared_with_measured_ones(tmp_path: Path) -> None:
    make_record(0).write(tmp_path / "measured.json")
    (imported,) = records_of(DATA / "tritonbench_launch_latency.json", tmp_path)
    imported.write(tmp_path / "imported.json")

    done = roofwatch(
        "compare", tmp_path / "measured.json", tmp_path / "imported.json", "--json", cwd=tmp_path
    )

    assert done.status == 2
    assert imported.environment.runner_class != make_record(0).environment.runner_class
    assert "imported results are judged over a history" in done.output


def test_an_exported_record_is_imported_with_the_same_numbers(tmp_path: Path) -> None:
    (imported,) = records_of(DATA / "google_benchmark_compare.json", tmp_path)
    imported.write(tmp_path / "a.json")
    make_record(3).write(tmp_path / "b.json")

    done = roofwatch(
        "export", tmp_path / "a.json", tmp_path / "b.json", "--output", tmp_path / "out.json"
    )

    format_name, run = import_file(tmp_path / "out.json")
    assert (done.status, format_name) == (0, "pytorch")
    wanted = {
        (one.metric, one.statistic, one.unit, one.better, one.value) for one in imported.imported
    }
    assert wanted <= {
        (row.metric, row.statistic, row.unit, row.better, row.value) for row in run.rows
    }
    median = next(one.median_ns for one in make_record(3).measurements)
    assert median in {row.value for row in run.rows if row.metric == "median_ns"}
    assert {row.commit and row.commit.sha for row in run.rows} == {sha_of(1), sha_of(3)}


def test_the_documented_plug_in_reads_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = code_blocks(ROOT / "docs/how-to/import.md", "python")
    *_, entry = code_blocks(ROOT / "docs/how-to/import.md", "toml")
    (tmp_path / "lap_times.py").write_text(example)
    metadata = tmp_path / "lap_times-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: lap-times\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[roofwatch.importers]\nlap-times = lap_times:importer\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "laps.csv").write_text(
        f"commit;case;seconds\n{sha_of(1)};mine;1.5\n{sha_of(2)};mine;\n"
    )

    format_name, run = import_file(tmp_path / "laps.csv")

    assert 'lap-times = "lap_times:importer"' in entry
    assert format_name == "lap-times"
    assert [(row.value, row.outcome) for row in run.rows] == [
        (1.5, Outcome.OK),
        (None, Outcome.CRASHED),
    ]
    (tmp_path / "cut.csv").write_text("commit;case;seconds\nabc;mi")
    with pytest.raises(FileImportError, match="cut off"):
        import_file(tmp_path / "cut.csv")


def test_a_preset_of_the_settings_reads_a_table_with_its_controls(tmp_path: Path) -> None:
    (tmp_path / "roofwatch.toml").write_text(
        """
[import]
controls = ["base*"]
[import.presets.ours]
case = ["kernel"]
value = "p50"
unit = "ms"
better = "lower"
implementation = "provider"
commit = "sha"
"""
    )
    rows = "".join(f"softmax,{name},{time},{'a' * 40}\n" for name, time in [("x", 2), ("base1", 4)])
    (tmp_path / "table.csv").write_text(f"kernel,provider,p50,sha\n{rows}")

    done = roofwatch("import", "table.csv", "--as", "ours", "--project", "p", cwd=tmp_path)

    assert done.status == 0, done.error
    (path,) = (tmp_path / "roofwatch-records").iterdir()
    record = RunRecord.read(path)
    shown = {(one.implementation, one.metric): one.value for one in record.imported}
    assert shown == {
        ("x", "value"): 2.0,
        ("base1", "value"): 4.0,
        ("x", "value, ratio to base1"): 0.5,
    }
    assert [one.implementation for one in record.imported if one.is_control] == ["base1"]


def test_a_repository_gives_the_versions_of_a_branch_their_order(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    shas = []
    for number in range(3):
        shas.append(
            commit_file(repository, "softmax.py", f"BLOCK = {max(number, 1)}  # {number}\n")
        )
        row = f"softmax,{number + 1},{shas[-1]}\n"
        commit_file(repository, "results.csv", f"kernel,p50,sha\n{row}", "Results")

    done = roofwatch(
        "import",
        "--git-history",
        "main:results.csv",
        "--repository",
        repository,
        "--as",
        "table",
        "--map",
        "case=kernel value=p50 unit=ms better=lower commit=sha",
        "--project",
        "p",
        cwd=tmp_path,
    )

    assert done.status == 0, done.error
    records = [RunRecord.read(path) for path in (tmp_path / "roofwatch-records").iterdir()]
    records.sort(key=lambda record: record.commit.first_parent_count)
    assert [record.commit.sha for record in records] == shas
    assert [record.commit.first_parent_count for record in records] == [1, 3, 5]
    identities = [value.code_hash for record in records for value in record.imported]
    assert identities[0] == identities[1] != identities[2]


def test_import_without_files_says_what_to_name(tmp_path: Path) -> None:
    done = roofwatch("import", cwd=tmp_path)

    assert done.status != 0
    assert "--git-history BRANCH:PATH" in done.error
