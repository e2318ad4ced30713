"""Two commits measured as a pair: blocks are added, caches are separate, and each side has its own
kernels.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_protocol import Subject
from tests.builders import make_commit
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.measurement.benchmark import benchmark

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

SUITE = Path(__file__).parents[1] / "suites" / "bench_good.py"
QUICK = RunPlan(
    implementations=("torch",),
    targets=(),
    device="cpu",
    block_count=2,
    sampling=SamplingPlan(warmup_ms=1, budget_ms=1, min_samples=3, max_samples=3),
)
SCALE = Subject("scale/n=1000/float32/fwd", "torch")


def suite_at(path: Path, number: int) -> SuiteAt:
    return SuiteAt(SuiteSource(path, (path.parent,)), make_commit(number), "pairs")


def block_counts(record: RunRecord) -> dict[str, int]:
    return {measured.case_id: len(measured.blocks) for measured in record.measurements}


def test_both_sides_of_a_pair_get_the_blocks_that_are_requested_with_one_set_of_ceilings(
    fork_server: ForkServer,
) -> None:
    looks: list[dict[str, int]] = []

    def more(base: RunRecord, head: RunRecord) -> Mapping[Subject, int]:
        assert block_counts(base) == block_counts(head)
        looks.append(block_counts(base))
        return [{SCALE: 4}, {SCALE: 5}, {}][len(looks) - 1]

    plan = replace(QUICK, has_profiles=True)
    base, head = measure(
        [suite_at(SUITE, 1), suite_at(SUITE, 2)], plan, fork_server=fork_server, more=more
    )

    assert [look[SCALE.case_id] for look in looks] == [2, 4, 5]
    for record in (base, head):
        assert block_counts(record).pop(SCALE.case_id) == 5
        assert {
            count for case_id, count in block_counts(record).items() if case_id != SCALE.case_id
        } == {2}
        timed = {
            (measured.case_id, measured.implementation)
            for measured in record.measurements
            if measured.blocks
        }
        assert {(profile.case_id, profile.implementation) for profile in record.profiles} == timed
        assert all(row.kind == "operator" for profile in record.profiles for row in profile.rows)
    assert base.ceilings == head.ceilings, (
        "a change of comments moves the utilisation by no more than the time"
    )
    base_ideal_ns, head_ideal_ns = (
        [(one.utilisation or 0) * (one.median_ns or 0) for one in record.measurements]
        for record in (base, head)
    )
    assert all(base_ideal_ns)
    assert head_ideal_ns == pytest.approx(base_ideal_ns)


def test_a_job_whose_time_is_over_keeps_what_it_has(fork_server: ForkServer) -> None:
    looks: list[int] = []

    def is_over() -> bool:
        """After the first block of both sides."""
        looks.append(len(looks))
        return len(looks) > 1

    base, head = measure(
        [suite_at(SUITE, 1), suite_at(SUITE, 2)], QUICK, fork_server=fork_server, is_over=is_over
    )

    assert block_counts(base) == block_counts(head)
    assert list(block_counts(base).values()) == [1]
    assert len(head.accuracies) > 1
    assert (base.is_partial, head.is_partial) == (True, True)


def test_each_side_has_its_own_temporary_compiler_cache(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    suites = []
    for number, side in enumerate(("base", "head")):
        note = tmp_path / f"{side}.txt"
        suite = tmp_path / side / "bench_noting.py"
        suite.parent.mkdir()
        suite.write_text(
            "import os\n"
            "if 'TRITON_INTERPRET' not in os.environ:\n"
            f"    with open({str(note)!r}, 'a') as note:\n"
            "        print(os.environ['TRITON_CACHE_DIR'], os.environ['TORCHINDUCTOR_CACHE_DIR'], "
            "file=note)\n" + SUITE.read_text()
        )
        suites.append(suite_at(suite, number))

    measure(suites, replace(QUICK, kernels=("total",)), fork_server=fork_server)

    base, head = (
        set((tmp_path / f"{side}.txt").read_text().splitlines()) for side in ("base", "head")
    )
    assert len(base) == len(head) == 1
    assert not base & head
    assert not any(Path(folder).exists() for line in base | head for folder in line.split())


def commit_kernels(repository: Path, factor: int) -> str:
    """Commit `kernels/` with a registry and a module that it imports."""
    (repository / "kernels" / "memory").mkdir(parents=True, exist_ok=True)
    (repository / "kernels" / "__init__.py").touch()
    (repository / "kernels" / "memory" / "__init__.py").touch()
    (repository / "kernels" / "memory" / "scaling.py").write_text(
        f"def scaled(x):\n    return {factor} * x\n"
    )
    doubling = benchmark("doubling", module="roofwatch.kernels.memory.scaling", function="scaled")
    (repository / "kernels" / "registry.py").write_text(
        f"{doubling}\n\ndef suite():\n    return (doubling,)\n"
    )
    return commit_all(make_repository(repository))


def test_each_side_of_a_pair_measures_the_bundled_kernels_of_its_own_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    repository = tmp_path / "repository"
    base_sha, head_sha = commit_kernels(repository, 2), commit_kernels(repository, 3)
    monkeypatch.setattr("roofwatch.collector.build.revision.find_repository", lambda _: repository)
    with suite_at_revision(None, base_sha) as base, suite_at_revision(None, head_sha) as head:
        records = measure([base, head], replace(QUICK, block_count=1), fork_server=fork_server)

    assert [record.commit.sha for record in records] == [base_sha, head_sha]
    outcomes = [[measured.outcome for measured in record.measurements] for record in records]
    assert outcomes == [[Outcome.OK], [Outcome.INCORRECT]], "three times as much is not double"
