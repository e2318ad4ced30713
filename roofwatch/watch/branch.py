"""The commits of a watched branch, and which of them change the sources of a kernel."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.bisection.commits import find_commit, list_commits, newest_commits
from roofwatch.collector.git import run_git
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.configuration.arguments import repository_of
from roofwatch.console.terminal import print_error
from roofwatch.measurement.revisions import (
    affects_every_kernel,
    changed_shared_files,
    open_suite,
    source_digests,
)
from roofwatch.model.errors import GitError, SuiteError
from roofwatch.model.history import CommitRef

_FOLLOWED_COMMITS = 200
"""Newest commits of the branch that are watched."""


@dataclass
class Branch:
    """A branch of the repository of a suite."""

    path: Path | None
    """Benchmark file or folder; None for the bundled suite."""
    name: str
    commit_range: str | None
    """`A..B`; None for the newest commits."""
    fork_server: ForkServer
    benchmarks: Path | None = None
    """The suite whose benchmark files are used at every commit; None for each its own."""
    carries: bool = True
    """Kernels whose sources did not change since the base of a job are not measured."""
    _digests: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _is_documentation: dict[str, bool] = field(default_factory=dict)

    def fetch(self) -> None:
        """Fetch the branch if it is one of a remote. A remote that is away is asked again later."""
        repository = repository_of(self.path)
        remote, _, name = self.name.partition("/")
        if not name or remote not in run_git(repository, "remote").split():
            return
        try:
            run_git(
                repository,
                "fetch",
                "--quiet",
                "--no-tags",
                remote,
                f"+refs/heads/{name}:refs/remotes/{self.name}",
            )
        except GitError as error:
            print_error(f"{error}; the commits that are known are watched")

    def commits(self) -> tuple[CommitRef, ...]:
        """List the watched commits as they are now, the oldest first.

        Raises:
            GitError: the branch or an end of the range does not exist.
            SuiteError: the range has no commits.
        """
        if self.commit_range is None:
            return newest_commits(self.path, self.name, _FOLLOWED_COMMITS)
        first, dots, last = self.commit_range.partition("..")
        if not (first and dots and last) or last.startswith("."):
            raise SuiteError(
                f"range {self.commit_range!r}: write A..B, for the commits after A up to B"
            )
        return list_commits(self.path, first, last).commits

    def find(self, sha: str) -> CommitRef | None:
        """A commit of the branch or of the range, if there is one, by its whole sha.

        Raises:
            GitError: the branch or an end of the range does not exist.
        """
        for commit in self.commits():
            if commit.sha == sha:
                return commit
        if self.commit_range is not None:
            return None
        # people also ask about commits that are too old to be watched
        return find_commit(self.path, self.name, sha)

    def documentation(self, commits: Sequence[CommitRef]) -> frozenset[str]:
        """The commits that change no file that a kernel may use."""
        if not self.carries:
            return frozenset()
        unknown = [commit.sha for commit in commits if commit.sha not in self._is_documentation]
        for sha, files in self._changed_files(unknown).items():
            is_code = any(file.endswith(".py") or affects_every_kernel(file) for file in files)
            self._is_documentation[sha] = not is_code
        return frozenset(commit.sha for commit in commits if self._is_documentation[commit.sha])

    def _changed_files(self, shas: Sequence[str]) -> dict[str, list[str]]:
        """The files that each commit changes against its first parent."""
        if not shas:
            return {}
        listed = run_git(
            repository_of(self.path),
            "log",
            "--no-walk=unsorted",
            "--diff-merges=first-parent",
            "--root",
            "--name-only",
            "--format=%x01%H",
            "-z",
            *shas,
            "--",
        )
        changed: dict[str, list[str]] = {sha: [] for sha in shas}
        for entry in listed.split("\x01")[1:]:
            sha, *files = entry.replace("\n", "").split("\0")
            changed[sha] = [file for file in files if file]
        return changed

    def open(self, sha: str) -> AbstractContextManager[SuiteAt]:
        """Check the suite out at a commit."""
        return open_suite(
            path=self.path,
            revision=sha,
            fork_server=self.fork_server,
            benchmarks=self.benchmarks,
        )

    # --- sources of kernels

    def digests(self, sha: str) -> Mapping[str, str]:
        """Digest what each kernel may use at a commit.

        Raises:
            SuiteError: the suite cannot be loaded there.
        """
        if sha not in self._digests:
            with self.open(sha) as suite:
                digests = source_digests(suite.source, self.fork_server)
            if digests is None:
                raise SuiteError(f"{sha[:12]}: the source files of the suite cannot be read")
            self._digests[sha] = digests
        return self._digests[sha]

    def affected(self, base: str, head: str) -> tuple[str, ...]:
        """The kernels of either commit whose sources differ; all of them if a shared file does.

        Raises:
            SuiteError: the suite cannot be loaded at the head.
        """
        head_digests = self.digests(head)
        try:
            base_digests = self.digests(base)
        except SuiteError:  # missing or broken there, so every kernel is new
            base_digests = {}
        names = dict.fromkeys([*head_digests, *base_digests])
        if changed_shared_files(self.path, base, head):
            return tuple(names)
        return tuple(name for name in names if head_digests.get(name) != base_digests.get(name))

    def candidates(
        self,
        base: CommitRef,
        commits: Iterable[CommitRef],
        kernels: Iterable[str],
    ) -> frozenset[str]:
        """The commits after the base whose sources of some kernels differ from the commit before.

        Args:
            base: Measured commit before them.
            commits: After the base, oldest first; those that cannot be loaded are no candidates.
            kernels: Names of kernels.
        """
        searched_kernels = frozenset(kernels)
        candidates: set[str] = set()
        previous = base.sha
        for commit in commits:
            try:
                if searched_kernels.intersection(self.affected(previous, commit.sha)):
                    candidates.add(commit.sha)
                previous = commit.sha
            except SuiteError:
                continue
        return frozenset(candidates)
