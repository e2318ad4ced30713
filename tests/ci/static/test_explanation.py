"""The sentence that says what moved and why that matters."""

from typing import Any

import pytest

from roofwatch.ci.static.explanation import explain
from roofwatch.collector.record.results import StaticFacts
from tests.builders import make_static_facts

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}


def said(base: StaticFacts, head: StaticFacts) -> str | None:
    remark = explain(base, head)
    return None if remark is None else str(remark)


def facts(**fields: Any) -> StaticFacts:
    return make_static_facts(**{"configuration": TILE, "shared_bytes": None} | fields)


def with_instructions(**counts: int) -> StaticFacts:
    return facts(instructions={"barrier": 1} | {name.replace("__", "."): count for name, count in counts.items()})


def test_a_tile_that_no_longer_fits_is_told_with_its_numbers() -> None:
    base = facts(registers=128, spill_store_count=0, local_bytes=0, theoretical_occupancy=0.25)
    head = facts(
        registers=255,
        spill_store_count=226,
        local_bytes=904,
        theoretical_occupancy=0.125,
        occupancy_limits=("registers",),
    )

    assert said(base, head) == (
        "registers 128 → 255, spills 0 → 226 stores, memory per thread 0 B → 904 B, occupancy 25.0% → 12.5%: "
        "the tile of 128 × 128 (BLOCK_M, BLOCK_N) no longer fits into the registers of 4 warps, of which a thread has "
        "255 at most; how many blocks run at once is limited by registers"
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (0, 8, "the tile of 128 × 128 (BLOCK_M, BLOCK_N) no longer fits into the registers of 4 warps"),
        (8, 16, "less of the tile of 128 × 128 (BLOCK_M, BLOCK_N) fits into the registers of 4 warps"),
        (16, 8, "more of the tile of 128 × 128 (BLOCK_M, BLOCK_N) fits into the registers of 4 warps"),
        (8, 0, "the tile of 128 × 128 (BLOCK_M, BLOCK_N) fits into the registers of 4 warps"),
    ],
)
def test_spills_are_told_by_what_fits(before: int, after: int, words: str) -> None:
    sentence = said(facts(local_bytes=before), facts(local_bytes=after))

    assert sentence == f"memory per thread {before} B → {after} B: {words}"


def test_narrower_loads_are_told_by_how_many_more_there_are() -> None:
    wide, narrow = with_instructions(global_load__128=2), with_instructions(global_load__32=8)

    assert said(wide, narrow) == "global loads 128 bit → 32 bit: four times the instructions for the same bytes"
    assert said(narrow, wide) == "global loads 32 bit → 128 bit: the same bytes in instructions four times as wide"


def test_tensor_cores_that_are_not_used_any_more_are_told() -> None:
    none, lesser, best = with_instructions(), with_instructions(tensor__HMMA=64), with_instructions(tensor__HGMMA=4)

    assert said(lesser, none) == (
        "tensor-core instructions 64 HMMA → 0: products run on ordinary arithmetic units now, many times slower than "
        "the tensor cores"
    )
    assert said(best, lesser) == (
        "tensor-core instructions 4 HGMMA → 64 HMMA: instructions of one warp or wavefront reach less of the tensor "
        "cores than warpgroup instructions"
    )
    assert said(none, best) == "tensor-core instructions 0 → 4 HGMMA: products run as warpgroup instructions now"


def test_loads_that_no_longer_run_ahead_are_told() -> None:
    sentence = said(with_instructions(async_copy__128=8), with_instructions(global_load__128=8))

    assert sentence == ("asynchronous copies 8 → 0: no load runs ahead of the arithmetic in shared memory any more")


def test_a_block_that_does_not_fit_at_all_is_told_so() -> None:
    sentence = said(
        facts(shared_bytes=65_536, theoretical_occupancy=0.1), facts(shared_bytes=262_144, theoretical_occupancy=0.0)
    )

    assert sentence == (
        "shared memory 64 KiB → 256 KiB, occupancy 10.0% → 0.0%: not one block fits on a multiprocessor of sm_90 any "
        "more, so it cannot be launched"
    )


def test_what_changed_in_the_configuration_is_named_the_options_of_the_launch_first() -> None:
    base = facts(configuration={"BLOCK_M": 64, "num_warps": 8, "num_stages": 2})
    head = facts(configuration={"BLOCK_M": 128, "GROUP": 4, "num_warps": 4, "num_stages": 2}, registers=64)

    assert said(base, head) == (
        "registers 32 → 64; in the configuration num_warps 8 → 4, BLOCK_M 64 → 128, GROUP – → 4"
    )


def test_the_size_of_the_code_is_told_where_nothing_else_moved() -> None:
    assert said(facts(code_bytes=2048), facts(code_bytes=4096)) == "code 2 KiB → 4 KiB"
    assert said(facts(code_bytes=2048), facts(code_bytes=4096, registers=40)) == "registers 32 → 40"


def test_names_of_a_record_are_kept_apart_from_our_words() -> None:
    remark = explain(facts(), facts(configuration=TILE | {"{0} <b>": "{}"}, local_bytes=8))

    assert remark is not None
    assert remark.words == ("BLOCK_M", "BLOCK_N", "{0} <b>", "–", "{}")
    assert str(remark).endswith("in the configuration {0} <b> – → {}")
