"""Which row of the ledger an address names."""

from __future__ import annotations

from roofwatch.ci.history.commit_rows import rows_by_commit
from roofwatch.dashboard.linked_row import named_row
from roofwatch.model.verdict import Verdict
from tests.builders import sha_of
from tests.ci.history.test_commit_rows import slower, triaged

ROWS = rows_by_commit(
    [triaged(slower(3, verdict=Verdict.INCONCLUSIVE)), triaged(slower(3)), triaged(slower(5))]
)


def named(**query: str) -> tuple[str, Verdict] | None:
    row = named_row(ROWS, query)
    return None if row is None else (row.commit.sha, row.verdict)


def test_a_short_sha_names_what_got_slower_at_its_commit() -> None:
    assert named(commit=sha_of(3)[:8]) == (sha_of(3), Verdict.REGRESSED)
    assert named(commit=sha_of(3)[:8], verdict="inconclusive") == (
        sha_of(3),
        Verdict.INCONCLUSIVE,
    )


def test_fewer_digits_than_git_writes_name_no_commit() -> None:
    assert named(commit=sha_of(3)[:6]) is None
