"""A list of commits in a file, for results whose repository is not available."""

from dataclasses import dataclass, replace
from pathlib import Path

from roofwatch.importers import (
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    read_bytes,
    seconds_of,
)


@dataclass(frozen=True)
class CommitList:
    """Commits with full SHA, time and subject."""

    path: Path
    commits: tuple[ImportedCommit, ...]

    def complete(self, run: ImportedRun) -> ImportedRun:
        """Replace short SHAs by the listed commits.

        Raises:
            FileImportError: a SHA is not listed, or several begin with it.
        """
        completed: dict[ImportedCommit, ImportedCommit] = {}
        rows: list[ImportedRow] = []
        for row in run.rows:
            commit = row.commit or run.commit
            if commit not in completed:
                completed[commit] = self._find(commit)
            rows.append(replace(row, commit=completed[commit]))
        return replace(run, rows=tuple(rows))

    def _find(self, commit: ImportedCommit) -> ImportedCommit:
        sha = commit.sha or ""
        matching = [listed for listed in self.commits if sha and (listed.sha or "").startswith(sha)]
        if len(matching) != 1:
            raise FileImportError(
                f"{self.path}: {len(matching)} commits begin with {sha!r}; list the full SHA of "
                f"each measured commit once"
            )
        return replace(
            commit,
            sha=matching[0].sha,
            committed_at=matching[0].committed_at,
            subject=matching[0].subject,
            position=matching[0].position,
        )


def read_commit_list(path: Path) -> CommitList:
    """Read lines of SHA, date and subject with tabs between, as written by
    `git log --first-parent --format=%H%x09%cI%x09%s`.

    Raises:
        FileImportError: a line has another form.
    """
    commits = []
    for line in read_bytes(path).decode("utf-8-sig").splitlines():
        sha, _, rest = line.partition("\t")
        date, _, subject = rest.partition("\t")
        committed_at = seconds_of(date)
        if committed_at is None:
            raise FileImportError(f"{path}: {line[:80]!r} is not a SHA, a date and a subject")
        commits.append(ImportedCommit(sha=sha, committed_at=committed_at, subject=subject))
    # git lists the newest commit first
    oldest_first = list(reversed(commits))
    numbered = [
        replace(commit, position=number) for number, commit in enumerate(oldest_first, start=1)
    ]
    return CommitList(path, tuple(numbered))
