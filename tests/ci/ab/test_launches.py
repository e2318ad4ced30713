"""What a case launches at the head that it did not at the base."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from roofwatch.ci.ab.launches import (
    LaunchChange,
    LaunchMove,
    Library,
    find_flips,
    find_launch_moves,
    library_of,
    may_explain,
)
from roofwatch.ci.ab.side_by_side import side_by_side
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.measurement import Autotuning
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import ProfiledActivity
from roofwatch.db.values import Verdict
from tests.builders import (
    CASE_ID,
    make_activity,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_profile,
    make_static_facts,
)
from tests.ci.values import make_choice, make_records, make_timed

OLD, NEW = "ampere_fp16_s16816gemm_fp16_128x64_tn", "void cutlass::Kernel2<cutlass_80_tensorop_f16>(Params)"


def moves(
    base: list[ProfiledActivity], head: list[ProfiledActivity], *, base_left_out: int = 0, head_left_out: int = 0
) -> tuple[LaunchMove, ...]:
    return find_launch_moves(
        [make_profile(CASE_ID, *base, left_out_count=base_left_out)],
        [make_profile(CASE_ID, *head, left_out_count=head_left_out)],
    )


def test_another_kernel_of_a_library_is_told_as_that() -> None:
    (move,) = moves([make_activity(OLD), make_activity("body")], [make_activity(NEW), make_activity("body")])

    assert (move.change, move.share) == (LaunchChange.LIBRARY_KERNEL, 0.5)
    assert str(move.remark) == f"library kernel changed: {NEW} instead of {OLD}"


def test_a_collective_takes_the_place_of_no_product() -> None:
    ring, tree = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"
    base = [make_activity(ring, total_ns=900), make_activity(OLD, total_ns=300)]
    head = [make_activity(NEW, total_ns=800), make_activity(tree, total_ns=100)]

    assert {(move.base_name, move.name) for move in moves(base, head)} == {(ring, tree), (OLD, NEW)}
    assert {move.change for move in moves(base[:1], head[:1])} == {LaunchChange.NEW, LaunchChange.GONE}


def test_what_is_new_gone_or_launched_more_often_is_told_the_longest_first() -> None:
    base = [make_activity("body", count=3), make_activity("gone", count=6, total_ns=2_000)]
    head = [make_activity("body", count=6, total_ns=6_000), make_activity("Memcpy DtoD", kind="memcpy", total_ns=2_000)]

    assert [(move.change, str(move.remark)) for move in moves(base, head)] == [
        (LaunchChange.COUNT, "body: 1 → 2 in a call"),
        (LaunchChange.GONE, "gone is gone, 2 in a call before"),
        (LaunchChange.NEW, "Memcpy DtoD is new, 1 in a call"),
    ]


@pytest.mark.parametrize(("base_left_out", "head_left_out", "told"), [(1, 0, ["gone"]), (0, 1, ["new"]), (1, 1, [])])
def test_what_may_be_among_what_was_left_out_is_neither_new_nor_gone(
    base_left_out: int, head_left_out: int, told: list[str]
) -> None:
    found = moves(
        [make_activity("old")], [make_activity("now")], base_left_out=base_left_out, head_left_out=head_left_out
    )

    assert [move.change.value for move in found] == told


def test_of_the_operators_of_a_cpu_only_torch_s_own_are_compared() -> None:
    base = [make_activity(name, kind="operator", device="cpu") for name in ("aten::mm", "Torch-Compiled Region: 0/0")]
    head = [make_activity(name, kind="operator", device="cpu") for name in ("aten::bmm", "Torch-Compiled Region: 0/7")]

    assert {move.name for move in moves(base, head)} == {"aten::mm", "aten::bmm"}


def test_a_comparison_tells_it_and_decides_nothing_by_it() -> None:
    base, head = make_pair_of_records(block_count=8, head_median_ns=12_000.0)
    before, after = ([make_profile(CASE_ID, make_activity(name), implementation="eager")] for name in (OLD, NEW))
    there, here = (
        record.model_copy(update={"profiles": tuple(found)}) for record, found in ((base, before), (head, after))
    )

    judged = judge_pull_request(there, here)

    assert judged.verdict is judge_pull_request(base, head).verdict is Verdict.REGRESSED
    assert [move.change for move in judged.launch_moves] == [LaunchChange.LIBRARY_KERNEL]
    assert side_by_side(there, here, CASE_ID, "eager").launches == judged.launch_moves
    markdown = to_markdown(judged)
    assert "What cases launch otherwise" in markdown
    assert f"library kernel changed: `{NEW}` instead of `{OLD}`" in markdown
    elsewhere = there.model_copy(update={"environment": make_environment(thread_count=64)})
    assert judge_pull_request(elsewhere, here).launch_moves == (), "another device has other kernels"


@pytest.mark.parametrize(
    ("head_rows", "reason"),
    [
        ([make_activity(count=6, total_ns=6_000)], Reason.BEYOND_THRESHOLD),
        ([make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=1_000)], Reason.BEYOND_THRESHOLD),
        ([make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=100)], Reason.SAME_MACHINE_CODE),
        ([make_activity(total_ns=9_000)], Reason.SAME_MACHINE_CODE),
    ],
    ids=["twice", "a-copy-beside-it", "a-copy-too-short", "the-same-for-longer"],
)
def test_a_kernel_of_equal_machine_code_may_be_slower_by_what_is_launched_otherwise(
    head_rows: list[ProfiledActivity], reason: Reason
) -> None:
    gpu = make_environment(device_kind="cuda", device_name="H200", compute_capability="9.0")
    base, head = make_records(
        [make_timed(implementation="triton"), make_static_facts()],
        [make_timed(implementation="triton", median_ns=1.3e6), make_static_facts()],
        base_fields={"environment": gpu, "profiles": (make_profile(),)},
        head_fields={"environment": gpu, "profiles": (make_profile(CASE_ID, *head_rows),)},
    )

    (case,) = judge_pull_request(base, head).cases

    assert case.reason is reason


@pytest.mark.parametrize(
    ("head", "log_change", "explains"),
    [
        (make_activity("new", total_ns=1_000), math.log(1.4), True),
        (make_activity("new", total_ns=1_000), math.log(3.0), False),
        (make_activity("new", total_ns=1_000), -math.log(1.4), False),
    ],
    ids=["enough", "too-short", "the-other-way"],
)
def test_what_moved_explains_a_time_if_it_takes_half_of_what_came_or_more(
    head: ProfiledActivity, log_change: float, explains: bool
) -> None:
    """A quarter of the calls at the head: of a time that grew by 1.4 a share of 0.29 came, by 3 of 0.67."""
    body = make_activity("body")
    assert may_explain(moves([body], [body, head]), log_change) is explains
    assert may_explain(moves([body, head], [body]), -log_change) is explains
    assert not may_explain((), log_change)


EXPECTED = json.loads((Path(__file__).parents[2] / "data" / "profiles" / "expected.json").read_text())
NO_LIBRARY = re.compile(
    r"at::native|cunn_|\(anonymous namespace\)::softmax_warp|^triton_|^cupy_|^void cub::|^copy_blocked"
    r"|^(void )?(basic|gmem_coalesce|smem_blocking|one_|two_|vectorized_blocktiling|warptiling)"
)
"""Torch's own, CuPy's, and those of a tutorial on matrix products: all others in the real files are of a library."""


def test_every_kernel_of_the_real_files_is_told_whose_it_is() -> None:
    kernels = [EXPECTED[file].get("kernels", {}) for file in EXPECTED]
    names = {
        kernel["name"]
        for found in kernels
        for kernel in (found if isinstance(found, list) else found["top_by_total_time"])
    }

    assert len(names) > 50
    assert {name for name in names if library_of(name) is None} == set(filter(NO_LIBRARY.search, names))


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEE",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64_1x1x1_kernel0_0",
        "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn",
        "Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI32x32x1_SN",
        "MIOpenBatchNormFwdTrainSpatial.kd",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt256x128x32_wt32x32x8",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::tensor_layout::gemm::RowMajor>>",
        "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelE",
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, true, true>(int, int, int)",
    ],
)
def test_products_and_convolutions_are_told_by_the_names_of_today_and_before(name: str) -> None:
    assert library_of(name) is Library.DENSE


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void cusparse::csrmv_v3_kernel<std::integral_constant<bool, false>, int, int, float>", Library.SPARSE),
        (
            "void vector_fft<128u, EPT<8u>, 8u, 32u, padding_t, twiddle_t>(kernel_arguments_t<unsigned int>)",
            Library.FFT,
        ),
        ("fft_rtc_fwd_len1024_factors_16_8_8_wgs_128_tpt_128_sp_ip_CI_unitstride_sbrr_C2R", Library.FFT),
        ("triton_poi_fused__native_batch_norm_legit_cudnn_batch_norm_relu_0", None),
        ("triton_tem_fused_mm_0", None),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", None),
        ("_rms_norm_forward_kernel", None),
        ("conv_bias_backward", None),
        ("check::scatter", None),
        ("Memcpy DtoD (Device -> Device)", None),
    ],
)
def test_others_are_told_apart_and_our_own_are_no_library_s(name: str, library: Library | None) -> None:
    assert library_of(name) is library


TIMES = {64: 12.6, 128: 12.8}


def sentences(base: list[Autotuning], head: list[Autotuning]) -> list[str]:
    sides = (make_measurement(autotuning=tuple(choices)) for choices in (base, head))
    return [str(flip.remark) for flip in find_flips(*sides)]


def test_another_choice_is_told_with_its_own_timings_and_only_what_differs() -> None:
    assert sentences([make_choice(128)], [make_choice(64, times_us=TIMES)]) == [
        "the autotuner of _kernel chose BLOCK=64 instead of BLOCK=128; its own timings: 12.6 µs against 12.8 µs"
    ]


def test_choices_are_paired_by_what_they_depend_on() -> None:
    base = [make_choice(64, key="1"), make_choice(128, key="2")]
    head = [make_choice(64, key="1"), make_choice(32, key="2"), make_choice(32, key="3")]

    assert sentences(base, head) == ["the autotuner of _kernel chose BLOCK=32 instead of BLOCK=128"]


def test_a_key_that_is_made_otherwise_pairs_by_the_function_where_that_is_clear() -> None:
    assert len(sentences([make_choice(64, key="4096")], [make_choice(128, key="4096, 7")])) == 1
    assert sentences([make_choice(64, key="1"), make_choice(64, key="2")], [make_choice(128, key="3")]) == []


def test_a_side_that_wavers_has_flipped_only_if_it_never_chose_as_the_other() -> None:
    wavering = [make_choice(64, times_us=TIMES), make_choice(128)]

    assert sentences([make_choice(128)], wavering) == []
    assert sentences([make_choice(256)], wavering) == [
        "the autotuner of _kernel chose BLOCK=64 or BLOCK=128 instead of BLOCK=256; its own timings: 12.6 µs, and the "
        "other was not tried"
    ]


def on_a_gpu(base: Autotuning, head: Autotuning) -> tuple[RunRecord, RunRecord]:
    """A kernel that is 40 % slower with the same machine code for every configuration."""
    fields = {"environment": make_environment(device_kind="cuda", compute_capability="9.0")}
    facts = make_static_facts(implementation="triton", target="sm_90")
    before, after = (
        make_timed(implementation="triton", median_ns=median_ns, autotuning=(choice,))
        for median_ns, choice in ((1e6, base), (1.4e6, head))
    )
    return make_records([before, facts], [after, facts], base_fields=fields, head_fields=fields)


def test_a_kernel_that_got_slower_by_another_choice_has_regressed_though_its_code_is_the_same() -> None:
    (same,) = judge_pull_request(*on_a_gpu(make_choice(64), make_choice(64))).cases
    (flipped,) = judge_pull_request(*on_a_gpu(make_choice(128), make_choice(64))).cases

    assert (same.verdict, same.reason) == (Verdict.INCONCLUSIVE, Reason.SAME_MACHINE_CODE)
    assert (flipped.verdict, flipped.reason) == (Verdict.REGRESSED, Reason.BEYOND_THRESHOLD)
    assert len(flipped.flips) == 1
