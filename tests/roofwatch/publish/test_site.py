"""Writing a static site: it grows, keeps what it has, and refuses damaged data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sqlalchemy import Engine

from roofwatch.model.errors import RecordError
from roofwatch.model.history import Series
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.publish.shards import read_script
from roofwatch.publish.site import Published, PublishedSite, publish, publish_new_runs
from roofwatch.store.database_source import DatabaseSource
from tests.builders import PROJECT, make_measurement, make_record
from tests.dashboard.history import HOSTILE_PROJECT, store_history, store_hostile_project
from tests.databases import ingest_all
from tests.roofwatch.command import roofwatch


def root_of(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_bytes())  # noqa: S314  our own


def publish_stored(store: Engine, folder: Path, project: str = PROJECT) -> Published:
    return publish_new_runs(project, DatabaseSource(store), folder)


def run_ids(folder: Path) -> set[str]:
    found = set()
    for path in (folder / "data").glob("????-??-*.js"):
        found |= {run["id"] for run in read_script(path)["runs"]}
    return found


def test_a_site_has_everything_that_the_store_has(store: Engine, tmp_path: Path) -> None:
    regressions = store_history(store)

    published = publish_stored(store, tmp_path)

    assert published.run_count == 6
    assert len(run_ids(tmp_path)) == 6
    index = json.loads((tmp_path / "index.json").read_text())
    assert len(index["regressions"]) == len(regressions)
    assert all((tmp_path / name).exists() for name in index["data"])
    feed = root_of(tmp_path / "feed.atom")
    assert len(feed.findall("{http://www.w3.org/2005/Atom}entry")) == len(regressions)
    assert "regressed at" in (tmp_path / "badges" / "matmul.svg").read_text()


def test_publishing_again_writes_only_the_index(store: Engine, tmp_path: Path) -> None:
    store_history(store)
    first = publish_stored(store, tmp_path)

    again = publish_stored(store, tmp_path)

    assert first.written_files > 10
    assert again.written_files <= 2  # the time of publication


def test_runs_that_the_source_no_longer_has_stay_on_the_site(store: Engine, tmp_path: Path) -> None:
    store_history(store)
    publish_stored(store, tmp_path)
    before = run_ids(tmp_path)
    history = DatabaseSource(store).read_series(SeriesFilter(PROJECT, kernel="matmul"))

    publish(PROJECT, history[:1], [], PublishedSite.read(tmp_path))

    assert run_ids(tmp_path) == before
    series = read_script(tmp_path / "data" / "index.js")["series"]
    assert {description["kernel"] for description in series.values()} == {"matmul", "rms_norm"}


def data_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "data").glob("????-??-*.js")}


def test_a_new_run_is_written_to_the_newest_file_of_its_month(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many series, the file of a month had 2.7 MB, and each run wrote it again."""
    store_history(store)
    (series, *_) = DatabaseSource(store).read_series(SeriesFilter(PROJECT, kernel="matmul"))
    monkeypatch.setattr("roofwatch.publish.shards.MAX_VALUES", 2)
    publish(PROJECT, [replace(series, points=series.points[:4])], [], PublishedSite.read(tmp_path))
    before = data_of(tmp_path)

    publish(PROJECT, [replace(series, points=series.points[:5])], [], PublishedSite.read(tmp_path))

    after = data_of(tmp_path)
    assert len(before) == 2
    assert len(after) == 3
    assert before.items() <= after.items()
    assert len(run_ids(tmp_path)) == 5


def test_what_was_published_is_not_written_again(store: Engine, tmp_path: Path) -> None:
    store_history(store)
    (series, *_) = DatabaseSource(store).read_series(SeriesFilter(PROJECT, kernel="matmul"))
    publish(PROJECT, [series], [], PublishedSite.read(tmp_path))
    before = data_of(tmp_path)
    changed = [replace(point, value=1.0) for point in series.points]

    publish(PROJECT, [replace(series, points=tuple(changed))], [], PublishedSite.read(tmp_path))

    assert data_of(tmp_path) == before


def test_a_damaged_file_stops_before_anything_is_written(store: Engine, tmp_path: Path) -> None:
    store_history(store)
    publish_stored(store, tmp_path)
    shard = next((tmp_path / "data").glob("????-??-*.js"))
    shard.write_bytes(shard.read_bytes()[:-40])
    (tmp_path / "index.html").write_text("old")

    with pytest.raises(RecordError, match="nothing was written"):
        publish_stored(store, tmp_path)

    assert (tmp_path / "index.html").read_text() == "old"


def test_hostile_names_stay_text_wherever_a_site_has_them(store: Engine, tmp_path: Path) -> None:
    store_hostile_project(store)

    publish_stored(store, tmp_path, HOSTILE_PROJECT)

    root_of(tmp_path / "feed.atom")
    badges = list((tmp_path / "badges").iterdir())
    assert badges
    for badge in badges:
        root = root_of(badge)
        assert not root.findall(".//{*}script")
        assert badge.stem.replace("_", "").isalnum()


def test_only_the_time_since_the_first_new_run_is_read(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (
        make_record(number, measurements=[make_measurement(median_ns=1_000)]) for number in range(3)
    )
    ingest_all(store, first, second)
    publish_stored(store, tmp_path)
    ingest_all(store, third)
    read_since: list[object] = []
    read_series = DatabaseSource.read_series

    def noted(self: DatabaseSource, chosen: SeriesFilter, **options: Any) -> Sequence[Series]:
        read_since.append(options["since"])
        return read_series(self, chosen, **options)

    monkeypatch.setattr(DatabaseSource, "read_series", noted)
    grown = publish_stored(store, tmp_path)
    unchanged = publish_stored(store, tmp_path)

    assert read_since == [third.started_at]
    assert grown.run_count == unchanged.run_count == 3
    assert run_ids(tmp_path) == {str(record.run_id) for record in (first, second, third)}
    badge = (tmp_path / "badges" / "rms_norm.svg").read_text()
    assert "no open regression" in badge


def test_a_run_that_arrives_late_is_published(store: Engine, tmp_path: Path) -> None:
    records = [
        make_record(number, measurements=[make_measurement(median_ns=1_000)]) for number in range(3)
    ]
    ingest_all(store, records[0], records[2])
    publish_stored(store, tmp_path)
    ingest_all(store, records[1])

    publish_stored(store, tmp_path)

    assert run_ids(tmp_path) == {str(record.run_id) for record in records}


def test_a_run_without_values_is_read_once(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_all(store, make_record(0, measurements=[]))
    publish_stored(store, tmp_path)
    monkeypatch.delattr(DatabaseSource, "read_series")

    again = publish_stored(store, tmp_path)

    assert again.run_count == 0


@pytest.mark.slow
def test_records_alone_make_a_site(tmp_path: Path) -> None:
    for number in range(3):
        measurement = make_measurement(median_ns=1_000)
        make_record(number, measurements=[measurement]).write(
            tmp_path / "records" / f"{number}.json.gz"
        )

    done = roofwatch("publish", tmp_path / "site", "--from", tmp_path / "records")

    assert done.status == 0, done.error
    assert len(run_ids(tmp_path / "site")) == 3
    assert "3 runs" in done.output
