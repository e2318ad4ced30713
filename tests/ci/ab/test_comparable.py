"""Which times of one case compare, block by block and as bare medians."""

from dataclasses import replace

from roofwatch.ci.ab.comparable import BlockTiming, refuse_medians, refuse_timing

HOT = BlockTiming(timer="cupti", cache="hot", launches_per_sample=8, block_count=3)


def test_fewer_launches_in_a_sample_are_what_a_slower_kernel_has_and_refuse_a_verdict_alone() -> None:
    slower = replace(HOT, launches_per_sample=4, block_count=2)

    assert refuse_medians(HOT, slower) is None
    assert str(refuse_timing(HOT, slower)) == "launches per sample 8 and 4; blocks 3 and 2"


def test_another_timer_or_cache_state_refuses_both() -> None:
    other = replace(HOT, timer="cuda_event", cache="cold")

    assert (
        str(refuse_medians(HOT, other))
        == str(refuse_timing(HOT, other))
        == "timer cupti and cuda_event; cache hot and cold"
    )
    assert refuse_timing(HOT, HOT) is None
