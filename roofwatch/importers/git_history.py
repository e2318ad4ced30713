"""Every version of a file on a branch, such as one that a continuous job rewrites."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from roofwatch.collector.git import read_file_at, run_git
from roofwatch.importers import FileImportError
from roofwatch.importers.presets import PRESETS
from roofwatch.model.errors import GitError

_MAX_VERSIONS = 5_000


@contextmanager
def versions_of(repository: Path, place: str) -> Iterator[list[Path]]:
    """Write the versions of `BRANCH:PATH` into a temporary folder, the oldest first.

    Further files that a preset reads, such as `meta.json`, are of the same commit.

    Raises:
        FileImportError: the branch has no such file.
        GitError: there is no such branch.
    """
    branch, _, path = place.partition(":")
    if not branch or not path:
        raise FileImportError(f"--git-history {place}: write BRANCH:PATH")
    listed = run_git(
        repository,
        "log",
        "--format=%H",
        f"--max-count={_MAX_VERSIONS}",
        "--end-of-options",
        branch,
        "--",
        path,
    )
    shas = list(reversed(listed.split()))
    name = PurePosixPath(path)
    beside = {preset.columns.beside for preset in PRESETS.values()} - {"", name.name}
    with tempfile.TemporaryDirectory() as folder:
        written: list[Path] = []
        for number, sha in enumerate(shas):
            content = _read(repository, sha, path)
            if content is None:  # this commit deleted it
                continue
            # not named by the commit: it is not the measured one
            version = Path(folder) / f"version-{number:05}"
            version.mkdir()
            (version / name.name).write_bytes(content)
            for other in beside:
                further = _read(repository, sha, str(name.parent / other))
                if further is not None:
                    (version / other).write_bytes(further)
            written.append(version / name.name)
        if not written:
            raise FileImportError(f"{branch}: has no file {path}")
        yield written


def _read(repository: Path, sha: str, path: str) -> bytes | None:
    try:
        return read_file_at(repository, sha, path)
    except GitError:
        return None
