import subprocess
import sys

import pytest

from roofwatch.collector.run_plan import RunPlan
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.registry import MODULES, find_kernel, suite
from roofwatch.spec import Direction


def test_every_kernel_has_our_implementation_and_eager_and_compile():
    for spec in suite():
        if spec.rank_dimension is not None:
            assert spec.implementations.keys() == {"nccl", "gloo"}, spec.name  # the libraries are what is measured
            continue
        languages = {implementation.language for implementation in spec.implementations.values()}
        assert languages >= {"triton", "torch"}, spec.name
        assert {"eager", "compile"} <= spec.implementations.keys(), spec.name


def test_every_kernel_says_what_it_computes_and_where_it_comes_from():
    for spec in suite():
        assert spec.formula, spec.name
        assert spec.source, spec.name
        assert spec.family != "other", spec.name


def test_every_kernel_has_small_quick_and_full_cases_and_edges():
    for spec in suite():
        tags = set().union(*(case.tags for case in spec.cases))
        assert {"small", "quick", "full"} <= tags, spec.name
        assert spec.edges, spec.name


def test_the_suite_has_what_a_stack_for_generative_models_runs():
    by_family: dict[str, list[str]] = {}
    for spec in suite():
        directions = {case.direction for case in spec.cases}
        by_family.setdefault(spec.family, []).append(spec.name + (" f+b" if Direction.BWD in directions else ""))
    assert by_family == {
        "reduction": ["softmax f+b", "cross_entropy f+b"],
        "normalisation": [
            "rms_norm f+b",
            "add_rms_norm f+b",
            "layer_norm f+b",
            "group_norm_silu",
            "adaln_modulate f+b",
        ],
        "MLP": ["swiglu f+b", "geglu f+b"],
        "GEMM": ["matmul", "matmul_split_k"],
        "low precision": [
            "quantise_int8",
            "quantise_fp8",
            "int8_matmul",
            "fp8_matmul_rowwise",
            "fp8_matmul_blockwise",
            "w4a16_matmul",
            "ternary_matmul",
        ],
        "quantisation-aware training": ["ternary_fake_quant f+b", "nonary_fake_quant f+b"],
        "sparsity": ["matmul_2_4", "block_sparse_matmul"],
        "MoE": ["moe_topk_routing", "moe_permute", "grouped_gemm", "moe_unpermute"],
        "attention": ["attention f+b", "attention_varlen f+b", "paged_decode_attention"],
        "memory": ["memory_copy", "transpose", "embedding_gather", "rotary f+b", "kv_cache_write"],
        "overhead": ["empty_launch", "launch_chain"],
        "collectives": ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"],
    }


def test_a_kernel_lies_in_the_room_of_its_family():
    for spec in suite():
        room = spec.family.lower().replace(" ", "_").replace("-", "_")
        assert MODULES[spec.name] == f"roofwatch.kernels.{room}.{spec.name}"


def test_two_kernels_are_written_in_cuda_too():
    assert [spec.name for spec in suite() if "cuda" in spec.implementations] == ["softmax", "rms_norm"]


def test_the_quick_suite_is_timed_for_no_more_than_a_minute():
    plan = RunPlan()
    n_subjects = sum(
        case.direction in implementation.directions
        for spec in suite()
        for case in spec.cases
        if "quick" in case.tags
        for implementation in spec.implementations.values()
    )
    block_ms = plan.sampling.warmup_ms + plan.sampling.budget_ms
    assert n_subjects * plan.block_count * block_ms <= 60_000


def test_a_kernel_is_found_by_its_name():
    assert find_kernel("swiglu").name == "swiglu"


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(KernelError, match="'swish'; choose from softmax, "):
        find_kernel("swish")


def test_importing_the_registry_imports_neither_torch_nor_triton():
    program = "import sys, roofwatch.kernels.registry; print(sorted({'torch', 'triton'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
