from typing import Any

import pytest
import torch

from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.memory.copies import (
    embedding_gather,
    memory_copy,
    memory_copy_spec,
    transpose,
)
from roofwatch.kernels.memory.kv_cache_write import (
    kv_cache_write,
    kv_cache_write_reference,
    kv_cache_write_spec,
)
from roofwatch.kernels.memory.rotary import rotary
from roofwatch.model.machine import Outcome
from roofwatch.spec import Direction, Implementation, Language
from tests.kernels.builders import make_inputs


@pytest.mark.parametrize("hidden", [3, 2048, 2100])
def test_an_index_outside_of_the_table_gives_a_row_of_nan_and_leaves_the_others(
    device: str, hidden: int
):
    table = torch.randn(4, hidden, device=device)
    out = embedding_gather(table, torch.tensor([3, 4, 0, -1, 2**40], device=device))
    assert torch.equal(out[[0, 2]], table[[3, 0]])
    assert out[[1, 3, 4]].isnan().all()


def test_full_cases_are_larger_than_any_cache():
    full = [case for case in memory_copy_spec.cases if "llama_3_1_8b" in case.tags]
    assert full
    for case in full:
        assert case["n_rows"] * case["n_cols"] * case.itemsize > 256 * 2**20


def test_one_row_repeated_without_memory_of_its_own_is_copied_row_by_row(device: str):
    rows = torch.randn(1, 100, device=device).expand(5, 100)
    assert torch.equal(memory_copy(rows), rows)


def test_every_bit_is_kept(device: str):
    specials = torch.tensor([[float("nan"), float("inf"), -0.0, 1e-45]], device=device)
    assert torch.equal(memory_copy(specials).view(torch.int32), specials.view(torch.int32))


@pytest.mark.parametrize("shape", [(1, 1), (64, 64), (65, 127), (600, 3)])
def test_the_result_is_a_matrix_of_its_own(device: str, shape: tuple[int, int]):
    x = torch.randn(shape, device=device)
    out = transpose(x)
    assert torch.equal(out, x.t())
    assert out.is_contiguous()


EAGER = kv_cache_write_spec.implementations["torch"].launch


def make_operands(device: str = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Three tokens of two heads of eight into a cache of six slots."""
    operands: dict[str, Any] = {
        "key": torch.randn(3, 2, 8, device=device),
        "value": torch.randn(3, 2, 8, device=device),
        "key_cache": torch.randn(3, 2, 2, 8, device=device).to(dtype),
        "value_cache": torch.randn(3, 2, 2, 8, device=device).to(dtype),
        "slots": torch.tensor([5, 0, 2], device=device),
    }
    if dtype == torch.float8_e4m3fn:
        operands["key_scale"] = torch.tensor([0.5], device=device)
        operands["value_scale"] = torch.tensor([0.25], device=device)
    return operands


def rows_of(cache: torch.Tensor) -> torch.Tensor:
    return cache.flatten(0, 1).float()


def test_the_slots_that_nobody_writes_to_keep_what_they_hold(device: str):
    operands = make_operands(device)
    before = rows_of(operands["key_cache"]).clone()
    key_cache, _ = kv_cache_write(**operands)
    assert key_cache is operands["key_cache"]
    after = rows_of(key_cache)
    assert torch.equal(after[[5, 0, 2]], operands["key"])
    assert torch.equal(after[[1, 3, 4]], before[[1, 3, 4]])


@pytest.mark.parametrize(
    "slots", [[-1, 4, -1], [3, -1, 1], [-1, -1, -1], [-7, 4, 2**40], [6, 1, -1]]
)
def test_a_token_without_a_slot_of_the_cache_is_left_out(device: str, slots: list[int]):
    operands = make_operands(device)
    before = [rows_of(operands[name]).clone() for name in ("key_cache", "value_cache")]
    operands["slots"] = torch.tensor(slots, device=device)
    after = [rows_of(cache) for cache in kv_cache_write(**operands)]
    for token, slot in enumerate(slots):
        if 0 <= slot < 6:
            assert torch.equal(after[0][slot], operands["key"][token])
            assert torch.equal(after[1][slot], operands["value"][token])
    others = [slot for slot in range(6) if slot not in slots]
    for was, now in zip(before, after, strict=True):
        assert torch.equal(now[others], was[others])


@pytest.mark.parametrize("slots", [[-1, 0, -1], [3, -1, 1], [-1, -1, -1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_plain_torch_leaves_a_token_without_a_slot_out_as_the_reference_does(
    dtype: torch.dtype, slots: list[int]
):
    operands = make_operands(dtype=dtype) | {"slots": torch.tensor(slots)}
    wide = {name: value.float() for name, value in operands.items() if name != "slots"}
    expected = kv_cache_write_reference(**wide, slots=operands["slots"])
    for found, wanted in zip(EAGER(**operands), expected, strict=True):
        assert torch.equal(found.float(), wanted)


def test_eight_bits_hold_a_scaled_key_to_the_nearest_and_clamp_what_is_too_large(device: str):
    operands = make_operands(device, torch.float8_e4m3fn)
    numbers = torch.tensor([0.0, -0.0, 7.9, 1000.0, -1000.0, 2**-9, 0.03, -17.1], device=device)
    operands["key"][0] = numbers * 0.5
    key_cache, _ = kv_cache_write(**operands)
    # above 2^-6 there are 8 numbers to an octave: 0.03 lies between 15 and 16 times 2^-9, -17.1
    # between -16 and -18
    nearest = torch.tensor([0.0, -0.0, 8.0, 448.0, -448.0, 2**-9, 15 * 2**-9, -18.0], device=device)
    assert torch.equal(rows_of(key_cache)[5], nearest.expand(2, 8))


def test_slices_of_a_joint_projection_and_blocks_that_lie_apart_are_used_where_they_lie(
    device: str,
):
    plain, strided = make_operands(device), make_operands(device)
    joint = torch.randn(3, 6, 8, device=device)
    plain["key"], plain["value"] = joint[:, 2:4].clone(), joint[:, 4:].clone()
    strided["key"], strided["value"] = joint[:, 2:4], joint[:, 4:]
    both = torch.stack([plain["key_cache"], plain["value_cache"]], dim=1)
    strided["key_cache"], strided["value_cache"] = both.unbind(1)
    strided["slots"] = plain["slots"]
    for found, expected in zip(kv_cache_write(**strided), kv_cache_write(**plain), strict=True):
        assert torch.equal(found, expected)


def test_torch_can_trace_the_operator(device: str):
    operands = make_operands(device)
    arguments = (*operands.values(), None, None)
    torch.library.opcheck(torch.ops.roofwatch.kv_cache_write.default, arguments)


def test_a_cache_that_is_changed_is_no_fault_and_another_input_is():
    def spoils_the_keys(key: torch.Tensor, **others: Any) -> tuple[torch.Tensor, torch.Tensor]:
        written: tuple[torch.Tensor, torch.Tensor] = EAGER(key, **others)
        key += 1
        return written

    case = kv_cache_write_spec.cases[0]
    spoiling = Implementation("spoiling", Language.TORCH, spoils_the_keys, frozenset(Direction))
    sound = kv_cache_write_spec.implementations["torch"]
    assert check_case(kv_cache_write_spec, case, sound, CheckCache()).outcome is Outcome.OK
    accuracy = check_case(kv_cache_write_spec, case, spoiling, CheckCache())
    assert accuracy.outcome is Outcome.INCORRECT
    assert "changes its input key;" in str(accuracy.message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"key": torch.randn(3, 8, 2).transpose(1, 2)},
            r"key must be contiguous along its last dim",
        ),
        (
            {"value": torch.randn(3, 4, 8)[:, ::2]},
            r"value must be contiguous per token; call value\.contiguous\(\)",
        ),
        ({"value": torch.randn(2, 2, 8)}, "the shapes must be equal"),
        ({"key_cache": torch.randn(3, 2, 16)}, "the caches' shapes must be equal"),
        (
            {"key_cache": torch.randn(3, 2, 2, 16)[..., :8]},
            "key_cache must be contiguous per block",
        ),
        ({"slots": torch.tensor([1, 2])}, "tokens and slots must be equal"),
        ({"key_scale": torch.ones(1)}, "takes no key_scale; omit key_scale"),
    ],
)
def test_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(
    changed: dict[str, Any], message: str
):
    with pytest.raises(KernelError, match=message):
        kv_cache_write(**make_operands() | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key_scale": None}, r"needs key_scale; pass key_scale=torch\.ones\(1\)"),
        ({"value_scale": torch.ones(2)}, "value_scale must be one float32"),
        ({"value_scale": torch.ones(1).double()}, r"value_scale\.to\('cpu', torch\.float32\)"),
    ],
)
def test_scales_that_would_be_read_wrongly_are_refused_with_the_way_out(
    changed: dict[str, Any], message: str
):
    with pytest.raises(KernelError, match=message):
        kv_cache_write(**make_operands(dtype=torch.float8_e4m3fn) | changed)


def test_a_quarter_turn_swaps_the_halves_of_a_head(device: str):
    operands = make_inputs("rotary", device, B=1, T=1, H=1, H_KV=1, D=6)
    operands["cos"], operands["sin"] = (
        torch.zeros(1, 3, device=device),
        torch.ones(1, 3, device=device),
    )
    q_out, _ = rotary(**operands)
    first, second = operands["q"].chunk(2, dim=-1)
    assert torch.equal(q_out, torch.cat([-second, first], dim=-1))


def test_slices_of_a_joint_projection_are_read_where_they_lie(device: str):
    operands = make_inputs("rotary", device, B=2, T=5, H=3, H_KV=2, D=8)
    joint = torch.cat([operands["q"].flatten(2), operands["k"].flatten(2)], dim=-1)
    q, k = (part.unflatten(-1, (-1, 8)) for part in joint.split([24, 16], dim=-1))
    assert not q.is_contiguous()
    for found, expected in zip(
        rotary(q, k, operands["cos"], operands["sin"]), rotary(**operands), strict=True
    ):
        assert torch.equal(found, expected)
        assert found.is_contiguous()


def test_angles_in_half_precision_are_taken_as_they_are(device: str):
    operands = make_inputs("rotary", device, B=1, T=5, H=3, H_KV=2, D=8)
    half = {name: operands[name].half() for name in ("cos", "sin")}
    wide = {name: operands[name].half().float() for name in ("cos", "sin")}
    assert torch.equal(
        rotary(operands["q"], operands["k"], **half)[0],
        rotary(operands["q"], operands["k"], **wide)[0],
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": torch.randn(1, 5, 0, 8)}, "q has no heads; pass at least one"),
        ({"q": torch.randn(1, 5, 3, 7)}, "the head dim must be even, got 7; pad"),
        ({"k": torch.randn(1, 4, 2, 8)}, "batch, tokens and head dim must be equal"),
        ({"cos": torch.randn(5, 8)}, "tokens and pairs must be equal"),
        ({"sin": torch.randn(5, 6)[:, :4]}, r"sin must be contiguous.*sin\.contiguous\(\)"),
        (
            {"cos": torch.randn(5, 4, requires_grad=True)},
            r"cos requires a gradient.*cos\.detach\(\)",
        ),
    ],
)
def test_rotary_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(
    changed: dict[str, torch.Tensor], message: str
):
    with pytest.raises(KernelError, match=message):
        rotary(**make_inputs("rotary", B=1, T=5, H=3, H_KV=2, D=8) | changed)
