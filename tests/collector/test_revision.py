"""The bundled suite measured at two commits of its repository."""

from pathlib import Path

import pytest

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import measure_pair
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import suite_at_revision
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from tests.git_repository import commit_all, make_repository

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

REGISTRY = """
from roofwatch import KernelSpec, cases
from roofwatch.kernels.memory.factor import FACTOR

scale = KernelSpec(
    name="scale",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: FACTOR * x,
    cases=cases(shapes=[{"n": 1000 * FACTOR}], directions=["fwd"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@scale.implementation("torch")
def eager(x):
    return x * FACTOR


def suite():
    return (scale,)
"""


def commit_kernels(repository: Path, factor: int) -> str:
    """Commit `kernels/` with a registry and a module that it imports."""
    (repository / "kernels" / "memory").mkdir(parents=True, exist_ok=True)
    (repository / "kernels" / "__init__.py").touch()
    (repository / "kernels" / "memory" / "__init__.py").touch()
    (repository / "kernels" / "memory" / "factor.py").write_text(f"FACTOR = {factor}\n")
    (repository / "kernels" / "registry.py").write_text(REGISTRY)
    return commit_all(make_repository(repository))


def test_each_side_of_a_pair_measures_the_bundled_kernels_of_its_own_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    base_sha, head_sha = commit_kernels(repository, 2), commit_kernels(repository, 3)
    monkeypatch.setattr("roofwatch.collector.suite.find_repository", lambda _: repository)
    sampling = SamplingPlan(warmup_ms=1, budget_ms=1, min_samples=3, max_samples=3)
    plan = RunPlan(targets=(), device="cpu", block_count=1, sampling=sampling)

    with (
        suite_at_revision(None, base_sha, tmp_path / "base") as base,
        suite_at_revision(None, head_sha, tmp_path / "head") as head,
        ForkServer() as fork_server,
    ):
        records = measure_pair(base, head, plan, fork_server=fork_server)

    def measured(record: RunRecord) -> list[tuple[str, Outcome]]:
        return [(one.case_id, one.outcome) for one in record.measurements]

    assert [record.commit.sha for record in records] == [base_sha, head_sha]
    assert measured(records[0]) == [("scale/n=2000/float32/fwd", Outcome.OK)]
    assert measured(records[1]) == [("scale/n=3000/float32/fwd", Outcome.OK)]
