"""The commits of a suite's repository, the suite and its build inputs at each of them, and its
series.
"""

import glob
import re
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from roofwatch.ci.bisect.priors import BuildInputs
from roofwatch.collector.compile.targets import TargetError, parse_target
from roofwatch.collector.digests import digest_of
from roofwatch.collector.git import resolve_commit, run_git
from roofwatch.collector.runs.case_run import select
from roofwatch.collector.runs.run_plan import OnProgress, Progress, RunPlan, matches
from roofwatch.collector.runs.static_compiler import compile_suite
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.configuration.arguments import repository_of, suite_source
from roofwatch.measurement.revisions import affects_every_kernel, open_suite, source_digests
from roofwatch.model.case_key import kernel_of
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.worker_protocol import (
    DescribeEnvironment,
    SuiteInfo,
    WorkerSettings,
    machine_error,
)

_TIMEOUT_S = 120.0
_COMMIT_FORMAT = "--format=%H%x00%cI%x00%an%x00%s"
_SERIES = re.compile(r"(.+/.+/(?:fwd|bwd))(?:/([^/]+))?")


@dataclass(frozen=True)
class CommitRange:
    """The commits after a good one, up to a bad one, along first parents."""

    good_sha: str
    commits: tuple[CommitRef, ...]
    """The oldest first; the last is the bad end."""

    @property
    def shas(self) -> list[str]:
        return [commit.sha for commit in self.commits]


def list_commits(path: Path | None, good: str, bad: str) -> CommitRange:
    """List the commits after one revision, up to another, along first parents.

    Raises:
        GitError: a revision does not exist.
        SuiteError: there are no commits between them.
    """
    repository = repository_of(path)
    end = "--end-of-options"
    good_sha = resolve_commit(repository, good)
    bad_sha = resolve_commit(repository, bad)
    number = int(run_git(repository, "rev-list", "--first-parent", "--count", end, good_sha, "--"))
    listed = run_git(
        repository,
        "log",
        "--first-parent",
        "--reverse",
        _COMMIT_FORMAT,
        end,
        f"{good_sha}..{bad_sha}",
        "--",
    )
    commits = _parse_commits(listed, first_count=number + 1)
    if not commits:
        raise SuiteError(
            f"no commits between {good} and {bad}: the good end must be the older one, on the "
            f"same line"
        )
    return CommitRange(good_sha, tuple(commits))


def newest_commits(path: Path | None, branch: str, max_count: int) -> tuple[CommitRef, ...]:
    """List the newest commits of a branch along first parents, the oldest first.

    Raises:
        GitError: the branch does not exist.
    """
    repository = repository_of(path)
    tip = resolve_commit(repository, branch)
    total = int(run_git(repository, "rev-list", "--first-parent", "--count", tip, "--"))
    limit = f"--max-count={max_count}"
    listed = run_git(
        repository, "log", "--first-parent", "--reverse", limit, _COMMIT_FORMAT, tip, "--"
    )
    return tuple(_parse_commits(listed, first_count=max(1, total - max_count + 1)))


def find_commit(path: Path | None, branch: str, sha: str) -> CommitRef | None:
    """The commit of a branch with this sha; None if the branch has none along first parents.

    Raises:
        GitError: the branch does not exist.
    """
    repository = repository_of(path)
    tip = resolve_commit(repository, branch)
    shas = run_git(repository, "rev-list", "--first-parent", tip, "--").split()
    if sha not in shas:
        return None
    (commit,) = newest_commits(path, sha, 1)
    return commit


def _parse_commits(listed: str, *, first_count: int) -> list[CommitRef]:
    commits: list[CommitRef] = []
    for line in filter(None, listed.split("\n")):
        sha, committed_at, author, subject = line.split("\0")
        commits.append(
            CommitRef(
                first_parent_count=first_count + len(commits),
                sha=sha,
                author=author[:500],
                subject=subject[:1_000],
                committed_at=datetime.fromisoformat(committed_at),
            )
        )
    return commits


def read_build_inputs(
    path: Path | None,
    commits: CommitRange,
    plan: RunPlan,
    target: str | None,
    fork_server: ForkServer,
    on_progress: OnProgress,
    benchmarks: Path | None = None,
) -> list[BuildInputs]:
    """Digest what the kernels of a plan are built from, at the good end and at each commit.

    Without a compile target only sources are compared. `benchmarks` is the suite whose benchmark
    files are used at every commit; None for each its own.
    """
    if target is None:
        compile_plan = None
    else:
        compile_plan = replace(plan, targets=(target,))
    repository = repository_of(path)
    inputs: list[BuildInputs] = []
    previous: BuildInputs | None = None
    for number, sha in enumerate([commits.good_sha, *commits.shas], start=1):
        try:
            with open_suite(path, sha, fork_server, benchmarks) as suite:
                codes = sorted((source_digests(suite.source, fork_server) or {}).items())
                chosen = [code for code in codes if matches(code[0], plan.kernels)]
                sources = None
                if chosen:
                    sources = digest_of(chosen, _other_files(repository, sha))
                # equal sources give equal machine code, which takes long to compile
                if previous is None or sources is None or sources != previous.sources:
                    machine_code = None
                    if compile_plan is not None:
                        machine_code = _machine_code(suite, compile_plan)
                    previous = BuildInputs(sources, machine_code)
                inputs.append(previous)
        except SuiteError as error:
            # such a commit is skipped, not the whole range
            inputs.append(BuildInputs(error=str(error)))
        on_progress(Progress(number, len(commits.commits) + 1, f"read the sources of {sha[:12]}"))
    return inputs


def _machine_code(suite: SuiteAt, plan: RunPlan) -> str | None:
    """Digest of the compiled code and its launch configurations; None if something does not
    compile.
    """
    facts = compile_suite(suite.source, plan)
    if not facts or any(fact.outcome is not Outcome.OK for fact in facts):
        return None
    return digest_of(
        sorted(
            (fact.case_id, fact.implementation, fact.function, fact.target, str(fact.code_hash))
            for fact in facts
        ),
        sorted(str(sorted(fact.configuration.items())) for fact in facts),
    )


def _other_files(repository: Path, sha: str) -> list[str]:
    """List the files that any kernel may read, such as CUDA sources, with their hashes."""
    listed = run_git(repository, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", sha)
    return [
        line
        for line in listed.split("\0")
        if line and affects_every_kernel(line.partition("\t")[2])
    ]


def describe_machine(path: Path | None, plan: RunPlan, fork_server: ForkServer) -> Environment:
    """Describe the environment of a run; the number of CPU threads is part of the runner class.

    Raises:
        CollectorError: the suite cannot be loaded, or the machine cannot be described.
    """
    settings = WorkerSettings(
        source=suite_source(path),
        device=plan.device,
        thread_count=plan.thread_count,
    )
    with Worker(fork_server, settings) as worker:
        worker.start()
        reply = worker.request(DescribeEnvironment(), timeout_s=_TIMEOUT_S)
    if reply.environment is None:
        raise machine_error("this machine cannot be described", reply.failure, plan.device or "cpu")
    return reply.environment


def own_target(environment: Environment) -> str | None:
    """Return the compile target of this machine; None on a CPU,
    for which Triton compiles nothing.
    """
    if not environment.compute_capability:
        return None
    target = f"sm_{environment.compute_capability.replace('.', '')}"
    try:
        parse_target(target)
    except TargetError:
        return None
    return target


# --- series


def parse_series(text: str) -> tuple[str, str | None]:
    """Split `KERNEL/CASE[/IMPLEMENTATION]` into case and implementation.

    Raises:
        SuiteError: the text has another form.
    """
    match = _SERIES.fullmatch(text)
    if match is None:
        raise SuiteError(
            f"series {text!r}: write KERNEL/CASE/fwd or KERNEL/CASE/fwd/IMPLEMENTATION; roofwatch "
            f"list --json has the "
            "cases"
        )
    return match[1], match[2]


def choose_implementation(info: SuiteInfo, case_id: str, implementation: str | None) -> str:
    """Return the implementation to measure.

    Raises:
        SuiteError: the suite does not have it, or has several and none is named.
    """
    plan = RunPlan(kernels=(kernel_of(case_id),), cases=(glob.escape(case_id),))
    implementations = [task.implementation for task in select(info, plan)]
    if info.device == "cpu":
        # Triton and CUDA C++ are only interpreted or compiled there
        implementations = [timed for timed in implementations if timed.language == "torch"]
    names = [implementation.name for implementation in implementations]
    if implementation is not None and implementation in names:
        return implementation
    if implementation is None and len(names) == 1:
        return names[0]
    choices = ", ".join(names) or "none"
    raise SuiteError(
        f"series {case_id}: name an implementation that can be timed on this device: {choices}; "
        "--untimed compiles and checks the commits instead"
    )
