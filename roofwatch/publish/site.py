"""Write a static site of a project's history: pages, data, a feed, badges and an index."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from roofwatch.dashboard.charts.history import STYLE as FIGURE_STYLE
from roofwatch.dashboard.logo import LOGO
from roofwatch.model.files import atomic_write, make_folder
from roofwatch.model.history import Series, SeriesKey
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.model.triage import TriagedRegression
from roofwatch.model.verdict import Verdict
from roofwatch.publish.badges import badge
from roofwatch.publish.feed import feed
from roofwatch.publish.shards import (
    STATIC_RUNNER,
    Shard,
    grow,
    id_of,
    read_script,
    series_id,
    write_script,
)
from roofwatch.store.reading import Source

FORMAT_VERSION = 1
_PAGES = ("index", "trends", "kernel", "regression", "compare")
_SCRIPTS = ("app.js", "style.css")
_DATA = "data"


@dataclass(frozen=True)
class Published:
    """What one call wrote."""

    project: str
    series_count: int
    run_count: int
    regression_count: int
    written_files: int
    written_bytes: int
    """Of files whose content changed."""


class _Folder:
    """Writes files of the site that changed, each completely or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written_files = 0
        self.written_bytes = 0

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        # Unchanged files keep their time, so that a copy to a server skips them.
        if path.exists() and path.read_bytes() == content.encode():
            return
        make_folder(path.parent)
        atomic_write(path, content.encode())
        self.count(path)

    def write_data(self, name: str, document: dict[str, Any]) -> None:
        path = self.root / _DATA / f"{name}.js"
        if write_script(path, document):
            self.count(path)

    def count(self, path: Path) -> None:
        self.written_files += 1
        self.written_bytes += path.stat().st_size


@dataclass(frozen=True)
class PublishedSite:
    """What is published in a folder.

    Every file is read before the first is written, so that a damaged one stops the command and
    loses nothing.
    """

    root: Path
    shards: Sequence[Shard]
    series: Mapping[str, Mapping[str, Any]]
    """Descriptions, by id."""
    runs_without_values: frozenset[str]
    """Ids of runs that were read, and are in no file."""

    @classmethod
    def read(cls, root: Path) -> "PublishedSite":
        """Read the site of a folder; an empty one if there is none.

        Raises:
            RecordError: a file of the site is damaged.
        """
        paths = sorted((root / _DATA).glob("????-??-*.js"))
        shards = [Shard.from_document(read_script(path)) for path in paths]
        index: Mapping[str, Any] = {}
        if (root / _DATA / "index.js").exists():
            index = read_script(root / _DATA / "index.js")
        return cls(
            root=root,
            shards=shards,
            series=index.get("series", {}),
            runs_without_values=frozenset(index.get("runs_without_values", ())),
        )

    @property
    def known_runs(self) -> frozenset[str]:
        """Ids of the runs that need not be read again."""
        published = {run_id for shard in self.shards for run_id in shard.runs}
        return self.runs_without_values | published


def publish_new_runs(project: str, source: Source, root: Path) -> Published:
    """Write or update a site; only the time since the first run that it lacks is read.

    Raises:
        RecordError: a file of the site is damaged.
        StoreError, SpoolError: the source cannot answer.
        OSError: a file cannot be written.
    """
    site = PublishedSite.read(root)
    known_runs = site.known_runs
    counted_runs = source.list_counted_runs(project)
    new_runs = [run for run in counted_runs if run[0] not in known_runs]
    history: Sequence[Series] = ()
    if new_runs:
        _, oldest_start = new_runs[0]
        history = source.read_series(SeriesFilter(project), since=oldest_start)
    return publish(
        project,
        history,
        source.list_regressions(project),
        site,
        read_ids=[run_id for run_id, _ in new_runs],
    )


def publish(
    project: str,
    history: Sequence[Series],
    regressions: Sequence[TriagedRegression],
    site: PublishedSite,
    *,
    read_ids: Iterable[str] = (),
    now: datetime | None = None,
) -> Published:
    """Write or update a site; runs that it has and the history lacks are kept.

    Args:
        project: Its name.
        history: Series with the runs to add; those that are published count once.
        regressions: All of the project.
        site: As it was read.
        read_ids: Runs that the history was read for; some may have no values.
        now: Time of publication.

    Raises:
        OSError: a file cannot be written.
    """
    root = site.root
    changed = grow(site.shards, history)
    by_name = {shard.name: shard for shard in (*site.shards, *changed)}
    shards = [by_name[name] for name in sorted(by_name)]
    run_ids = {run_id for shard in shards for run_id in shard.runs}
    # the newest description of a series wins
    series = dict(site.series)
    for line in history:
        series[series_id(line.key)] = _description(line.key)
    folder = _Folder(root)
    for shard in changed:
        folder.write_data(shard.name, shard.to_document())
    index = _index(
        project=project,
        series=series,
        regressions=regressions,
        shards=shards,
        runs_without_values=(site.runs_without_values | set(read_ids)) - run_ids,
        now=now or datetime.now(UTC),
    )
    folder.write_data("index", index)
    folder.write("index.json", json.dumps(_summary(index), indent=1, sort_keys=True) + "\n")
    folder.write("feed.atom", feed(project, regressions))
    # Kernel names can be anything; file names cannot.
    for kernel, text, is_open in _badges(series, shards, regressions):
        folder.write(f"badges/{_file_name(kernel)}.svg", badge(kernel, text, is_bad=is_open))
    static = resources.files("roofwatch.publish").joinpath("static")
    page = static.joinpath("page.html").read_text().replace("LOGO", LOGO)
    for name in _PAGES:
        # No other text of the page is data, so no name can reach it.
        folder.write(f"{name}.html", page.replace("PAGE_NAME", name))
    for name in _SCRIPTS:
        folder.write(name, static.joinpath(name).read_text())
    folder.write("figures.css", FIGURE_STYLE)
    return Published(
        project=project,
        series_count=len(index["series"]),
        run_count=len(run_ids),
        regression_count=len(regressions),
        written_files=folder.written_files,
        written_bytes=folder.written_bytes,
    )


def _index(
    project: str,
    series: Mapping[str, Mapping[str, Any]],
    regressions: Sequence[TriagedRegression],
    shards: Sequence[Shard],
    runs_without_values: Collection[str],
    now: datetime,
) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "project": project,
        "published": now.isoformat(timespec="seconds"),
        "series": series,
        "runs_without_values": sorted(runs_without_values),
        "shards": [
            {
                "name": shard.name,
                "runner": shard.runner,
                "month": shard.month,
                "run_count": len(shard.runs),
            }
            for shard in shards
        ],
        "regressions": [_regression(triaged) for triaged in regressions],
    }


def _description(key: SeriesKey) -> dict[str, Any]:
    metric = key.definition
    return {
        "kernel": key.kernel,
        "case": key.case_id,
        "implementation": key.implementation,
        "metric": key.metric,
        "title": metric.title,
        "unit": metric.unit,
        "better": str(metric.better),
        "runner": key.runner_class or STATIC_RUNNER,
        "part": " · ".join(filter(None, (key.function, key.target, key.tensor))),
    }


def _regression(triaged: TriagedRegression) -> dict[str, Any]:
    regression = triaged.regression
    outline = regression.outline
    return {
        "id": triaged.regression_id,
        "kernel": regression.kernel,
        "verdict": str(regression.verdict),
        "cause": str(regression.cause),
        "summary": regression.summary,
        "sha": regression.commit.sha,
        "range": regression.range_text,
        "author": regression.commit.author,
        "subject": regression.commit.subject,
        "date": regression.commit.committed_at.isoformat(),
        "is_open": triaged.is_open,
        "settled_by": "" if triaged.is_open else triaged.settled_by,
        "is_alert": regression.is_alert,
        "is_confirmed": regression.is_confirmed,
        "suspects": [
            {"cause": str(suspect.cause), "weight": suspect.weight, "sentence": suspect.sentence}
            for suspect in regression.suspects
        ],
        "outline": [] if outline is None else list(outline.values),
        "changed_at": None if outline is None else outline.changed_at,
        "changes": [
            {
                "series": series_id(point.series),
                "label": point.series.label,
                "metric": point.series.metric,
                "evidence": point.evidence,
                "sha": point.commit.sha,
            }
            for point in regression.change_points
        ],
    }


def _summary(index: dict[str, Any]) -> dict[str, Any]:
    """What a program asks first: the regressions, and where the values are."""
    return {
        "format": index["format"],
        "project": index["project"],
        "published": index["published"],
        "regressions": index["regressions"],
        "data": [f"{_DATA}/{shard['name']}.js" for shard in index["shards"]],
    }


def _badges(
    series: Mapping[str, Mapping[str, Any]],
    shards: Sequence[Shard],
    regressions: Sequence[TriagedRegression],
) -> list[tuple[str, str, bool]]:
    """Kernel, text and whether it is slower, of each kernel with a time or a check."""
    worst: dict[str, TriagedRegression] = {}
    # The newest one comes first in the list, so it is written last and wins.
    for triaged in reversed(regressions):
        if triaged.is_open and triaged.regression.verdict is Verdict.REGRESSED:
            for kernel in triaged.regression.kernel.split(", "):
                worst[kernel] = triaged
    measured_series: set[str] = set()
    for shard in shards:
        measured_series |= shard.series_with_values()
    kernels = {description["kernel"] for description in series.values()}
    measured_kernels = {series[name]["kernel"] for name in measured_series if name in series}
    badges = []
    for kernel in sorted(kernels):
        if kernel in worst:
            text = f"regressed at {worst[kernel].regression.commit.short_sha}"
        elif kernel in measured_kernels:
            text = "no open regression"
        else:
            text = "not measured"
        badges.append((kernel, text, kernel in worst))
    return badges


def _file_name(kernel: str) -> str:
    """The kernel's name if it is safe as a file name, else an id."""
    is_safe = kernel.replace("_", "").replace("-", "").isalnum() and kernel.isascii()
    if is_safe:
        return kernel
    return id_of(kernel)
