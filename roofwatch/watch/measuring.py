"""Measure one job of the agenda."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from roofwatch.ci.ab.decisions import helps_decide
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.watching.carrying import find_carried, rotating_share
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import OnProgress, Progress, RunPlan, matches
from roofwatch.collector.suite import SuiteAt
from roofwatch.measurement.run import (
    FIRST_BLOCKS,
    AdaptiveBlocks,
    is_noise_floor_unknown,
)
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.history import CommitRef
from roofwatch.model.record import RunRecord
from roofwatch.model.worker_protocol import Subject
from roofwatch.watch.branch import Branch

_MORE_BLOCKS_S = 60.0
"""Time for more blocks of undecided cases, after the first of a pair."""
_OF_WHOLE_COMMITS = frozenset({JobKind.NEW, JobKind.FILL})


@dataclass(frozen=True)
class JobRunner:
    """Measures jobs of one branch."""

    branch: Branch
    plan: RunPlan
    project: str
    on_progress: OnProgress

    def measure(self, job: Job, timed_at: Mapping[CaseKey, datetime]) -> tuple[RunRecord, ...]:
        """Measure the commits of a job: one, or two with interleaved blocks.

        Args:
            job: Of the agenda.
            timed_at: When each case was timed last; of those that a commit carries, a tenth is
                timed.

        Returns:
            The base before the head: a head without its base would lose the verdict. Nothing if
            there is nothing to measure.

        Raises:
            SuiteError: a commit cannot be loaded, or has nothing to measure.
            CollectorError: the machine cannot be measured.
        """
        if self._may_carry(job) and job.base is not None:
            records = self._measure_affected(job, job.base, timed_at)
        else:
            records = self._measure_all(job)
        for record in records:
            record.require_own_code()
        return records

    def _may_carry(self, job: Job) -> bool:
        """Whether cases with unchanged sources keep the results of the base."""
        return job.kind in _OF_WHOLE_COMMITS and self.branch.carries

    def _measure_affected(
        self,
        job: Job,
        base: CommitRef,
        timed_at: Mapping[CaseKey, datetime],
    ) -> tuple[RunRecord, ...]:
        """Measure the kernels whose sources changed as a pair, and a tenth of the others alone."""
        affected = self.branch.affected(base.sha, job.head.sha)
        changed_kernels = self._selected(affected)
        records: list[RunRecord] = []
        if changed_kernels:
            plan = replace(self.plan, kernels=changed_kernels)
            records += self._measure_commits((base, job.head), job, plan)
        all_kernels = self.branch.digests(job.head.sha).keys()
        carried_kernels = sorted(all_kernels - set(affected))
        to_time = rotating_share(timed_at, self._selected(carried_kernels))
        if to_time:
            # their machine code is that of the base
            plan = replace(self.plan, kernels=_kernels_of(to_time), targets=())
            records += self._measure_commits((job.head,), job, plan, only=to_time)
        return tuple(records)

    def _measure_all(self, job: Job) -> tuple[RunRecord, ...]:
        plan = self.plan
        only: frozenset[CaseKey] | None = None
        if job.subjects:
            plan = replace(plan, kernels=_kernels_of(job.subjects))
            only = job.subjects
            # a change of results or machine code shows without times
            if not job.is_timed:
                only = frozenset()
        if job.kind is JobKind.CONFIRM:
            # the job that raised the suspicion has compiled both commits
            plan = replace(plan, targets=())
        commits: tuple[CommitRef, ...] = (job.head,)
        if job.base is not None:
            commits = (job.base, job.head)
        return self._measure_commits(commits, job, plan, only=only)

    def _measure_commits(
        self,
        commits: tuple[CommitRef, ...],
        job: Job,
        plan: RunPlan,
        only: frozenset[CaseKey] | None = None,
    ) -> tuple[RunRecord, ...]:
        is_pair = len(commits) > 1
        if is_pair:
            block_count = max(plan.block_count, FIRST_BLOCKS)
            plan = replace(plan, block_count=block_count)
        helps = _helps_decide
        # nothing is to be decided between a commit and itself
        if job.kind is JobKind.CALIBRATE:
            helps = is_noise_floor_unknown
        to_time = None
        if only is not None:
            to_time = _as_subjects(only)

        def note(text: str) -> None:
            self.on_progress(Progress(0, 0, text))

        more = AdaptiveBlocks(
            judge=judge_pull_request,
            helps=helps,
            budget_s=_MORE_BLOCKS_S,
            on_status=note,
        )
        with ExitStack() as stack:
            suites: list[SuiteAt] = []
            for commit in commits:
                suite = stack.enter_context(self.branch.open(commit.sha))
                suites.append(replace(suite, project=self.project))
            return measure(
                suites,
                plan,
                self.on_progress,
                fork_server=self.branch.fork_server,
                only=to_time,
                find_carried=_find_carried if self._may_carry(job) else _carry_nothing,
                more=more,
            )

    def _selected(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Those of the plan."""
        return tuple(kernel for kernel in kernels if matches(kernel, self.plan.kernels))


def _kernels_of(subjects: Iterable[CaseKey]) -> tuple[str, ...]:
    kernels = {kernel_of(case_id) for case_id, _ in subjects}
    return tuple(sorted(kernels))


def _find_carried(base: RunRecord, head: RunRecord) -> frozenset[Subject]:
    return _as_subjects(find_carried(base, head))


def _helps_decide(case: Change[CaseEvidence]) -> bool:
    comparison = case.evidence.comparison
    return comparison is not None and helps_decide(comparison)


def _carry_nothing(_base: RunRecord, _head: RunRecord) -> frozenset[Subject]:
    return frozenset()


def _as_subjects(subjects: Iterable[CaseKey]) -> frozenset[Subject]:
    return frozenset(Subject(*subject) for subject in subjects)
