"""What `roofwatch post` shows on the job's page and in its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofwatch.ci.forges import check_run
from roofwatch.ci.report.comment import to_markdown
from roofwatch.console.terminal import OutputError
from roofwatch.pull_requests.posting import Posted, Report

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_SUMMARY_BYTES = 1_000_000
"""GitHub's limit is 1 MiB per step."""


def append_summary(report: Report, variables: Mapping[str, str]) -> None:
    """Show the report on the job's page, if there is one.

    Raises:
        OutputError: it cannot be written.
    """
    path = variables.get(SUMMARY_VARIABLE)
    text = report.check.summary
    # outside GitHub, or without a conclusion to show
    if not path or report.check.conclusion is None:
        return
    # the page has room for the whole comment
    if report.judgement is not None:
        text = to_markdown(report.judgement, max_bytes=_SUMMARY_BYTES, links=report.links)
    try:
        with Path(path).open("a") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise OutputError(
            f"{SUMMARY_VARIABLE}: {path}: cannot be written: {error.strerror}"
        ) from None


def summary(posted: Posted, reports: Mapping[str, Report]) -> Iterator[str]:
    """Write what was done, line by line."""
    for name, report in reports.items():
        # a report that is not one of several has no name
        shown_name = f"{name}: " if name else ""
        if report.problem is not None:
            yield f"{shown_name}nothing to judge: {report.problem}"
        if posted.check_run is not None:
            yield f"{shown_name}check-run: {posted.check_run} ({report.check.title})"
    if posted.accepted_by is not None:
        yield f"accepted by {posted.accepted_by}"
    for number, action in posted.comments.items():
        yield f"comment on pull or merge request {number}: {action}"


def check_lines(check: check_run.CheckRun) -> Iterator[str]:
    """Describe a check-run and its annotations, line by line."""
    yield f"check-run: {check.conclusion} ({check.title})"
    for annotation in check.annotations:
        level = "failure" if annotation.is_failure else "notice"
        source_line = f"{annotation.file}:{annotation.line}"
        yield f"{source_line}: {level}: {annotation.title}"
        for line in annotation.message.splitlines():
            yield f"  {line}"


def to_json(posted: Posted, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Write what was done; of several parts, the first has the title."""
    report = next(iter(reports.values()))
    verdict = None
    if report.judgement is not None:
        verdict = report.judgement.verdict
    document: dict[str, Any] = {
        "verdict": verdict,
        "problem": report.problem,
        "title": report.check.title,
        "pull_request": None,
        "comment": None,
    }
    for number, action in posted.comments.items():
        document["pull_request"] = number and int(number)
        document["comment"] = action
        break
    return {**document, **asdict(posted)}
