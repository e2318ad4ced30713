import subprocess
import sys
from dataclasses import replace

import pytest

from roofwatch.kernels.building_blocks import models, rivals
from roofwatch.kernels.building_blocks.models import (
    DEEPSEEK_V3,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    LLAMA_3_1_405B,
    MIXTRAL_8X7B,
)
from roofwatch.kernels.building_blocks.rivals import fla, flag_gems, liger
from roofwatch.kernels.building_blocks.shapes import Workload, model_cases, only, projections
from roofwatch.kernels.registry import MODULES, find_kernel, single_kernels


def test_every_kernel_has_our_implementation_and_torch_and_compile():
    for spec in single_kernels():
        if spec.rank_dimension is not None:
            assert spec.implementations.keys() == {"nccl", "gloo"}, (
                spec.name
            )  # the libraries are what is measured
            continue
        assert {"triton", "torch", "compile"} <= spec.implementations.keys(), spec.name
    assert {spec.name for spec in single_kernels() if "cuda" in spec.implementations} == {
        "softmax",
        "rms_norm",
    }


def test_kernels_have_the_implementations_of_packages_that_are_installed(
    monkeypatch: pytest.MonkeyPatch,
):
    def implementations() -> set[str]:
        spec = replace(find_kernel("softmax"))  # without implementations
        liger(spec)(print)
        fla(spec, "ops")(print)
        flag_gems(spec)(print)
        return set(spec.implementations)

    monkeypatch.setattr(rivals, "find_spec", {"liger_kernel": True}.get)
    assert implementations() == {"liger"}
    monkeypatch.setattr(rivals, "find_spec", {"fla": True, "flag_gems": True}.get)
    assert implementations() == {"fla", "flag_gems"}
    monkeypatch.setattr(rivals, "find_spec", {}.get)
    assert implementations() == set()


def test_every_kernel_declares_formula_source_cases_and_edges_in_the_folder_or_file_of_its_family():
    for spec in single_kernels():
        assert spec.formula, spec.name
        assert spec.source, spec.name
        tags = set().union(*(case.tags for case in spec.cases))
        assert {"small", "quick", "full"} <= tags, spec.name
        assert len({case.shape for case in spec.cases if "quick" in case.tags}) <= 3, spec.name
        assert spec.edges, spec.name
        folder = spec.family.lower().replace(" ", "_").replace("-", "_")
        assert f"{MODULES[spec.name]}.".startswith(f"roofwatch.kernels.{folder}.")


def test_importing_the_registry_imports_neither_torch_nor_triton():
    program = (
        "import sys, roofwatch.kernels.registry; print(sorted({'torch', 'triton'} & "
        "sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_published_parameter_counts_follow_from_the_dimensions():
    # attention, feed-forward block and embeddings, without norms; layers by the papers
    def dense_parameters(model: models.ModelConfig, n_layers: int) -> float:
        attention = 2 * model.hidden * model.head_dim * (model.n_heads + model.n_kv_heads)
        return (
            n_layers * (attention + 3 * model.hidden * model.ffn) + 2 * model.hidden * model.vocab
        )

    assert dense_parameters(LLAMA_3_1_8B, 32) == pytest.approx(8.0e9, rel=0.01)
    assert dense_parameters(LLAMA_3_1_70B, 80) == pytest.approx(70.6e9, rel=0.01)
    assert dense_parameters(LLAMA_3_1_405B, 126) == pytest.approx(405e9, rel=0.01)
    experts = 32 * 3 * MIXTRAL_8X7B.hidden * MIXTRAL_8X7B.expert_ffn * (MIXTRAL_8X7B.n_experts - 1)
    assert dense_parameters(MIXTRAL_8X7B, 32) + experts == pytest.approx(46.7e9, rel=0.01)
    # three layers are dense; each of the others has 256 routed experts and one that every token
    # goes to
    routed = 58 * 257 * 3 * DEEPSEEK_V3.hidden * DEEPSEEK_V3.expert_ffn
    assert routed == pytest.approx(656e9, rel=0.01)


def test_llama_70b_projections_of_one_gpu_and_of_one_of_eight():
    workloads = projections([LLAMA_3_1_70B])
    alone = [tuple(one.shape.values()) for one in only(workloads, "decode", "tp1")]
    prefill = [tuple(one.shape.values()) for one in only(workloads, "prefill", "tp8")]
    # M, N, K; (64 + 2 * 8) heads of 128, output back to 8192, gate and up of 28672 each, down
    assert alone == [(64, 10_240, 8192), (64, 8192, 8192), (64, 57_344, 8192), (64, 8192, 28_672)]
    assert prefill == [
        (8192, 1280, 8192),
        (8192, 8192, 1024),
        (8192, 7168, 8192),
        (8192, 8192, 3584),
    ]


def test_a_shape_of_two_models_is_one_case_with_the_tags_of_both():
    workloads = [
        Workload({"n": 8}, frozenset({"8b", "llama"})),
        Workload({"n": 4}, frozenset({"tp8"})),
        Workload({"n": 8}, frozenset({"qwen"})),
    ]
    first, second = model_cases(workloads)
    assert (first["n"], first.tags) == (8, {"8b", "llama", "qwen", "full", "quick"})
    assert (second["n"], second.tags) == (4, {"tp8", "full"})


def test_the_suite_has_every_scale_and_every_family_of_model():
    tags = {tag for spec in single_kernels() for case in spec.cases for tag in case.tags}
    scales = {"8b", "70b", "405b", "671b"}
    models = {"qwen3_8b", "mixtral_8x7b", "deepseek_v3", "sdxl", "dit_xl_2", "flux_1"}
    assert tags >= scales | models | {"quick", "full", "small", "prefill", "decode", "tp1", "tp8"}
