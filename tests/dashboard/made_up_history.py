"""Store a made-up history of three GPUs over 95 days, on which the dashboard is tried out.

    python -m tests.dashboard.made_up_history FOLDER

120 commits are measured on an H100, a B200 and an MI300X: ten kernels, and a step of a model that
calls them. It has three releases, a new driver and a
new toolchain, four hot days of the H100, planted changes of kernels with their machine code, pairs
that confirm some of them, a repair, and newest values that nothing has judged yet.
"""

import hashlib
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.agenda import take_job
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.agenda import JobKind, PlannedJob
from roofwatch.model.history import Regression
from roofwatch.model.measurement import (
    Measurement,
)
from roofwatch.model.record import Commit, PairMember, RunRecord, Side
from roofwatch.model.source_line import SourceLine
from tests.dashboard.made_up_plan import COMMIT_COUNT, GPUS, KERNELS, PLANTED, Gpu
from tests.dashboard.made_up_results import (
    make_case,
    make_ceilings,
    make_environment,
    make_measurement,
    make_static_facts,
    source_digest,
)
from tests.dashboard.made_up_workload import make_workload

PROJECT = "acme/kernels"
DAY_COUNT = 95
_PAIR_BLOCK_COUNT = 16
_RELEASES = {18: "v0.4.0", 58: "v0.5.0", 99: "v0.6.0"}
_AUTHORS = ("Mara Lindqvist", "Tomás Pereira", "Wen Li", "Aisha Bello", "Jonas Weber")
_SUBJECTS = (
    "Document the layout of paged caches",
    "Use async copies in the prologue of {kernel}",
    "Skip masked tiles of {kernel}",
    "Add tests of odd shapes for {kernel}",
    "Rename the helpers of {kernel}",
    "Clean up the launcher of {kernel}",
    "Support strided inputs in {kernel}",
)


def store(engine: Engine, ended_at: datetime) -> list[Regression]:
    """Ingest all runs and pairs, plan the jobs of a runner, and analyse; the newest commit was made
    at `ended_at`.
    """
    commits = list(_commits(ended_at))
    for record in _records(commits):
        ingest_record(engine, record)
    _plan_jobs(engine, commits)
    return analyse_project(engine, PROJECT)


def _commits(ended_at: datetime) -> Iterator[Commit]:
    rng = np.random.default_rng(5)
    between = timedelta(days=DAY_COUNT) / (COMMIT_COUNT - 1)
    planted = {change.commit_number: change.subject for change in PLANTED}
    # The number of the pull request is that of the one planted change that is repaired.
    repaired = {
        change.repaired_at: f"Restore the single pass of {change.kernel} (#1279)"
        for change in PLANTED
        if change.repaired_at < COMMIT_COUNT
    }
    for number in range(COMMIT_COUNT):
        kernel = KERNELS[int(rng.integers(len(KERNELS)))].name
        subject = _SUBJECTS[number % len(_SUBJECTS)].format(kernel=kernel)
        subject = f"{subject} (#{1_190 + number})"
        parents = (_sha(number - 1),) if number else ()
        tags = (_RELEASES[number],) if number in _RELEASES else ()
        yield Commit(
            sha=_sha(number),
            parents=parents,
            first_parent_count=number + 1,
            committed_at=ended_at - between * (COMMIT_COUNT - 1 - number),
            author=_AUTHORS[int(rng.integers(len(_AUTHORS)))],
            subject=planted.get(number) or repaired.get(number) or subject,
            branch="main",
            tags=tags,
        )


def _sha(number: int) -> str:
    return hashlib.sha1(f"made up {number}".encode(), usedforsecurity=False).hexdigest()


def _records(commits: list[Commit]) -> Iterator[RunRecord]:
    for gpu in GPUS:
        for number, commit in enumerate(commits):
            yield _run(gpu, number, commit)
        yield from _pair(
            gpu=gpu,
            commits=commits,
            base=0,
            head=0,
        )
        for change in PLANTED:
            if change.is_confirmed and gpu.name in change.gpus:
                yield from _pair(
                    gpu=gpu,
                    commits=commits,
                    base=change.commit_number - 1,
                    head=change.commit_number,
                    kernel=change.kernel,
                )


def _run(gpu: Gpu, number: int, commit: Commit) -> RunRecord:
    started_at = commit.committed_at + timedelta(minutes=40)
    rng = np.random.default_rng([number, GPUS.index(gpu)])
    # of the eight nodes that share the work, each keeps its own small deviation
    node = int(rng.integers(2))
    measurements: list[Measurement] = []
    for kernel in KERNELS:
        for shape in kernel.shapes:
            ours, rival = (
                make_measurement(
                    gpu=gpu,
                    number=number,
                    kernel=kernel,
                    shape=shape,
                    implementation=implementation,
                    rng=rng,
                    started_at=started_at,
                )
                for implementation in ("triton", kernel.rival)
            )
            measurements += [ours.model_copy(update={"reference_ns": rival.median_ns}), rival]
    cases = tuple(make_case(kernel, shape) for kernel in KERNELS for shape in kernel.shapes)
    # drawn on its own: what the kernels draw stays as it is
    workload = make_workload(
        measurements,
        cases,
        rng=np.random.default_rng([number, GPUS.index(gpu), 1]),
        started_at=started_at,
    )
    return RunRecord(
        run_id=uuid.UUID(int=rng.integers(1 << 62).item() << 62 | number, version=4),
        project=PROJECT,
        commit=commit,
        started_at=started_at,
        finished_at=started_at + timedelta(minutes=9),
        harness_version="1",
        environment=make_environment(gpu, number),
        machine=hashlib.sha256(f"{gpu.name} {node}".encode()).hexdigest()[:12],
        ceilings=make_ceilings(gpu, rng),
        cases=(*cases, workload.case),
        measurements=(*measurements, *workload.measurements),
        profiles=(workload.profile,),
        imported=workload.shares,
        static_facts=tuple(make_static_facts(gpu, number)),
        source_digests={kernel.name: source_digest(kernel, number) for kernel in KERNELS},
        source_lines=tuple(
            SourceLine(
                kernel=kernel.name,
                implementation="triton",
                function=f"_{kernel.name}_kernel",
                file=f"kernels/{kernel.name}.py",
                line=38,
                is_jitted=True,
            )
            for kernel in KERNELS
        ),
        suite="bench_kernels.py",
        spent_ns={
            "compile": 95 * 10**9,
            "check": 70 * 10**9,
            "warm_up": 40 * 10**9,
            "timing": 290 * 10**9,
        },
    )


def _pair(
    gpu: Gpu,
    commits: list[Commit],
    base: int,
    head: int,
    *,
    kernel: str = "",
) -> Iterator[RunRecord]:
    """Measure two commits in one job: all kernels, or one."""
    pair_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{gpu.name} {base} {head} {kernel}")
    started_at = commits[head].committed_at + timedelta(hours=3)
    rng = np.random.default_rng([base, head, GPUS.index(gpu)])
    machine = _run(gpu, head, commits[head]).machine
    for side, number in ((Side.BASE, base), (Side.HEAD, head)):
        whole = _run(gpu, number, commits[number])
        measurements: list[Measurement] = []
        for timed in KERNELS:
            if kernel not in {"", timed.name}:
                continue
            for shape in timed.shapes:
                measured = make_measurement(
                    gpu=gpu,
                    number=number,
                    kernel=timed,
                    shape=shape,
                    implementation="triton",
                    rng=rng,
                    started_at=started_at,
                    block_count=_PAIR_BLOCK_COUNT,
                )
                measurements.append(measured)
        yield whole.model_copy(
            update={
                "run_id": uuid.uuid5(pair_id, side),
                "machine": machine,
                "pairing": PairMember(pair_id=pair_id, side=side),
                "measurements": tuple(measurements),
                "profiles": (),
                "imported": (),
                "started_at": started_at,
                "finished_at": started_at + timedelta(minutes=4),
            }
        )


def _plan_jobs(engine: Engine, commits: list[Commit]) -> None:
    newest = commits[-1]
    previous = commits[-2]
    for gpu in GPUS:
        confirm = PlannedJob(
            key=f"confirm:{previous.sha}:{newest.sha}",
            kind=JobKind.CONFIRM,
            reason="layer_norm/n=8192/bfloat16/fwd triton: the newest value differs by +17.0%",
            expected_s=240,
            base_sha=previous.sha,
            head_sha=newest.sha,
        )
        calibrate = replace(
            confirm,
            key=f"calibrate:{newest.sha}:{newest.sha}",
            kind=JobKind.CALIBRATE,
            reason="the noise floor is old",
            expected_s=1_080,
            base_sha=newest.sha,
        )
        if gpu.name == "NVIDIA H100":
            jobs = [confirm, calibrate]
        else:
            jobs = [calibrate]
        runner_class = make_environment(gpu, COMMIT_COUNT).runner_class
        take_job(
            engine=engine,
            project=PROJECT,
            runner_class=runner_class,
            jobs=jobs,
            claim_id=uuid.uuid4(),
        )


if __name__ == "__main__":
    with open_store(folder=Path(sys.argv[1])) as opened:
        regressions = store(opened, datetime.now(UTC).replace(microsecond=0))
    for regression in regressions:
        print(regression.commit.short_sha, regression.kernel, regression.verdict)
