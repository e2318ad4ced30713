"""Measure the demo's commits, and confirm suspected changes with pairs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.history.history import unconfirmed
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import collect_run, measure_pair
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.suite import SuiteAt, suite_at_revision
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.values import ChangePoint, Regression
from roofwatch.demo.scenario import BENCHMARK_FILE, MadeCommit

PROJECT = "demo"

_SINGLE = RunPlan(device="cpu", block_count=5, sampling=SamplingPlan(warmup_ms=10, budget_ms=60))
# Evidence of all rounds adds up.
_CONFIRM = replace(_SINGLE, targets=(), block_count=8, sampling=SamplingPlan(warmup_ms=20, budget_ms=100))
_CONFIRM_ROUNDS = 5
_CONFIRM_BUDGET_S = 60.0
"""After this, remaining suspicions stay unconfirmed."""
_PULL_REQUEST = replace(_SINGLE, block_count=8)


@dataclass(frozen=True)
class Measuring:
    repository: Path
    work_trees: Path
    records: Path
    engine: Engine
    fork_server: ForkServer

    def measure_commit(self, commit: MadeCommit, name: str) -> None:
        """Measure one commit, write its record and store it."""
        with self._suite_at(commit.sha) as suite:
            self._store(collect_run(suite, _SINGLE, fork_server=self.fork_server), name)

    def confirm_suspicions(self) -> list[Regression]:
        """Analyse the history, and measure suspected changes as pairs until none is left or the budget is spent."""
        deadline = time.monotonic() + _CONFIRM_BUDGET_S
        for number in range(1, _CONFIRM_ROUNDS + 1):
            steps = unconfirmed(analyse_project(self.engine, PROJECT))
            for (base_sha, head_sha), subjects in _by_commits(steps).items():
                if time.monotonic() > deadline:
                    break
                kernels = tuple(sorted({subject.case_id.split("/")[0] for subject in subjects}))
                plan = replace(_CONFIRM, kernels=kernels)
                for record in self._measure_pair(base_sha, head_sha, plan, frozenset(subjects)):
                    self._store(record, f"confirm-{number}-{head_sha[:12]}-{record.commit.sha[:12]}")
        return analyse_project(self.engine, PROJECT)

    def judge_pull_request(self, base: MadeCommit, head: MadeCommit) -> PullRequestJudgement:
        """Compare two commits as a pull-request job does, from record files alone."""
        records = self._measure_pair(base.sha, head.sha, _PULL_REQUEST, None)
        for record in records:
            self._store(record, f"pull-request-{record.commit.sha[:12]}")
        return judge_pull_request(*records)

    def _measure_pair(
        self, base_sha: str, head_sha: str, plan: RunPlan, only: frozenset[Subject] | None
    ) -> tuple[RunRecord, RunRecord]:
        with self._suite_at(base_sha) as base, self._suite_at(head_sha) as head:
            return measure_pair(base, head, plan, fork_server=self.fork_server, only=only)

    def _suite_at(self, sha: str) -> AbstractContextManager[SuiteAt]:
        benchmark = self.repository / BENCHMARK_FILE
        return suite_at_revision(benchmark, sha, self.work_trees / sha[:12], project=PROJECT)

    def _store(self, record: RunRecord, name: str) -> None:
        record.write(self.records / f"{name}.json")
        ingest_record(self.engine, record)


def _by_commits(steps: Sequence[ChangePoint]) -> dict[tuple[str, str], list[Subject]]:
    grouped: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for step in steps:
        subject = Subject(step.series.case_id, step.series.implementation)
        grouped[step.previous_commit.sha, step.commit.sha].append(subject)
    return grouped
