"""Which kernels a change can touch, so that the others need not be measured.

A kernel is touched if one of the modules differs that it may use: those that declare it, and whatever they import, read
from the source (`roofwatch.collector.compile.suite_modules`); comments do not count. If they differ only in functions
that Triton compiles, it is touched if what is compiled differs for one of the targets, the machine's own among them.
What is no Python, such as a `.cu` file or a list of requirements, may be read by any kernel when it is launched: where
such a file changed, all count. Documents do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from roofwatch.arguments import suite_at
from roofwatch.collector.compile.sources import SuiteSources
from roofwatch.collector.compile.static_run import compile_suite
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.errors import CollectorError, GitError, SuiteError, ToolchainError
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import SkippedKernel, SkipReason
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource, own_suite_at_revision, suite_at_revision
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import DescribeEnvironment, DescribeSources
from roofwatch.collector.workers.worker import Worker

_DOCUMENTS = frozenset({".md", ".rst"})
_OF_THE_SERVICE = ".github"
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Affected:
    """What a change can touch, and what it cannot."""

    kernels: tuple[str, ...]
    """Names, to be measured."""
    skipped: tuple[str, ...]
    """Names, for which all that they are made from is the same."""
    read_by_all: tuple[str, ...] = ()
    """Changed files for which all kernels count."""
    same_code: tuple[str, ...] = ()
    """Names, of which the source differs and neither the machine code nor what the host runs does."""

    def matching(self, patterns: Sequence[str] | None) -> list[str]:
        """The kernels to measure of those that somebody asked for."""
        return [name for name in self.kernels if not patterns or any(fnmatchcase(name, each) for each in patterns)]

    @property
    def left_out(self) -> tuple[SkippedKernel, ...]:
        """What a record of the others says of those that were skipped."""
        return (
            *(SkippedKernel(kernel=name, reason=SkipReason.SAME_SOURCES) for name in self.skipped),
            *(SkippedKernel(kernel=name, reason=SkipReason.SAME_MACHINE_CODE) for name in self.same_code),
        )

    @property
    def sentence(self) -> str:
        """What is skipped, and why."""
        if self.read_by_all:
            more = f" and {len(self.read_by_all) - 3} more" if len(self.read_by_all) > 3 else ""
            return f"every kernel counts: any of them may read {', '.join(self.read_by_all[:3])}{more}, which changed"
        parts = []
        if self.skipped:
            parts.append(f"skipped, since no module that they are made from changed: {', '.join(self.skipped)}")
        if self.same_code:
            parts.append(f"skipped, since they compile to the same machine code: {', '.join(self.same_code)}")
        return "; ".join(parts) or "every kernel is made from a module that changed"


@dataclass(frozen=True)
class _Side:
    """A suite at one of the two revisions."""

    source: SuiteSource
    made_from: SuiteSources
    hidden: frozenset[str]
    """Kernels that Triton compiles functions for where nobody said so: no facts tell what became of those."""
    own_target: str | None
    """What the machine's GPU runs; None where there is none that we compile for by name."""
    is_on_cpu: bool


def find_affected(path: Path | None, base: str, head: str | None, plan: RunPlan) -> Affected:
    """Load both revisions of a suite, and compare what each kernel is made from, and where that leaves it open, what
    is compiled for it.

    Args:
        path: Benchmark file or folder, in a git repository; None for the suite that comes with roofwatch.
        base: Revision.
        head: Revision; the work tree as it is if None.
        plan: What would be measured.

    Raises:
        GitError: there is no such revision.
        CollectorError: a suite cannot be loaded.
    """
    read_by_all = tuple(sorted(file for file in _changed_files(path, base, head) if may_be_read_by_all(file)))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-affected-")))
        fork_server = stack.enter_context(ForkServer())
        there, here = (
            _side(fork_server, _source(stack, path, revision, folder / name), plan)
            for name, revision in (("base", base), ("head", head))
        )
        before, after = there.made_from, here.made_from
        same = {name for name, code in after.codes.items() if code == before.codes.get(name)}
        unclear = [
            name
            for name in after.codes
            if name not in same | here.hidden and after.host_sides[name] == before.host_sides.get(name)
        ]
        if read_by_all:
            same, unclear = set(), []
        same_code = _same_machine_code(there, here, unclear, plan)
    # a kernel that is gone is told by comparing the records, and measured at the base for that
    names = [*after.codes, *(name for name in before.codes if name not in after.codes)]
    return Affected(
        tuple(name for name in names if name not in same | same_code),
        tuple(name for name in names if name in same),
        read_by_all,
        tuple(name for name in names if name in same_code),
    )


def _source(stack: ExitStack, path: Path | None, revision: str | None, folder: Path) -> SuiteSource:
    if revision is None:
        return suite_at(path, None).source
    checked_out = own_suite_at_revision(revision, folder) if path is None else suite_at_revision(path, revision, folder)
    return stack.enter_context(checked_out).source


def _side(fork_server: ForkServer, source: SuiteSource, plan: RunPlan) -> _Side:
    with Worker(fork_server, source, device=plan.device, is_watched=True) as worker:
        info = worker.start()
        found = worker.request(DescribeSources(), timeout_s=_TIMEOUT_S).suite_sources
        environment = None
        if info.device != "cpu":
            environment = worker.request(DescribeEnvironment(), timeout_s=_TIMEOUT_S).environment
    if found is None:
        raise CollectorError("what the suite is made from cannot be told; leave --affected out")
    own_target = None
    if environment is not None and environment.device_kind == "cuda" and environment.compute_capability:
        own_target = f"sm_{environment.compute_capability.replace('.', '')}"
    hidden = frozenset(
        kernel.name
        for kernel in info.kernels
        for implementation in kernel.implementations
        if implementation.language == "torch" and any(line.is_jitted for line in implementation.source_lines)
    )
    return _Side(source, found, hidden, own_target, info.device == "cpu")


def _same_machine_code(there: _Side, here: _Side, names: Sequence[str], plan: RunPlan) -> set[str]:
    """Those of some kernels that compile to the same on both sides, for every target that counts."""
    names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in plan.kernels)]
    if not names:
        return set()
    targets = plan.targets or DEFAULT_TARGETS
    asked = replace(
        plan,
        kernels=tuple(names),
        targets=tuple(dict.fromkeys([*targets, *([here.own_target] if here.own_target else [])])),
        usual_tag=plan.usual_tag or ("small" if here.is_on_cpu else "quick"),
    )
    try:
        base, head = (_compiled(side.source, asked) for side in (there, here))
    except (SuiteError, ToolchainError):
        return set()  # measuring says what is wrong
    return {name for name in names if head.get(name) == base.get(name, {}) and _is_all_known(head[name])}


def _is_all_known(compiled: Mapping[tuple[str, ...], str | None]) -> bool:
    """Whether each case of each implementation became machine code for one target at least, and failed for none."""
    subjects = {place[:2] for place in compiled}
    return None not in compiled.values() and subjects == {place[:2] for place, code in compiled.items() if code}


def _compiled(source: SuiteSource, plan: RunPlan) -> dict[str, dict[tuple[str, ...], str | None]]:
    """By kernel, what each function became: nothing where a target has no such thing, None where it did not compile."""
    found: dict[str, dict[tuple[str, ...], str | None]] = {}
    for facts in compile_suite(source, plan):
        code = f"{facts.code_hash} {facts.configuration}" if facts.outcome is Outcome.OK else None
        code = "" if facts.outcome is Outcome.UNSUPPORTED else code
        place = (facts.case_id, facts.implementation, facts.function, facts.target)
        found.setdefault(facts.case_id.split("/", 1)[0], {})[place] = code
    return found


def _changed_files(path: Path | None, base: str, head: str | None) -> list[str]:
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    if repository is None:
        raise GitError(f"{path}: lies in no git repository, so it has no revision {base!r}")
    against = [base] if head is None else [base, head]
    listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--end-of-options", *against, "--")
    if head is None:
        listed += run_git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    return [file for file in listed.split("\0") if file]


def may_be_read_by_all(file: str) -> bool:
    """Whether a file of a repository is one that any kernel may read when it is launched."""
    path = PurePosixPath(file)
    is_made_by_python = "__pycache__" in path.parts
    return path.suffix not in {".py", *_DOCUMENTS} and path.parts[0] != _OF_THE_SERVICE and not is_made_by_python
