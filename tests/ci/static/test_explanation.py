"""Why one compiled function keeps values in local memory."""

from typing import Any

import pytest

from roofwatch.ci.static.explanation import explain_spills
from tests.builders import make_static_facts

TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "num_warps": 4}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"local_bytes": 0, "registers": 255}, None),
        (
            {"registers": 255, "thread_count": 128, "spill_store_count": 30, "local_bytes": 456},
            "spills: the tile of 128 × 256 (BLOCK_M, BLOCK_N) does not fit into the registers of "
            "4 warps (at most 255 per thread); 456 B per thread are in local memory, with 30 "
            "stores and 0 loads",
        ),
        (
            {"registers": 64, "thread_count": 1_024, "local_bytes": 8, "configuration": {}},
            "spills: what a thread works on does not fit into the registers of a block (at most "
            "64 per thread); 8 B per thread are in local memory",
        ),
        (
            {"registers": 40, "thread_count": 128, "local_bytes": 64},
            "spills with 40 registers per thread: an array with a variable index, or a limit that "
            "the launch sets; 64 B per thread are in local memory",
        ),
        (
            {"target": "gfx942", "registers": 512, "spilled_registers": 12, "local_bytes": 48},
            "spills: the tile of 128 × 256 (BLOCK_M, BLOCK_N) does not fit into the registers of "
            "4 warps; 48 B per thread are in local memory",
        ),
    ],
)
def test_the_reason_of_spills_is_named(facts: dict[str, Any], expected: str | None) -> None:
    fields: dict[str, Any] = {"configuration": TILE, **facts}
    function = make_static_facts(**fields)
    explained = explain_spills(function)
    assert (None if explained is None else str(explained)) == expected
