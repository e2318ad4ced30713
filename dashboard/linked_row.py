"""The row of the ledger that an address names, and the project that it belongs to."""

from collections.abc import Iterable, Mapping, Sequence

from roofwatch.ci.history.commit_rows import CommitEntry, rows_by_commit
from roofwatch.dashboard import data
from roofwatch.db.queries import questions
from roofwatch.model.verdict import Verdict

_FIRST_VERDICTS = {Verdict.REGRESSED: 0, Verdict.IMPROVED: 1}
_PROJECTS_SEARCHED = 20
"""Projects in which a commit without a project is looked for: each is a question to the store."""


def find_linked_row(query: Mapping[str, str]) -> tuple[str, CommitEntry] | None:
    """Return project and row of the parameters of an address; None if they name no row, or one in
    each of several projects.

    Raises:
        StoreError: the store failed, or the project is restricted.
    """
    # most addresses name no row: no question to the store
    if not query.keys() & {"commit", "regression"}:
        return None
    if "project" in query:
        projects: Sequence[str] = [query["project"]]
    else:
        projects = data.list_projects()
    matches: list[tuple[str, CommitEntry]] = []
    for project in projects[:_PROJECTS_SEARCHED]:
        row = _row_of(project, query)
        if row is not None:
            matches.append((project, row))
    # a fork may have measured the same commit
    if len(matches) != 1:
        return None
    return matches[0]


def row_choices(row: CommitEntry) -> dict[str, str]:
    """Return the parameters of an address that name a row."""
    return {"commit": row.commit.sha, "verdict": str(row.verdict)}


def _row_of(project: str, query: Mapping[str, str]) -> CommitEntry | None:
    triaged = data.ask(questions.list_triaged, project)
    return named_row(rows_by_commit(triaged), query)


def named_row(rows: Iterable[CommitEntry], query: Mapping[str, str]) -> CommitEntry | None:
    """Return the row that the parameters of an address name; of a commit with several the one
    that got slower, then the one that got faster.
    """
    named = [
        row
        for row in rows
        if row.is_named(
            regression_id=query.get("regression"),
            sha=query.get("commit"),
            verdict=query.get("verdict"),
        )
    ]
    return min(named, key=_place_of, default=None)


def _place_of(row: CommitEntry) -> int:
    return _FIRST_VERDICTS.get(row.verdict, len(_FIRST_VERDICTS))
