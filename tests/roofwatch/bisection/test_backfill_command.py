"""`roofwatch backfill` as a user runs it."""

from pathlib import Path

import pytest

from roofwatch.bisection.backfill import BackfillJob
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.errors import SuiteError
from roofwatch.model.record import RunRecord
from tests.roofwatch.bisection.slowed_repository import SlowedRepository, make_slowed_repository
from tests.roofwatch.command import roofwatch

pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> SlowedRepository:
    return make_slowed_repository(tmp_path_factory.mktemp("backfill") / "slowed")


def test_commits_are_measured_in_order_and_the_same_command_continues(
    slowed: SlowedRepository, tmp_path: Path
) -> None:
    commits = f"{slowed.shas[1]}..{slowed.shas[7]}"
    places = ("--records", tmp_path, "--output", tmp_path, "--device", "cpu")
    command = (
        "backfill",
        slowed.benchmark,
        "--range",
        commits,
        *places,
        "--max-runs",
        "1",
        "--json",
    )

    first = roofwatch(*command)
    planned = roofwatch(*command, "--dry-run")

    assert first.status == 0, first.error
    order = [one["sha"] for one in first.parsed["order"]]
    assert order == [slowed.shas[7], slowed.shas[5], slowed.shas[4]]
    assert first.parsed["order"][0]["aim"] == "newest"
    reasons = {one["sha"]: one["reason"] for one in first.parsed["skipped"]}
    assert reasons.keys() == {slowed.shas[2], slowed.shas[3], slowed.shas[6]}
    assert "no source of the kernel changed" in reasons[slowed.shas[2]]
    assert "not today" in reasons[slowed.shas[3]]
    (done,) = first.parsed["done"]
    record = RunRecord.read(Path(done["record"]))
    assert record.commit.sha == slowed.shas[7]
    assert record.project == "slowed"
    assert not record.commit.is_dirty
    assert planned.parsed["measured_before"] == [slowed.shas[7]]
    assert [one["sha"] for one in planned.parsed["order"]] == order[1:]
    assert planned.parsed["done"] == []


@pytest.mark.parametrize("commits", ["HEAD", "HEAD...HEAD^", "HEAD..HEAD^"])
def test_an_invalid_range_is_refused(
    slowed: SlowedRepository, tmp_path: Path, commits: str
) -> None:
    with ForkServer() as fork_server:
        job = BackfillJob(
            slowed.benchmark, "slowed", commits, RunPlan(), tmp_path, tmp_path, fork_server
        )

        with pytest.raises(SuiteError, match=r"write A\.\.B|no commits between"):
            job.plan_it(skips_same=True)
