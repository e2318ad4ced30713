"""Compiles a suite's cases for GPUs that are not present: results come from the cache or from
worker processes.

The key of a cached result consists of toolchain, kernel code, case, implementation and targets.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from roofwatch.collector.build.provenance import require_own_code
from roofwatch.collector.compile.cache import DiskCache, toolchain_digest
from roofwatch.collector.digests import digest_of
from roofwatch.collector.runs.case_run import select
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan, Steps
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import OnBegin, SomeJob, WorkerPool
from roofwatch.model.case_key import kernel_of
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Outcome
from roofwatch.model.proofs import CaseProof, OperatorCost, OverflowProof, Proof
from roofwatch.model.results import StaticFacts
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import (
    CompileStatic,
    DescribeSources,
    ProveCase,
    Reply,
    Subject,
    WorkerSettings,
)

_DESCRIBE_TIMEOUT_S = 60.0
_COMPILE_SHARE = 0.7
"""Of the time limit of a job; the rest is for the launch that is being compiled, and its facts."""
_MAX_MESSAGE = 1_000
_CACHED_OUTCOMES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
"""Other failures may come from a lack of memory and are tried again."""
_FACTS = TypeAdapter(tuple[StaticFacts, ...])


@dataclass(frozen=True)
class StaticResults:
    """What is known of a suite without running it, in the order of the suite."""

    facts: tuple[StaticFacts, ...] = ()
    proofs: tuple[OverflowProof, ...] = ()
    costs: tuple[OperatorCost, ...] = ()


def compile_suite(source: SuiteSource, plan: RunPlan) -> tuple[StaticFacts, ...]:
    """Compile every Triton and CUDA C++ kernel of a suite for every target, and run none.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        ToolchainError: a compiler or disassembler is missing.
    """
    return analyse_suite(source, plan, has_proofs=False).facts


def analyse_suite(
    source: SuiteSource,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    use_cache: bool = True,
    packages: Path | None = None,
    has_proofs: bool = True,
) -> StaticResults:
    """Compile every Triton and CUDA C++ kernel of a suite for every target, and analyse its calls.

    Without the cache, everything is compiled again and nothing is stored. `packages` is a folder of
    packages that come before the installed ones, such as another release of Triton.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        ForeignCodeError: what was compiled is not the code of the suite's tree.
        ToolchainError: a compiler or disassembler is missing.
    """
    with ExitStack() as stack:
        cache = None
        environment = {}
        if packages is not None:
            environment["PYTHONPATH"] = search_path(packages)
        if not use_cache:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-static-"))
            cache = DiskCache(Path(folder) / "static")
            environment |= {
                "ROOFWATCH_CACHE_DIR": folder,
                "TRITON_CACHE_DIR": str(Path(folder) / "triton"),
            }
        fork_server = stack.enter_context(ForkServer(environment))
        workers = stack.enter_context(compilers(fork_server, source))
        steps = Steps(on_progress)
        steps.say("loading the suite")
        subjects = [
            run.subject
            for run in select(workers.start(), plan)
            if run.implementation.language != "torch"
        ]
        steps.total = len(subjects)
        if has_proofs:
            # a step to compile each subject, and one to analyse its calls
            steps.total += len(subjects)
        facts: dict[Subject, tuple[StaticFacts, ...]] = {}
        compiling = compile_subjects(
            workers=workers,
            subjects=subjects,
            plan=plan,
            cache=cache,
            on_begin=lambda subject: steps.say(f"compiling {subject}"),
        )
        for subject, compiled in compiling:
            facts[subject] = compiled
            steps.step()
        proofs: dict[Subject, CaseProof] = {}
        if has_proofs:
            proving = prove_subjects(
                workers=workers,
                subjects=subjects,
                plan=plan,
                cache=cache,
                on_begin=lambda subject: steps.say(f"analysing {subject}"),
            )
            for subject, proof in proving:
                proofs[subject] = proof
                steps.step()
        require_own_code(source, workers.loaded)
    in_order = [proofs[subject] for subject in subjects if subject in proofs]
    return StaticResults(
        facts=tuple(fact for subject in subjects for fact in facts[subject]),
        proofs=tuple(proof.overflow for proof in in_order),
        costs=tuple(proof.cost for proof in in_order if proof.cost is not None),
    )


def search_path(packages: Path) -> str:
    """Make a `PYTHONPATH` that puts a folder of packages before all others."""
    folders = [str(packages)]
    # an empty entry would add the working directory
    if os.environ.get("PYTHONPATH"):
        folders.append(os.environ["PYTHONPATH"])
    return os.pathsep.join(folders)


def compilers(fork_server: ForkServer, source: SuiteSource) -> WorkerPool:
    return WorkerPool(
        fork_server,
        WorkerSettings(
            source=source,
            device="cpu",
            thread_count=1,
        ),
    )


def compile_subjects(
    workers: WorkerPool,
    subjects: Sequence[Subject],
    plan: RunPlan,
    cache: DiskCache | None = None,
    *,
    on_begin: OnBegin = lambda _: None,
) -> Iterator[tuple[Subject, tuple[StaticFacts, ...]]]:
    """Compile each subject for each target of the plan, in workers of `compilers`; cached facts
    come first.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    cache = cache or DiskCache.of_user()
    keys = _cache_keys(workers, subjects, plan.targets)
    missing: list[CompileStatic] = []
    for subject in subjects:
        try:
            facts = _FACTS.validate_python(cache.get(keys[subject]))
        except ValidationError:
            missing.append(
                CompileStatic(
                    **subject.named,
                    targets=plan.targets,
                    time_limit_s=_COMPILE_SHARE * plan.timeout_s,
                )
            )
        else:
            yield subject, facts
    if not missing:
        return
    for job, reply in _replies(
        workers=workers,
        jobs=missing,
        plan=plan,
        on_begin=on_begin,
    ):
        if reply.static_facts is None:
            facts = _failed(job.subject, plan, reply)
        else:
            facts = reply.static_facts
        if all(fact.outcome in _CACHED_OUTCOMES for fact in facts):
            cache.put(keys[job.subject], _FACTS.dump_python(facts, mode="json"))
        yield job.subject, facts
    cache.shrink()


def prove_subjects(
    workers: WorkerPool,
    subjects: Sequence[Subject],
    plan: RunPlan,
    cache: DiskCache | None = None,
    *,
    on_begin: OnBegin = lambda _: None,
) -> Iterator[tuple[Subject, CaseProof]]:
    """Analyse each subject for the first target of the plan that its kernels compile for; cached
    results come first.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    cache = cache or DiskCache.of_user()
    keys = _cache_keys(workers, subjects, ("proof", *plan.targets))
    missing: list[ProveCase] = []
    for subject in subjects:
        try:
            proof = CaseProof.model_validate(cache.get(keys[subject]))
        except ValidationError:
            missing.append(ProveCase(**subject.named, targets=plan.targets))
        else:
            yield subject, proof
    if not missing:
        return
    for job, reply in _replies(
        workers=workers,
        jobs=missing,
        plan=plan,
        on_begin=on_begin,
    ):
        if reply.proof is not None:
            cache.put(keys[job.subject], reply.proof.model_dump(mode="json"))
        yield job.subject, reply.proof or _not_proven(job.subject, reply)


def _replies(
    workers: WorkerPool,
    jobs: Sequence[SomeJob],
    plan: RunPlan,
    on_begin: OnBegin,
) -> Iterator[tuple[SomeJob, Reply]]:
    """Do jobs in as many workers as this process has processors."""
    # loaded once, before the workers are forked
    workers.fork_server.load("triton", "without_data")
    return workers.do_all(
        jobs=jobs,
        worker_count=len(os.sched_getaffinity(0)),
        timeout_s=plan.timeout_s,
        on_begin=on_begin,
    )


def _cache_keys(
    workers: WorkerPool,
    subjects: Sequence[Subject],
    asked_for: tuple[str, ...],
) -> dict[Subject, str]:
    """A key of each subject: its code, the compilers, and what is asked for."""
    kernels = tuple({kernel_of(subject.case_id) for subject in subjects})
    reply = workers.request(DescribeSources(kernels=kernels), timeout_s=_DESCRIBE_TIMEOUT_S)
    codes = reply.source_digests
    if codes is None:
        reason = ""
        if reply.failure is not None:
            reason = f": {reply.failure.message}"
        raise CollectorError(f"the source files of the suite cannot be read{reason}")
    toolchain = toolchain_digest({**os.environ, **workers.fork_server.extra_environment})
    if workers.python is not None:  # with compilers of its own
        toolchain = digest_of(toolchain, str(workers.python))
    return {
        subject: digest_of(
            toolchain,
            codes[kernel_of(subject.case_id)],
            subject.case_id,
            subject.implementation,
            asked_for,
        )
        for subject in subjects
    }


def _not_proven(subject: Subject, reply: Reply) -> CaseProof:
    """The proof of a subject whose analysis failed."""
    failure = reply.failure
    assert failure is not None
    message = f"{failure.outcome}: {failure.message}"[:_MAX_MESSAGE]
    proof = OverflowProof(
        **subject.named,
        proof=Proof.UNKNOWN,
        message=message,
    )
    return CaseProof(overflow=proof)


def _failed(subject: Subject, plan: RunPlan, reply: Reply) -> tuple[StaticFacts, ...]:
    """The facts of a subject that could not be compiled, for each target."""
    failure = reply.failure
    assert failure is not None
    return tuple(
        StaticFacts(
            **subject.named,
            function=subject.implementation,
            target=target,
            outcome=failure.outcome,
            message=failure.message,
        )
        for target in plan.targets
    )
