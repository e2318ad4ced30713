"""Measure the demo's commits: alone as they come, and against each other where the history raises a suspicion."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.history.history import PairRequest, unconfirmed
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import collect_run, measure_pair
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.suite import SuiteAt, suite_at_revision
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.values import Regression
from roofwatch.demo.folder import DemoFolder
from roofwatch.demo.scenario import BENCHMARK_FILE, MadeCommit

PROJECT = "demo"

_ALONE = RunPlan(device="cpu", block_count=5, sampling=SamplingPlan(warmup_ms=10, budget_ms=60))
# Blocks of every round add up, so a suspicion that one round leaves open meets more evidence in the next.
_AGAIN = replace(_ALONE, targets=(), block_count=8, sampling=SamplingPlan(warmup_ms=20, budget_ms=100))
_AGAIN_ROUNDS = 5
_AGAIN_BUDGET_S = 60.0
"""A machine so noisy that suspicions go on after this keeps them as what they are: not confirmed."""
_PULL_REQUEST = replace(_ALONE, block_count=8)


@dataclass(frozen=True)
class Measuring:
    folder: DemoFolder
    engine: Engine
    fork_server: ForkServer

    def measure_commit(self, commit: MadeCommit, name: str) -> None:
        """Collect one commit, keep its record on disk and in the store."""
        with self._suite_at(commit.sha) as suite:
            self._keep(collect_run(suite, _ALONE, fork_server=self.fork_server), name)

    def judge_until_sure(self) -> list[Regression]:
        """Judge the history; measure every suspicion again, base against head, largest first, until none is left or
        the budget is spent.
        """
        deadline = time.monotonic() + _AGAIN_BUDGET_S
        for number in range(1, _AGAIN_ROUNDS + 1):
            requests = unconfirmed(analyse_project(self.engine, PROJECT))
            for (base_sha, head_sha), subjects in _by_commits(requests).items():
                if time.monotonic() > deadline:
                    break
                kernels = tuple(sorted({subject.case_id.split("/")[0] for subject in subjects}))
                plan = replace(_AGAIN, kernels=kernels)
                for record in self._measure_pair(base_sha, head_sha, plan, frozenset(subjects)):
                    self._keep(record, f"again-{number}-{head_sha[:12]}-{record.commit.sha[:12]}")
        return analyse_project(self.engine, PROJECT)

    def judge_pull_request(self, base: MadeCommit, head: MadeCommit) -> PullRequestJudgement:
        """Measure head against base as the job of a pull request would, and judge the two records alone."""
        records = self._measure_pair(base.sha, head.sha, _PULL_REQUEST, None)
        for record in records:
            self._keep(record, f"pull-request-{record.commit.sha[:12]}")
        return judge_pull_request(*records)

    def _measure_pair(
        self, base_sha: str, head_sha: str, plan: RunPlan, only: frozenset[Subject] | None
    ) -> tuple[RunRecord, RunRecord]:
        with self._suite_at(base_sha) as base, self._suite_at(head_sha) as head:
            return measure_pair(base, head, plan, fork_server=self.fork_server, only=only)

    def _suite_at(self, sha: str) -> AbstractContextManager[SuiteAt]:
        benchmark = self.folder.repository / BENCHMARK_FILE
        return suite_at_revision(benchmark, sha, self.folder.work_trees / sha[:12], project=PROJECT)

    def _keep(self, record: RunRecord, name: str) -> None:
        record.write(self.folder.records / f"{name}.json")
        ingest_record(self.engine, record)


def _by_commits(requests: Sequence[PairRequest]) -> dict[tuple[str, str], list[Subject]]:
    grouped: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for request in requests:
        grouped[request.base.sha, request.head.sha].append(Subject(request.case_id, request.implementation))
    return grouped
