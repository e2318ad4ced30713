"""Whose kernel it is, by names from real files and in the forms that libraries of today give them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roofwatch.ci.ab.launches import Library, library_of

EXPECTED = json.loads((Path(__file__).parents[1] / "data" / "profiles" / "expected.json").read_text())
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
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_collectives_are_told_by_themselves(name: str) -> None:
    assert library_of(name) is Library.COLLECTIVES


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>>>(Params)",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEE",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64_1x1x1_kernel0_0",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemvParams>",
        "maxwell_sgemm_128x64_nn",
        "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn",
        "Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI32x32x1_SN",
        "Custom_Cijk_Alik_Bljk_BBS_BH_MT256x256x64",
        "MIOpenBatchNormFwdTrainSpatial.kd",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1",
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
