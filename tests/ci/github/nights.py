"""Nights of the main branch after a pull request was merged: what the job measured of its two commits, told again for
the commits before and after, as a runner that measures every night would send it.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from roofwatch.collector.git import read_commit, run_git
from roofwatch.collector.record.record import RunRecord, Side


def write_nights(repository: Path, measured: Path, folder: Path, *, base: str, branch: str) -> list[Path]:
    """A record for each commit of a branch, the oldest first.

    Args:
        repository: Work tree of the branch; another commit is checked out afterwards.
        measured: The folder of the pair's records.
        folder: Where those of the nights go.
        base: Sha up to which the commits are as the base was measured; later ones are as the head.
        branch: Its name.
    """
    sides = {record.pairing.side: record for record in map(RunRecord.read, measured.iterdir()) if record.pairing}
    shas = run_git(repository, "rev-list", "--reverse", branch).split()
    files = []
    for number, sha in enumerate(shas):
        run_git(repository, "checkout", "--quiet", "--detach", sha)
        record = sides[Side.BASE if number <= shas.index(base) else Side.HEAD]
        began = datetime.now(UTC) - timedelta(days=len(shas) - number)
        changed = {
            "run_id": uuid.uuid4(),
            "pairing": None,
            "commit": read_commit(repository).model_copy(update={"branch": branch}),
            "started_at": began,
            "finished_at": began + timedelta(minutes=5),
        }
        files.append(folder / f"night-{number}.json")
        record.model_copy(update=changed).write(files[-1])
    return files
