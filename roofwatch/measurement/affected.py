"""Finds the kernels that a change can affect; `--affected` skips all others."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from roofwatch.arguments import suite_at_commit, suite_source
from roofwatch.collector.errors import CollectorError, GitError, SuiteError
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.record.record import SAME_SOURCES, SkippedKernel
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import DescribeSources, WorkerSettings
from roofwatch.collector.workers.worker import Worker
from roofwatch.terminal import print_error

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Affected:
    """Names of affected and of skipped kernels."""

    kernels: tuple[str, ...]
    skipped: tuple[str, ...]
    shared_files: tuple[str, ...] = ()
    """Changed files that affect every kernel."""

    @property
    def summary(self) -> str:
        if self.shared_files:
            more = f" and {len(self.shared_files) - 3} more" if len(self.shared_files) > 3 else ""
            return f"every kernel is affected: {', '.join(self.shared_files[:3])}{more} changed"
        return f"skipped, source unchanged: {', '.join(self.skipped)}" if self.skipped else "every kernel is affected"


def only_affected(
    path: Path | None, base: str, head: str | None, plan: RunPlan, patterns: Sequence[str] | None
) -> tuple[RunPlan, tuple[SkippedKernel, ...]] | None:
    """Restrict a plan to the affected kernels and print what is skipped.

    Args:
        path: Benchmark file or folder; None for the bundled suite.
        base: Revision.
        head: Revision; None for the work tree.
        plan: The plan without the restriction.
        patterns: Kernels that the user selected; None for all.

    Returns:
        The restricted plan, and the skipped kernels; None if nothing is left to measure.
    """
    found = find_affected(path, base, head)
    print_error(found.summary)
    names = [name for name in found.kernels if not patterns or any(fnmatchcase(name, each) for each in patterns)]
    if not names:
        print_error("nothing to measure: the change affects no selected kernel")
        return None
    skipped = tuple(SkippedKernel(kernel=name, reason=SAME_SOURCES) for name in found.skipped)
    return replace(plan, kernels=tuple(names)), skipped


def find_affected(path: Path | None, base: str, head: str | None) -> Affected:
    """Load a suite at two revisions and compare the sources of each kernel.

    A kernel is affected if the code of a module that it may use differs; comments and docstrings do not count. Changed
    files that are neither Python nor documentation affect every kernel.

    Args:
        path: Benchmark file or folder in a git repository; None for the bundled suite.
        base: Revision.
        head: Revision; None for the work tree.

    Raises:
        GitError: a revision is unknown.
        CollectorError: the suite of the head cannot be loaded.
    """
    shared_files = tuple(sorted(file for file in _changed_files(path, base, head) if affects_every_kernel(file)))
    with ForkServer() as fork_server:
        new = _sources(fork_server, path, head)
        try:
            old = _sources(fork_server, path, base)
        except SuiteError:  # missing or broken there, so every kernel is new
            old = {}
    names = [*new, *(name for name in old if name not in new)]  # a removed kernel is measured at the base
    skipped = [name for name in names if not shared_files and old.get(name) == new.get(name)]
    return Affected(tuple(name for name in names if name not in skipped), tuple(skipped), shared_files)


def affects_every_kernel(file: str) -> bool:
    """Return whether any kernel may read a file of the repository at run time."""
    path = PurePosixPath(file)
    return path.suffix not in {".py", ".md", ".rst"} and path.parts[0] != ".github" and "__pycache__" not in path.parts


def _changed_files(path: Path | None, base: str, head: str | None) -> list[str]:
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    if repository is None:
        raise GitError(f"{path}: lies in no git repository, so it has no revision {base!r}")
    revisions = [base] if head is None else [base, head]
    listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--end-of-options", *revisions, "--")
    if head is None:
        listed += run_git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    return [file for file in listed.split("\0") if file]


def _sources(fork_server: ForkServer, path: Path | None, revision: str | None) -> dict[str, str]:
    with ExitStack() as stack:
        source = suite_source(path) if revision is None else stack.enter_context(suite_at_commit(path, revision)).source
        worker = stack.enter_context(Worker(fork_server, WorkerSettings(source=source, device="cpu")))
        worker.start()
        sources = worker.request(DescribeSources(), timeout_s=_TIMEOUT_S).source_digests
    if sources is None:
        raise CollectorError("the source files of the suite cannot be read; omit --affected")
    return sources
