"""Write a static site of a project's history: pages, data, a feed, badges and an index."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from roofwatch.dashboard.charts.history import STYLE as FIGURE_STYLE
from roofwatch.dashboard.logo import LOGO
from roofwatch.model.files import atomic_write, make_folder
from roofwatch.model.history import Series, SeriesKey
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


def publish(
    project: str,
    history: Sequence[Series],
    regressions: Sequence[TriagedRegression],
    root: Path,
    *,
    now: datetime | None = None,
) -> Published:
    """Write or update a site; runs that it has and the history lacks are kept.

    Every old file is read before the first is written, so that a damaged one stops the command and
    loses nothing.

    Raises:
        RecordError: a file of the site is damaged.
        OSError: a file cannot be written.
    """
    paths = sorted((root / _DATA).glob("????-??-*.js"))
    published = [Shard.from_document(read_script(path)) for path in paths]
    changed = grow(published, history)
    by_name = {shard.name: shard for shard in (*published, *changed)}
    shards = [by_name[name] for name in sorted(by_name)]
    folder = _Folder(root)
    for shard in changed:
        folder.write_data(shard.name, shard.to_document())
    index = _index(
        project=project,
        history=history,
        regressions=regressions,
        shards=shards,
        root=root,
        now=now or datetime.now(UTC),
    )
    folder.write_data("index", index)
    folder.write("index.json", json.dumps(_summary(index), indent=1, sort_keys=True) + "\n")
    folder.write("feed.atom", feed(project, regressions))
    # Kernel names can be anything; file names cannot.
    for kernel, text, is_open in _badges(history, regressions):
        folder.write(f"badges/{_file_name(kernel)}.svg", badge(kernel, text, is_bad=is_open))
    static = resources.files("roofwatch.publish").joinpath("static")
    page = static.joinpath("page.html").read_text().replace("LOGO", LOGO)
    for name in _PAGES:
        # No other text of the page is data, so no name can reach it.
        folder.write(f"{name}.html", page.replace("PAGE_NAME", name))
    for name in _SCRIPTS:
        folder.write(name, static.joinpath(name).read_text())
    folder.write("figures.css", FIGURE_STYLE)
    run_ids = {run_id for shard in shards for run_id in shard.runs}
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
    history: Sequence[Series],
    regressions: Sequence[TriagedRegression],
    shards: Sequence[Shard],
    root: Path,
    now: datetime,
) -> dict[str, Any]:
    published = root / _DATA / "index.js"
    if published.exists():
        series = read_script(published)["series"]
    else:
        series = {}
    # The newest description of a series wins.
    series |= {series_id(line.key): _description(line.key) for line in history}
    return {
        "format": FORMAT_VERSION,
        "project": project,
        "published": now.isoformat(timespec="seconds"),
        "series": series,
        "shards": [
            {"name": shard.name, "runner": shard.runner, "month": shard.month} for shard in shards
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
    history: Sequence[Series], regressions: Sequence[TriagedRegression]
) -> list[tuple[str, str, bool]]:
    """Kernel, text and whether it is slower, of each kernel with a time or a check."""
    worst: dict[str, TriagedRegression] = {}
    # The newest one comes first in the list, so it is written last and wins.
    for triaged in reversed(regressions):
        if triaged.is_open and triaged.regression.verdict is Verdict.REGRESSED:
            for kernel in triaged.regression.kernel.split(", "):
                worst[kernel] = triaged
    kernels: defaultdict[str, int] = defaultdict(int)
    for series in history:
        kernels[series.key.kernel] += sum(point.value is not None for point in series.points)
    badges = []
    for kernel, value_count in sorted(kernels.items()):
        if kernel in worst:
            text = f"regressed at {worst[kernel].regression.commit.short_sha}"
        elif value_count:
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
