"""The sentence that says what changed in compiled code and why it matters."""

from typing import Any

import pytest

from roofwatch.ci.static.explanation import explain
from roofwatch.collector.record.results import StaticFacts
from tests.builders import make_static_facts

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}


def facts(**fields: Any) -> StaticFacts:
    return make_static_facts(**{"configuration": TILE, "shared_bytes": None} | fields)


def with_instructions(**counts: int) -> StaticFacts:
    return facts(instructions={"barrier": 1} | {name.replace("__", "."): count for name, count in counts.items()})


def with_occupancy(occupancy: float, *limits: str, **fields: Any) -> StaticFacts:
    return facts(theoretical_occupancy=occupancy, occupancy_limits=limits, **fields)


FITS = with_occupancy(0.25, registers=128, spill_store_count=0, local_bytes=0)
SPILLS = with_occupancy(0.125, "registers", registers=255, spill_store_count=226, local_bytes=904)
EAGER, HMMA, HGMMA = with_instructions(), with_instructions(tensor__HMMA=64), with_instructions(tensor__HGMMA=4)


@pytest.mark.parametrize(
    ("base", "head", "sentence"),
    [
        (
            FITS,
            SPILLS,
            "registers 128 → 255, spills 0 → 226 stores, memory per thread 0 B → 904 B, occupancy 25.0% → 12.5%: "
            "the tile of 128 × 128 (BLOCK_M, BLOCK_N) no longer fits into the registers of 4 warps (at most 255 per "
            "thread); occupancy is limited by registers",
        ),
        (
            facts(local_bytes=16),
            facts(local_bytes=8),
            "memory per thread 16 B → 8 B: more of the tile of 128 × 128 (BLOCK_M, BLOCK_N) fits into the registers of "
            "4 warps",
        ),
        (
            with_instructions(global_load__128=2),
            with_instructions(global_load__32=8),
            "global loads 128 bit → 32 bit: four times the instructions for the same bytes",
        ),
        (
            HMMA,
            EAGER,
            "tensor-core instructions 64 HMMA → 0: matrix products no longer use tensor cores and are many times "
            "slower",
        ),
        (
            HGMMA,
            HMMA,
            "tensor-core instructions 4 HGMMA → 64 HMMA: instructions of one warp or wavefront use less of the tensor "
            "cores than warpgroup instructions",
        ),
        (EAGER, HGMMA, "tensor-core instructions 0 → 4 HGMMA: matrix products now use warpgroup instructions"),
        (
            with_instructions(async_copy__128=8),
            with_instructions(global_load__128=8),
            "asynchronous copies 8 → 0: loads no longer overlap with arithmetic through shared memory",
        ),
        (
            with_occupancy(0.1, shared_bytes=65_536),
            with_occupancy(0.0, shared_bytes=262_144),
            "shared memory 64 KiB → 256 KiB, occupancy 10.0% → 0.0%: no block fits on a multiprocessor of sm_90: the "
            "kernel cannot be launched",
        ),
        (
            facts(configuration={"BLOCK_M": 64, "num_warps": 8, "num_stages": 2}),
            facts(configuration={"BLOCK_M": 128, "GROUP": 4, "num_warps": 4, "num_stages": 2}, registers=64),
            "registers 32 → 64; configuration: num_warps 8 → 4, BLOCK_M 64 → 128, GROUP – → 4",
        ),
        (facts(code_bytes=2048), facts(code_bytes=4096), "code 2 KiB → 4 KiB"),
    ],
    ids=["spills", "fewer spills", "access width", "no tensor cores", "lesser path", "better path", "copies", "fit",
         "configuration", "size"],
)  # fmt: skip
def test_a_change_is_explained_with_its_numbers(base: StaticFacts, head: StaticFacts, sentence: str) -> None:
    assert str(explain(base, head)) == sentence


def test_names_from_a_record_are_kept_apart_from_the_sentence() -> None:
    remark = explain(facts(), facts(configuration=TILE | {"{0} <b>": "{}"}, local_bytes=8))

    assert remark is not None
    assert remark.words == ("BLOCK_M", "BLOCK_N", "{0} <b>", "–", "{}")
    assert str(remark).endswith("configuration: {0} <b> – → {}")
