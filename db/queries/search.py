"""Search of a project for kernels, cases and commits."""

import re

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.queries.question import Limit, Word
from roofwatch.db.queries.results import FoundCommit, SearchResults
from roofwatch.db.queries.run_filter import project_id
from roofwatch.db.queries.series import COMMIT_COLUMNS
from roofwatch.db.schema.runs import CaseRow, CommitRow, RunRow
from roofwatch.db.values import CommitRef


def search(session: Session, project: Word, text: Word, *, limit: Limit = 10) -> SearchResults:
    """Find measured kernels, cases and commits, at most `limit` of each, commits newest first.

    All words of the text must occur in a name or in a commit's subject. A commit is also found by the first digits of
    its sha, and by the number of its pull request, which is in its subject.
    """
    words = text.split()
    if not words:
        return SearchResults((), (), ())
    wanted = project_id(project)
    kernels = select(CaseRow.kernel).where(*(CaseRow.kernel.icontains(word, autoescape=True) for word in words))
    cases = select(CaseRow.name).where(*(CaseRow.name.icontains(word, autoescape=True) for word in words))
    along = (CommitRow.first_parent_count.desc(), CommitRow.sha)
    commits = (
        select(*COMMIT_COLUMNS, RunRow.run_id)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(RunRow.project_id == wanted, _is_commit(words))
        .order_by(*along, RunRow.started_at.desc())
        .ext(distinct_on(CommitRow.first_parent_count, CommitRow.sha))
        .limit(limit)
    )
    of_project = CaseRow.project_id == wanted
    return SearchResults(
        kernels=tuple(session.scalars(kernels.where(of_project).distinct().order_by(CaseRow.kernel).limit(limit))),
        cases=tuple(session.scalars(cases.where(of_project).order_by(CaseRow.name).limit(limit))),
        commits=tuple(FoundCommit(CommitRef(*row), str(run_id)) for *row, run_id in session.execute(commits)),
    )


def _is_commit(words: list[str]) -> ColumnElement[bool]:
    subject, first = CommitRow.subject, words[0].lower()
    by_subject = and_(*(subject.icontains(word, autoescape=True) for word in words))
    if len(words) > 1:
        return by_subject
    if re.fullmatch(r"[#!]?[0-9]+", first):
        by_subject = subject.regexp_match(rf"[#!]{first.lstrip('#!')}\M")
    return or_(by_subject, CommitRow.sha.startswith(first, autoescape=True))
