"""Open a suite at two revisions, with the head's benchmark files where they fit, and find the base of a branch."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from roofwatch.arguments import suite_at, suite_at_commit
from roofwatch.ci.report.not_measured import FILE_NAME, NotMeasured
from roofwatch.collector.errors import CollectorError, GitError, SideError, SuiteError
from roofwatch.collector.git import find_repository, merge_base, read_commit, run_git
from roofwatch.collector.redaction import Redaction
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker import Worker
from roofwatch.terminal import json_text, print_error, write_text

AUTO = "auto"
"""As a base: where the branch left its target branch."""


@contextmanager
def open_suite(
    path: Path | None, revision: str, fork_server: ForkServer, benchmarks: Path | None = None
) -> Iterator[SuiteAt]:
    """Check out a suite at a commit, with the head's benchmark files if the suite can be loaded with them.

    Args:
        path: Benchmark file or folder; None for the bundled suite.
        revision: Any git revision.
        fork_server: Forks a worker that tries to load it.
        benchmarks: The suite at the head; None for the commit's own files.

    Raises:
        GitError: there is no such revision.
        SuiteError: the commit has no such file, and the head's cannot be loaded there.
    """
    if benchmarks is not None:
        with suite_at_commit(path, revision, benchmarks) as suite:
            try:
                if suite.is_replaced:
                    load_suite_at(suite, fork_server)
            except SuiteError as error:
                if not suite.has_own:
                    raise
                print_error(f"{revision}: measured with its own benchmark file, not the head's: {error}")
            else:
                yield suite
                return
    with suite_at_commit(path, revision) as suite:
        yield suite


def load_suite_at(suite: SuiteAt, fork_server: ForkServer) -> None:
    """Load a suite in a worker.

    Raises:
        SuiteError: it cannot be loaded; file names are relative to the repository.
    """
    try:
        with Worker(fork_server, WorkerSettings(source=suite.source, device="cpu")) as worker:
            worker.start()
    except SuiteError as error:
        roots = suite.source.import_roots
        raise SuiteError(str(error).replace(f"{roots[-1]}/", "") if roots else str(error)) from None


@contextmanager
def open_pair(
    path: Path | None, base: str, head: str | None, fork_server: ForkServer, *, uses_head: bool
) -> Iterator[tuple[SuiteAt, SuiteAt]]:
    """Open a suite at base and head, and load both.

    Args:
        path: Benchmark file or folder; None for the bundled suite.
        base: Revision.
        head: Revision; None for the work tree.
        fork_server: Forks the workers that load the suites.
        uses_head: Use the head's benchmark files at the base.

    Raises:
        GitError: there is no such revision.
        SideError: the suite of a side does not exist or cannot be loaded; of the base if both cannot.
    """
    with ExitStack() as stack:
        failure, benchmarks = None, None
        try:
            new = suite_at(path, None) if head is None else stack.enter_context(suite_at_commit(path, head))
            load_suite_at(new, fork_server)
            benchmarks = new.source.path if uses_head else None
        except SuiteError as error:
            failure = SideError("head", error)
        try:
            old = stack.enter_context(open_suite(path, base, fork_server, benchmarks))
        except SuiteError as error:  # without the suite at the base, nothing else can be at fault
            raise failure or SideError("base", error) from None
        try:
            load_suite_at(old, fork_server)
        except SuiteError as error:
            raise SideError("base", error) from None
        if failure is not None:
            raise failure
        commit = old.commit.model_copy(update={"branch": os.environ.get("GITHUB_BASE_REF") or None})
        yield replace(old, commit=commit), new


@contextmanager
def noting_failure(path: Path | None, head: str | None, folder: Path) -> Iterator[None]:
    """Write why nothing was measured into the folder of records, for `roofwatch post`; delete an earlier note first."""
    (folder / FILE_NAME).unlink(missing_ok=True)
    try:
        yield
    except CollectorError as error:
        with suppress(GitError):
            note_not_measured(path, head, folder, error)
        raise


def note_not_measured(path: Path | None, head: str | None, folder: Path, error: CollectorError | None = None) -> None:
    """Write that nothing was measured, because of an error or because the change touches no kernel."""
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    if repository is not None:
        side, reason = (error.side, error.reason) if isinstance(error, SideError) else (None, str(error or ""))
        text = Redaction.of_this_machine(project=repository).text(reason)
        note = NotMeasured.of(read_commit(repository, head or "HEAD"), text, side)
        write_text(folder / FILE_NAME, json_text(note))


# --- the base of a branch


def find_base(path: Path | None, base: str, head: str | None, variables: Mapping[str, str]) -> str:
    """Return a base revision; for `auto` the commit at which the head left its target branch.

    The target is that of the pull request or merge queue in a job of GitHub Actions, else origin's default branch.

    Args:
        path: Benchmark file or folder; None for the bundled suite.
        base: Revision, or `auto`.
        head: Revision; None for the work tree.
        variables: The environment.

    Raises:
        GitError: the target branch is unknown, or the head is on it.
    """
    if base != AUTO:
        return base
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    if repository is None:
        raise GitError(f"{path}: lies in no git repository, so it has no base")
    target = _target(repository, variables)
    found = merge_base(repository, target, head or run_git(repository, "rev-parse", "HEAD").strip())
    tip = run_git(repository, "rev-parse", "--verify", "--end-of-options", f"{head or 'HEAD'}^{{commit}}").strip()
    is_changed = head is None and run_git(repository, "status", "--porcelain").strip()
    if found == tip and not is_changed:
        raise GitError(f"{tip[:12]} is part of {target}, so it has no base; name one, such as --base HEAD~1")
    return found


def _target(repository: Path, variables: Mapping[str, str]) -> str:
    """Return a branch of origin, or the commit that the event of a merge queue names."""
    if branch := variables.get("GITHUB_BASE_REF"):
        return branch
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(Path(variables["GITHUB_EVENT_PATH"]).read_text())["merge_group"]["base_sha"])
    with suppress(GitError):
        return (
            run_git(repository, "symbolic-ref", "--short", "refs/remotes/origin/HEAD").strip().removeprefix("origin/")
        )
    return "main"
