"""Two commits measured as a pair: more blocks where they are asked for, and nothing compiled that the sides share."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import measure_pair
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from tests.builders import make_commit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

SUITE = Path(__file__).parents[1] / "suites" / "bench_good.py"
QUICK = RunPlan(
    implementations=("eager",),
    targets=(),
    device="cpu",
    block_count=2,
    sampling=SamplingPlan(warmup_ms=1, budget_ms=1, min_samples=3, max_samples=3),
)
SCALE = Subject("scale/n=1000/float32/fwd", "eager")


def suite_at(path: Path, number: int) -> SuiteAt:
    return SuiteAt(SuiteSource(path, (path.parent,)), make_commit(number), "pairs")


def block_counts(record: RunRecord) -> dict[str, int]:
    return {measured.case_id: len(measured.blocks) for measured in record.measurements}


def test_blocks_are_added_where_requested(fork_server: ForkServer) -> None:
    looks: list[dict[str, int]] = []

    def more(base: RunRecord, head: RunRecord) -> Mapping[Subject, int]:
        assert block_counts(base) == block_counts(head)
        looks.append(block_counts(base))
        return [{SCALE: 4}, {SCALE: 5}, {}][len(looks) - 1]

    plan = replace(QUICK, has_profiles=True)
    base, head = measure_pair(suite_at(SUITE, 1), suite_at(SUITE, 2), plan, fork_server=fork_server, more=more)

    assert [look[SCALE.case_id] for look in looks] == [2, 4, 5]
    for record in (base, head):
        assert block_counts(record).pop(SCALE.case_id) == 5
        assert {count for case_id, count in block_counts(record).items() if case_id != SCALE.case_id} == {2}
        timed = {(measured.case_id, measured.implementation) for measured in record.measurements if measured.blocks}
        assert {(profile.case_id, profile.implementation) for profile in record.profiles} == timed
        assert all(row.kind == "operator" for profile in record.profiles for row in profile.rows)


def test_each_side_has_its_own_temporary_compiler_cache(tmp_path: Path, fork_server: ForkServer) -> None:
    suites = []
    for number, side in enumerate(("base", "head")):
        note = tmp_path / f"{side}.txt"
        suite = tmp_path / side / "bench_noting.py"
        suite.parent.mkdir()
        suite.write_text(
            "import os\n"
            "if 'TRITON_INTERPRET' not in os.environ:\n"
            f"    with open({str(note)!r}, 'a') as note:\n"
            "        print(os.environ['TRITON_CACHE_DIR'], os.environ['TORCHINDUCTOR_CACHE_DIR'], file=note)\n"
            + SUITE.read_text()
        )
        suites.append(suite_at(suite, number))

    measure_pair(suites[0], suites[1], replace(QUICK, kernels=("total",)), fork_server=fork_server)

    base, head = (set((tmp_path / f"{side}.txt").read_text().splitlines()) for side in ("base", "head"))
    assert len(base) == len(head) == 1
    assert not base & head
    assert not any(Path(folder).exists() for line in base | head for folder in line.split())
