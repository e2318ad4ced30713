"""Measure one job of the agenda."""

from contextlib import ExitStack
from dataclasses import replace

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import OnProgress, Progress, RunPlan, matches
from roofwatch.measurement.run import FIRST_BLOCKS, AdaptiveBlocks, needs_more
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.record import RunRecord
from roofwatch.model.worker_protocol import Subject
from roofwatch.watch.branch import Branch

_MORE_BLOCKS_S = 60.0
"""Time for more blocks of undecided cases, after the first of a pair."""


def _kernels_of(job: Job, branch: Branch, plan: RunPlan) -> tuple[str, ...]:
    if job.subjects:
        return tuple(sorted({case_id.split("/")[0] for case_id, _ in job.subjects}))
    if job.base is not None and branch.carries:
        # other kernels are built as at the base
        affected = branch.affected(job.base.sha, job.head.sha)
        return tuple(kernel for kernel in affected if matches(kernel, plan.kernels))
    return plan.kernels


def measure_job(
    job: Job, branch: Branch, plan: RunPlan, project: str, on_progress: OnProgress
) -> tuple[RunRecord, ...]:
    """Measure the commits of a job: one, or two with interleaved blocks.

    Returns:
        The base before the head: a head without its base would lose the verdict. Nothing if no
        kernel differs from the base.

    Raises:
        SuiteError: a commit cannot be loaded, or has nothing to measure.
        CollectorError: the machine cannot be measured.
    """
    kernels = _kernels_of(job, branch, plan)
    if not kernels:
        return ()
    plan = replace(plan, kernels=kernels)
    if job.base is not None:
        plan = replace(plan, block_count=max(plan.block_count, FIRST_BLOCKS))
    if job.kind is JobKind.CONFIRM:
        # the job that raised the suspicion has compiled both commits
        plan = replace(plan, targets=())
    only: frozenset[Subject] | None = None
    if job.subjects:
        timed = job.subjects if job.is_timed else ()
        only = frozenset(Subject(*subject) for subject in timed)
    shas = [commit.sha for commit in (job.base, job.head) if commit is not None]
    with ExitStack() as stack:
        suites = [replace(stack.enter_context(branch.open(sha)), project=project) for sha in shas]

        def note(text: str) -> None:
            on_progress(Progress(0, 0, text))

        records = measure(
            suites,
            plan,
            on_progress,
            fork_server=branch.fork_server,
            only=only,
            more=AdaptiveBlocks(judge_pull_request, needs_more, _MORE_BLOCKS_S, note),
        )
    for record in records:
        record.require_own_code()
    return records
