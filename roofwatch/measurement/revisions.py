"""A suite at two revisions: open it, find the base of a branch, and find the kernels that a change
can affect.

A path of None is the bundled suite, a head of None the work tree.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from roofwatch.ci.messages import listed
from roofwatch.ci.report.not_measured import FILE_NAME, NotMeasured
from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.git import merge_base, read_commit, resolve_commit, run_git
from roofwatch.collector.redaction import Redaction
from roofwatch.collector.runs.run_plan import RunPlan, matches
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.configuration.arguments import repository_of, suite_at
from roofwatch.console.terminal import json_text, print_error, write_text
from roofwatch.model.errors import BuildError, CollectorError, GitError, SideError, SuiteError
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import DescribeSources, SuiteInfo, WorkerSettings
from roofwatch.reporting.records import RECORD_FOLDER

AUTO = "auto"
"""As a base: where the branch left its target branch."""


@contextmanager
def suite_of(path: Path | None, revision: str | None, project: str | None) -> Iterator[SuiteAt]:
    """Open the suite of the work tree, or check it out at a revision.

    Raises:
        GitError: there is no such revision.
        SuiteError: the suite does not exist, or its code cannot be built.
    """
    if revision is None:
        yield suite_at(path, project)
        return
    with suite_at_revision(path, revision, project=project) as suite:
        yield suite


@contextmanager
def open_suite(
    path: Path | None,
    revision: str,
    fork_server: ForkServer,
    benchmarks: Path | None = None,
) -> Iterator[SuiteAt]:
    """Check out a suite at a commit, with the benchmark files of the head if given and if the suite
    loads with them.

    Raises:
        GitError: there is no such revision.
        SuiteError: the commit has no such file, and the head's cannot be loaded there.
    """
    if benchmarks is not None:
        with suite_at_revision(path, revision, benchmarks=benchmarks) as suite:
            # The base may lack what the head's benchmark imports.
            try:
                if suite.is_replaced:
                    load_suite_at(suite, fork_server)
            except SuiteError as error:
                if not suite.has_own:
                    raise
                print_error(
                    f"{revision}: measured with its own benchmark file, not the head's: {error}"
                )
            else:
                declared = None
                if suite.is_replaced:
                    declared = _declared(path, revision, fork_server)
                yield replace(suite, declared=declared)
                return
    with suite_at_revision(path, revision) as suite:
        yield suite


def _declared(
    path: Path | None,
    revision: str,
    fork_server: ForkServer,
) -> frozenset[tuple[str, str]]:
    """Return the kernels and implementations that a commit's own benchmark files declare; none if
    it has no such file, or if it cannot be loaded.
    """
    try:
        with suite_at_revision(path, revision) as suite:
            info = load_suite_at(suite, fork_server)
    except SuiteError:
        return frozenset()
    return frozenset(
        (kernel.name, implementation.name)
        for kernel in info.kernels
        for implementation in kernel.implementations
    )


@contextmanager
def _suite_at_head(path: Path | None, head: str | None) -> Iterator[SuiteAt]:
    """Check out a suite at the head; None is the work tree."""
    if head is None:
        yield suite_at(path, None)
        return
    with suite_at_revision(path, head) as suite:
        yield suite


def load_suite_at(suite: SuiteAt, fork_server: ForkServer) -> SuiteInfo:
    """Load a suite in a worker.

    Raises:
        SuiteError: it cannot be loaded; file names are relative to the repository.
    """
    try:
        with Worker(fork_server, WorkerSettings(source=suite.source, device="cpu")) as worker:
            return worker.start()
    except SuiteError as error:
        message = str(error)
        if suite.source.root is not None:
            # The checkout lies in a temporary folder that is gone when somebody reads this.
            message = message.replace(f"{suite.source.root}/", "")
        raise SuiteError(message) from None


@contextmanager
def open_pair(
    path: Path | None,
    base: str,
    head: str | None,
    fork_server: ForkServer,
    *,
    uses_head: bool,
) -> Iterator[tuple[SuiteAt, SuiteAt]]:
    """Open a suite at base and head, and load both; `uses_head` uses the head's benchmark files at
    the base.

    Raises:
        GitError: there is no such revision.
        SideError: the suite of a side does not exist or cannot be loaded; of the base if both
        cannot.
    """
    with ExitStack() as stack:
        failure = None
        benchmarks = None
        try:
            new = stack.enter_context(_suite_at_head(path, head))
            load_suite_at(new, fork_server)
            benchmarks = new.source.path if uses_head else None
        except SuiteError as error:
            failure = SideError("head", error)
        try:
            old = stack.enter_context(open_suite(path, base, fork_server, benchmarks))
        # A build that fails at the base says nothing about the head.
        except BuildError as error:
            raise SideError("base", error) from None
        except SuiteError as error:  # without the suite at the base, nothing else can be at fault
            raise failure or SideError("base", error) from None
        try:
            load_suite_at(old, fork_server)
        except SuiteError as error:
            raise SideError("base", error) from None
        if failure is not None:
            raise failure
        # The comment goes to pull requests into this branch.
        commit = old.commit.model_copy(update={"branch": os.environ.get("GITHUB_BASE_REF") or None})
        yield replace(old, commit=commit), new


@contextmanager
def noting_failure(path: Path | None, head: str | None, folder: Path) -> Iterator[None]:
    """Write why nothing was measured into the folder of records, for `roofwatch post`; delete an
    earlier note first.
    """
    (folder / FILE_NAME).unlink(missing_ok=True)
    try:
        yield
    except CollectorError as error:
        # Without a commit there is no pull request that the note could be about.
        with suppress(GitError):
            note_not_measured(path, head, folder, error)
        raise


def note_not_measured(
    path: Path | None,
    head: str | None,
    folder: Path,
    error: CollectorError | None = None,
) -> None:
    """Write that nothing was measured, because of an error or because the change touches no
    kernel.
    """
    repository = repository_of(path)
    side = None
    reason = str(error or "")
    if isinstance(error, SideError):
        side = error.side
        reason = error.reason
    text = Redaction.of_this_machine(project=repository).text(reason)
    note = NotMeasured.of(read_commit(repository, head or "HEAD"), text, side)
    write_text(folder / FILE_NAME, json_text(note))


# --- the base of a branch


def find_base(
    path: Path | None,
    base: str,
    head: str | None,
    variables: Mapping[str, str],
) -> str:
    """Return a base revision; for `auto` the commit at which the head left its target branch.

    The target is that of the pull request or merge queue in a job of GitHub Actions, else origin's
    default branch.

    Raises:
        GitError: the target branch is unknown, or the head is on it.
    """
    if base != AUTO:
        return base
    repository = repository_of(path)
    target = _target(repository, variables)
    head_sha = head or run_git(repository, "rev-parse", "HEAD").strip()
    base_sha = merge_base(repository, target, head_sha)
    # only now: a shallow checkout may have lacked the head
    tip = resolve_commit(repository, head_sha)
    is_changed = head is None and run_git(repository, "status", "--porcelain").strip()
    if base_sha == tip and not is_changed:
        raise GitError(
            f"{tip[:12]} is part of {target}, so it has no base; name one, such as --base HEAD~1"
        )
    return base_sha


def _target(repository: Path, variables: Mapping[str, str]) -> str:
    """Return a branch of origin, or the commit that the event of a merge queue names."""
    branch = variables.get("GITHUB_BASE_REF")
    if branch:
        return branch
    # A merge queue names the commit that the queue is built on.
    with suppress(OSError, ValueError, KeyError, TypeError):
        event = json.loads(Path(variables["GITHUB_EVENT_PATH"]).read_text())
        return str(event["merge_group"]["base_sha"])
    with suppress(GitError):
        default = run_git(repository, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
        return default.strip().removeprefix("origin/")
    return "main"


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
            return f"every kernel is affected: {listed(self.shared_files)} changed"
        if not self.skipped:
            return "every kernel is affected"
        return f"skipped, source unchanged: {', '.join(self.skipped)}"


def only_affected(
    path: Path | None,
    base: str,
    head: str | None,
    plan: RunPlan,
    patterns: Sequence[str] | None,
) -> tuple[RunPlan, tuple[str, ...]] | None:
    """Restrict a plan to the affected kernels that match a pattern of the user, and print what is
    skipped.

    Returns:
        The restricted plan, and the skipped kernels; None if nothing is left to measure.
    """
    affected = find_affected(path, base, head)
    print_error(affected.summary)
    names = [name for name in affected.kernels if matches(name, patterns or ("*",))]
    if not names:
        print_error("nothing to measure: the change affects no selected kernel")
        return None
    return replace(plan, kernels=tuple(names)), affected.skipped


def find_affected(path: Path | None, base: str, head: str | None) -> Affected:
    """Load a suite at two revisions and compare the sources of each kernel.

    A kernel is affected if the code of a module that it may use differs; comments and docstrings do
    not count. Changed files that are neither Python nor documentation affect every kernel.

    Raises:
        GitError: a revision is unknown.
        CollectorError: the suite of the head cannot be loaded.
    """
    shared_files = changed_shared_files(path, base, head)
    with ForkServer() as fork_server:
        with _suite_at_head(path, head) as suite:
            new = source_digests(suite.source, fork_server)
        if new is None:
            raise CollectorError("the source files of the suite cannot be read; omit --affected")
        try:
            with suite_at_revision(path, base) as suite:
                old = source_digests(suite.source, fork_server) or {}
        except SuiteError:  # missing or broken there, so every kernel is new
            old = {}
    # A removed kernel is measured at the base.
    names = list(new | old)
    skipped: list[str] = []
    if not shared_files:
        skipped = [name for name in names if old.get(name) == new.get(name)]
    kernels = [name for name in names if name not in skipped]
    return Affected(tuple(kernels), tuple(skipped), shared_files)


def has_same_source(path: Path | None, base: str, head: str | None) -> bool:
    """Return whether no file that a kernel may read differs between two revisions.

    Raises:
        GitError: a revision is unknown.
    """
    resolve_commit(repository_of(path), base)
    return not any(
        file.endswith(".py") or affects_every_kernel(file)
        for file in _changed_files(path, base, head)
    )


def changed_shared_files(path: Path | None, base: str, head: str | None) -> tuple[str, ...]:
    """List the files that differ between two revisions and that any kernel may read."""
    changed = _changed_files(path, base, head)
    return tuple(sorted(file for file in changed if affects_every_kernel(file)))


def affects_every_kernel(file: str) -> bool:
    """Return whether any kernel may read a file of the repository at run time."""
    path = PurePosixPath(file)
    is_read_by_git_alone = path.name in {".gitignore", ".gitattributes", ".mailmap"}
    if path.suffix in {".py", ".md", ".rst"} or is_read_by_git_alone:
        return False
    # Workflows start the measurement, and are no part of it.
    return path.parts[0] != ".github" and "__pycache__" not in path.parts


def _may_be_read(repository: Path, file: str) -> bool:
    """Return whether Python code of the repository may open a text file: it names the file, or puts
    names together that end like it. Requirements decide on what is installed.
    """
    path = PurePosixPath(file)
    # Only texts are in doubt: other files are read in ways that names do not show.
    if path.suffix != ".txt" or path.name.startswith(("requirements", "constraints")):
        return True
    name = re.escape(path.stem)
    pattern = rf"({name}|[^[:alnum:]_-])\.txt|{name}[\"']"
    try:
        run_git(repository, "grep", "--untracked", "--quiet", "-E", "-e", pattern, "--", "*.py")
    except GitError:  # no file matches
        return False
    return True


def _changed_files(path: Path | None, base: str, head: str | None) -> list[str]:
    """List the files that differ, without what roofwatch wrote and without text that no kernel
    reads.
    """
    repository = repository_of(path)
    revisions = [base] if head is None else [base, head]
    changed = run_git(
        repository,
        "diff",
        "--name-only",
        "-z",
        "--no-renames",
        "--end-of-options",
        *revisions,
        "--",
    ).split("\0")
    # In the work tree, new files count as well.
    if head is None:
        untracked = run_git(repository, "ls-files", "--others", "--exclude-standard", "-z")
        changed += [
            file for file in untracked.split("\0") if RECORD_FOLDER not in PurePosixPath(file).parts
        ]
    return [file for file in changed if file and _may_be_read(repository, file)]


def source_digests(source: SuiteSource, fork_server: ForkServer) -> dict[str, str] | None:
    """Digest what each kernel of a suite may use; None if its source files cannot be read."""
    with Worker(fork_server, WorkerSettings(source=source, device="cpu")) as worker:
        worker.start()
        return worker.request(DescribeSources(), timeout_s=_TIMEOUT_S).source_digests
