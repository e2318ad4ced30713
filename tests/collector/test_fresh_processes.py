"""Which process a block comes from."""

from typing import Any, cast

from roofwatch.collector.run import _Steps, _take_blocks
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.collector.workers.worker_pool import WorkerPool

FIRST, SECOND = Subject("a/n=1/float32/fwd", "eager"), Subject("b/n=1/float32/fwd", "eager")


class StandIn:
    """A suite that is measured, and its workers: what happened to both, in order."""

    def __init__(self, plan: RunPlan, taken: dict[Subject, int]) -> None:
        self.plan = plan
        self.to_time = list(taken)
        self.happened: list[str] = []
        self._taken = taken

    def lacks_block(self, subject: Subject, number: int) -> bool:
        return self._taken[subject] <= number

    def cool_down(self, on_wait: Any) -> None:
        pass

    def take_block(self, workers: Any, subject: Subject) -> None:
        assert workers is self
        self._taken[subject] += 1
        self.happened.append(subject.case_id[0])

    def stop(self) -> None:
        self.happened.append("fresh")


def happened(*, fresh: bool, first: int = 0, second: int = 0) -> list[str]:
    """Of two subjects of which so many blocks were there before, and three are wanted."""
    run = StandIn(RunPlan(block_count=3, has_fresh_processes=fresh), {FIRST: first, SECOND: second})
    _take_blocks(cast("SuiteRun", run), cast("WorkerPool", run), _Steps(lambda _: None))
    return run.happened


def test_what_is_to_be_confirmed_has_each_block_from_a_process_that_timed_none_before() -> None:
    assert happened(fresh=True) == ["fresh", "a", "b"] * 3
    assert [EFFORTS[preset].has_fresh_processes for preset in Preset] == [False, False, True]


def test_otherwise_processes_stay_for_all_blocks() -> None:
    assert happened(fresh=False) == ["a", "b"] * 3


def test_no_process_is_started_for_blocks_that_are_there() -> None:
    assert happened(fresh=True, first=2, second=1) == ["fresh", "b", "fresh", "a", "b"]
