"""The result of a job: what the command printed, and the files that it wrote."""

import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from roofwatch.collector.git import run_git
from roofwatch.model.errors import GitError, SpoolError
from roofwatch.model.files import atomic_write
from roofwatch.model.queue import MAX_CONTENT_BYTES, REPORT_FILE, WatchReport

_OUTPUT = "output"
_FILES = "files/"
_LEFT_OUT_FOLDERS = frozenset({".git", "__pycache__", ".venv", "build", "node_modules"})
# the other half is for the output of the command
_MAX_FILES_BYTES = MAX_CONTENT_BYTES // 2
_MAX_UNPACKED_BYTES = 4 * MAX_CONTENT_BYTES
_MAX_FILES = 2_000
_MAX_REPORT_BYTES = 2**16
FileStates = Mapping[str, tuple[int, int]]


def file_states(tree: Path) -> FileStates:
    """Time of change and size of each regular file that a command may write."""
    states: dict[str, tuple[int, int]] = {}
    for folder, folders, names in os.walk(tree):
        folders[:] = [name for name in folders if name not in _LEFT_OUT_FOLDERS]
        for name in names:
            path = Path(folder, name)
            # a link could name any file of the runner
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            relative = path.relative_to(tree).as_posix()
            states[relative] = (status.st_mtime_ns, status.st_size)
    return states


def pack_result(tree: Path, earlier: FileStates, output: bytes) -> tuple[bytes, list[str]]:
    """Pack the output, and the files that differ from earlier states.

    Returns:
        A gzipped tar file, and the names of files that are too many or too large for it.
    """
    packed = io.BytesIO()
    left_out: list[str] = []
    size_bytes = 0
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        _add(archive, _OUTPUT, output)
        written = sorted(file_states(tree).items() - earlier.items())
        for position, (name, (_, file_bytes)) in enumerate(written):
            # a later, smaller file may still fit
            if position >= _MAX_FILES or size_bytes + file_bytes > _MAX_FILES_BYTES:
                left_out.append(name)
                continue
            size_bytes += file_bytes
            _add(archive, f"{_FILES}{name}", (tree / name).read_bytes())
    return packed.getvalue(), left_out


def find_report(tree: Path, earlier: FileStates) -> WatchReport | None:
    """Read the report that a watch wrote, if it did."""
    for name, _ in file_states(tree).items() - earlier.items():
        if f"/{name}".endswith(f"/{REPORT_FILE}"):
            return _read_report(tree / name)
    return None


def _read_report(file: Path) -> WatchReport | None:
    # a job writes any file that it likes
    if file.stat().st_size > _MAX_REPORT_BYTES:
        return None
    try:
        return WatchReport.model_validate_json(file.read_bytes())
    except ValidationError:
        return None


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


@dataclass(frozen=True)
class JobResult:
    """What a runner returned."""

    output: bytes
    """Standard output of the command."""
    files: Mapping[str, bytes]
    """By path in the repository."""


def read_result(content: bytes) -> JobResult:
    """Parse what a runner returned.

    Raises:
        SpoolError: it is damaged, too large, or names a file outside the repository.
    """
    output = b""
    files: dict[str, bytes] = {}
    unpacked_bytes = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                unpacked_bytes += member.size
                # a small archive can unpack to any size
                if unpacked_bytes > _MAX_UNPACKED_BYTES or len(files) > _MAX_FILES:
                    raise SpoolError("the result of the runner is too large")
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is None:
                    raise SpoolError(f"the result of the runner has {member.name}, no plain file")
                if member.name == _OUTPUT:
                    output = stream.read()
                else:
                    files[_inside(member.name)] = stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SpoolError(f"the result of the runner is damaged: {error}") from None
    return JobResult(output, files)


def _inside(name: str) -> str:
    """The path in the repository, checked: a runner is another machine."""
    path = PurePosixPath(name.removeprefix(_FILES))
    is_inside = name.startswith(_FILES) and not path.is_absolute() and ".." not in path.parts
    if not is_inside or path.parts[:1] in {(), (".git",)} or ".git" in path.parts:
        raise SpoolError(f"the result of the runner names {name}, which is outside the repository")
    return str(path)


def write_files(result: JobResult, repository: Path) -> list[str]:
    """Write the files of a result, except those that git tracks; return what was refused.

    A command of roofwatch writes no tracked file, so a runner has no reason to send one.
    """
    refused: list[str] = []
    for name, content in result.files.items():
        path = repository / name
        # a folder of the repository may be a link to another place
        leads_out = not path.parent.resolve().is_relative_to(repository.resolve())
        if leads_out or path.is_symlink() or _is_tracked(repository, name):
            refused.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    return refused


def _is_tracked(repository: Path, name: str) -> bool:
    try:
        run_git(repository, "ls-files", "--error-unmatch", "--", name)
    except GitError:
        return False
    return True
