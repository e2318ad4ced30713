"""Which machine code the kernels of a repository compile to, at each commit of a history."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.digests import digest_of
from roofwatch.collector.git import run_git
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.runs.static_compiler import analyse_suite
from roofwatch.collector.suite import BENCHMARK_PATTERN, SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.importers import ImportedRow, ImportedRun
from roofwatch.importers.source_identity import names_of, plain_name
from roofwatch.measurement.revisions import source_digests
from roofwatch.model.case_key import kernel_of
from roofwatch.model.code_identity import CodeIdentity
from roofwatch.model.errors import CollectorError, GitError
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts

_DOCUMENTS = frozenset({".md", ".rst", ".txt", ".png", ".svg", ".jpg", ".ipynb"})


@dataclass
class CompiledCommits:
    """Compiles a suite at each commit once."""

    suite: Path
    """Benchmark file, or folder of them, in the repository."""
    plan: RunPlan
    on_commit: Callable[[str], None] = lambda _text: None
    notes: list[str] = field(default_factory=list)
    """What could not be compiled, and why."""
    _by_tree: dict[str, Mapping[str, CodeIdentity]] = field(default_factory=dict)
    _trees: dict[str, str] = field(default_factory=dict)
    """Digest of the tree of each commit."""

    def complete(self, run: ImportedRun, revision: str | None = None) -> ImportedRun:
        """Add the identity of the machine code to each row whose kernel the suite has.

        Args:
            run: Of one file.
            revision: The measured commit, in place of those that the file names.
        """
        rows: list[ImportedRow] = []
        for row in run.rows:
            sha = revision or (row.commit or run.commit).sha
            rows.append(row if sha is None else self._completed(row, sha))
        return replace(run, rows=tuple(rows))

    def _completed(self, row: ImportedRow, sha: str) -> ImportedRow:
        by_kernel = self._kernels_at(sha)
        by_kernel = self._kernels_at(sha)
        # The longest name comes first: it says most.
        named = [by_kernel[name] for name in names_of(row.case) if name in by_kernel]
        compiled = named[0] if named else None
        if compiled is None:
            return row
        identity = CodeIdentity.parse(row.code_hash)
        # a file of the kernel's name says more than the benchmark that calls it
        sources = identity.sources or compiled.sources
        completed = CodeIdentity(sources=sources, machine_code=compiled.machine_code)
        return replace(row, code_hash=completed.text)

    def _kernels_at(self, sha: str) -> Mapping[str, CodeIdentity]:
        if sha not in self._trees:
            self._trees[sha] = self._digest_of_tree(sha)
        tree = self._trees[sha]
        # Many commits of a history change documents only.
        if tree not in self._by_tree:
            self.on_commit(f"compiling {sha[:12]}")
            try:
                self._by_tree[tree] = self._compile(sha)
            except CollectorError as error:
                self._by_tree[tree] = {}
                self.notes.append(f"machine code of {sha[:12]} is unknown: {error}")
        return self._by_tree[tree]

    def _digest_of_tree(self, sha: str) -> str:
        """Digest the files that code may read; if none changed, the machine code is the same."""
        if self.suite.is_dir():
            repository = self.suite
        else:
            repository = self.suite.parent
        try:
            listed = run_git(repository, "ls-tree", "-r", "-z", "--full-tree", sha)
        # The commit is not in the repository.
        except GitError:
            return sha
        files = [
            line for line in listed.split("\0") if PurePosixPath(line).suffix not in _DOCUMENTS
        ]
        return digest_of(files)

    def _compile(self, sha: str) -> Mapping[str, CodeIdentity]:
        with suite_at_revision(self.suite, sha, benchmarks=self.suite) as suite:
            results = analyse_suite(suite.source, self.plan, has_proofs=False)
            sources = _sources_of(suite)
        facts_by_kernel: dict[str, list[StaticFacts]] = defaultdict(list)
        for fact in results.facts:
            facts_by_kernel[kernel_of(fact.case_id)].append(fact)
        identities: dict[str, CodeIdentity] = {}
        for kernel in facts_by_kernel.keys() | sources.keys():
            identities[plain_name(kernel)] = CodeIdentity(
                sources=sources.get(kernel),
                machine_code=self._digest(kernel, sha, facts_by_kernel.get(kernel, ())),
            )
        return identities

    # The kernel may be known from its sources alone.

    def _digest(self, kernel: str, sha: str, facts: Iterable[StaticFacts]) -> str | None:
        """Digest the machine code of a kernel; None if any of it is missing."""
        listed = sorted(facts, key=_order)
        for fact in listed:
            # a digest that lacks a function would miss its changes
            if fact.outcome is Outcome.OK:
                continue
            self.notes.append(
                f"machine code of {kernel} at {sha[:12]} is unknown: {fact.function} for "
                f"{fact.target}: {fact.outcome}"
            )
            return None
        if not listed:
            return None
        return digest_of([(*_order(fact), fact.code_hash) for fact in listed])


def _order(fact: StaticFacts) -> tuple[str, str, str, str]:
    return fact.case_id, fact.implementation, fact.function, fact.target


def _sources_of(suite: SuiteAt) -> dict[str, str]:
    """Digest what each kernel of a suite imports; empty if that is not known."""
    with ForkServer() as fork_server:
        return source_digests(suite.source, fork_server) or {}


def find_suite(repository: Path) -> Path | None:
    """Find the benchmark files of a repository; None if it has none.

    Several are a suite if one folder has them all.
    """
    listed = run_git(repository, "ls-files", "-z", "--", f"*{BENCHMARK_PATTERN}")
    files = [name for name in listed.split("\0") if PurePosixPath(name).match(BENCHMARK_PATTERN)]
    folders = {PurePosixPath(name).parent for name in files}
    # Which of several suites is meant, only the user can say.
    if len(folders) != 1:
        return None
    (folder,) = folders
    return repository / folder
