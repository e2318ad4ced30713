"""The commits of a suite's repository, the suite at each of them, and what its kernels are built from there."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from roofwatch.arguments import suite_source
from roofwatch.collector.compile.cache import digest_of
from roofwatch.collector.compile.static_run import compile_suite
from roofwatch.collector.compile.targets import TargetError, parse_target
from roofwatch.collector.errors import GitError, SuiteError
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.record.machine import Environment, Outcome
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource, own_suite_at_revision, suite_at_revision
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import DescribeEnvironment, DescribeSources, SuiteInfo, machine_error
from roofwatch.collector.workers.worker import Worker
from roofwatch.db.values import CommitRef
from roofwatch.measuring.affected import may_be_read_by_all


def repository_of(path: Path | None) -> Path:
    """The repository that a suite lies in.

    Args:
        path: Of the suite in the user's work tree; None for the suite that comes with roofwatch.

    Raises:
        SuiteError: it lies in none.
    """
    there = Path(__file__) if path is None else path.resolve()
    repository = find_repository(there)
    if repository is None:
        raise SuiteError(f"{there}: lies in no git repository, so it has no history")
    return repository


def suite_then(path: Path | None, sha: str, folder: Path) -> AbstractContextManager[SuiteAt]:
    """A suite as it was at a commit, checked out into a folder for as long as it is needed.

    Raises:
        SuiteError: the commit does not have it.
    """
    if path is None:
        return own_suite_at_revision(sha, folder)
    return suite_at_revision(path, sha, folder)


def commits_between(path: Path | None, good: str, bad: str) -> list[str]:
    """The commits after one, up to another, along first parents, the oldest first.

    Raises:
        GitError: there is no such commit.
    """
    repository = repository_of(path)
    listed = run_git(repository, "rev-list", "--first-parent", "--reverse", "--end-of-options", f"{good}..{bad}", "--")
    return listed.split()


def commit_refs(path: Path | None, good: str, shas: Sequence[str]) -> list[CommitRef]:
    """The commits that `commits_between` found after one.

    Raises:
        GitError: one of them is gone.
    """
    repository = repository_of(path)
    count = int(run_git(repository, "rev-list", "--first-parent", "--count", "--end-of-options", good, "--"))
    form = "--format=%H%x00%cI%x00%an%x00%s"
    listed = run_git(repository, "log", "--no-walk=unsorted", form, "--end-of-options", *shas, "--")
    refs = []
    for place, line in enumerate(listed.rstrip("\n").split("\n"), start=count + 1):
        sha, committed_at, author, subject = line.split("\0")
        refs.append(CommitRef(place, sha, author[:500], subject[:1_000], datetime.fromisoformat(committed_at)))
    return refs


def sha_of(path: Path | None, revision: str) -> str:
    """The full sha of a revision.

    Raises:
        GitError: there is no such commit.
    """
    return run_git(
        repository_of(path), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    ).strip()


_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Surveyed:
    """A suite at one commit."""

    info: SuiteInfo | None
    """None where it cannot be loaded."""
    sources: dict[str, str]
    """By kernel, a digest of all that it may use."""
    trouble: str = ""
    """Why it cannot be loaded."""


def survey(path: Path | None, shas: Sequence[str], fork_server: ForkServer, on_progress: OnProgress) -> list[Surveyed]:
    """Load a suite as it was at each of some commits; not again where a commit changes comments and documents alone.

    Args:
        path: Of the suite in the user's work tree; None for the suite that comes with roofwatch.
        shas: Of the commits, each after its parent.
        fork_server: Forks the workers that load it.
        on_progress: Called after every commit.
    """
    found: list[Surveyed] = []
    for number, sha in enumerate(shas):
        if number and not _changes_code(path, shas[number - 1], sha):
            found.append(found[-1])
        else:
            found.append(_surveyed(path, sha, fork_server))
        on_progress(Progress(number + 1, len(shas), f"looked at {sha[:12]}"))
    return found


def _surveyed(path: Path | None, sha: str, fork_server: ForkServer) -> Surveyed:
    with tempfile.TemporaryDirectory(prefix="roofwatch-survey-") as folder:
        try:
            with suite_then(path, sha, Path(folder) / "suite") as suite:
                return _loaded(path, sha, suite.source, fork_server)
        except SuiteError as error:
            return Surveyed(None, {}, str(error).replace(f"{folder}/suite/", ""))


def machine_code_digest(path: Path | None, sha: str, plan: RunPlan) -> str | None:
    """A digest of what a suite compiles to at a commit, and how it is launched; None where something does not compile,
    or nothing does.

    Args:
        path: Of the suite in the user's work tree; None for the suite that comes with roofwatch.
        sha: Of the commit.
        plan: What to compile, and for which target.
    """
    with tempfile.TemporaryDirectory(prefix="roofwatch-survey-") as folder:
        try:
            with suite_then(path, sha, Path(folder) / "suite") as suite:
                facts = compile_suite(suite.source, plan)
        except SuiteError:
            return None
    if not facts or any(fact.outcome is not Outcome.OK for fact in facts):
        return None
    return digest_of(
        sorted((each.case_id, each.implementation, each.function, each.target, str(each.code_hash)) for each in facts),
        sorted(str(sorted(each.configuration.items())) for each in facts),
    )


def _loaded(path: Path | None, sha: str, source: SuiteSource, fork_server: ForkServer) -> Surveyed:
    with Worker(fork_server, source, device="cpu", is_watched=True) as worker:
        info = worker.start()
        found = worker.request(DescribeSources(), timeout_s=_TIMEOUT_S).suite_sources
    if found is None:
        return Surveyed(info, {})
    beside = digest_of(_files_beside(path, sha, may_be_read_by_all))
    return Surveyed(info, {kernel: digest_of(code, beside) for kernel, code in found.codes.items()})


def _changes_code(path: Path | None, before: str, sha: str) -> bool:
    """Whether a commit changes more than documents, and comments and the layout of Python."""
    repository = repository_of(path)
    listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--end-of-options", before, sha, "--")
    for file in filter(None, listed.split("\0")):
        if may_be_read_by_all(file):
            return True
        if file.endswith(".py") and _parsed(repository, before, file) != _parsed(repository, sha, file):
            return True
    return False


def _parsed(repository: Path, sha: str, file: str) -> str:
    """What Python makes of a file; its text where it makes nothing."""
    try:
        text = run_git(repository, "cat-file", "blob", f"{sha}:{file}")
    except (GitError, UnicodeDecodeError):
        return f"not to be read at {sha}"
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return text


def _files_beside(path: Path | None, sha: str, counts: Callable[[str], bool]) -> Sequence[str]:
    """Each file of the commit that counts, with the hash of its content."""
    listed = run_git(repository_of(path), "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", sha)
    return [line for line in listed.split("\0") if line and counts(line.partition("\t")[2])]


_DESCRIBE_TIMEOUT_S = 120.0


def describe_machine(
    path: Path | None, device: str | None, thread_count: int | None, fork_server: ForkServer
) -> Environment:
    """The environment that a run of a suite would have: threads of a CPU are part of a runner class.

    Raises:
        CollectorError: the suite cannot be loaded, or the machine not described.
    """
    with Worker(fork_server, suite_source(path), device=device, thread_count=thread_count) as worker:
        worker.start()
        reply = worker.request(DescribeEnvironment(), timeout_s=_DESCRIBE_TIMEOUT_S)
    if reply.environment is None:
        raise machine_error("this machine cannot be described", reply.failure, device or "cpu")
    return reply.environment


def own_target(environment: Environment) -> str | None:
    """What to compile for to know what runs there; None on a CPU, for which Triton compiles nothing."""
    if not environment.compute_capability:
        return None
    target = f"sm_{environment.compute_capability.replace('.', '')}"
    try:
        parse_target(target)
    except TargetError:
        return None
    return target
