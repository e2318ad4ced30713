import subprocess
import sys

import pytest

from roofwatch.collector.run_plan import RunPlan
from roofwatch.kernels import KernelError
from roofwatch.kernels.registry import MODULES, find_kernel, suite


def test_every_kernel_has_our_implementation_and_torch_and_compile():
    for spec in suite():
        if spec.rank_dimension is not None:
            assert spec.implementations.keys() == {"nccl", "gloo"}, spec.name  # the libraries are what is measured
            continue
        languages = {implementation.language for implementation in spec.implementations.values()}
        assert languages >= {"triton", "torch"}, spec.name
        assert {"torch", "compile"} <= spec.implementations.keys(), spec.name


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


def test_a_kernel_lies_in_the_folder_of_its_family():
    for spec in suite():
        folder = spec.family.lower().replace(" ", "_").replace("-", "_")
        assert MODULES[spec.name].startswith(f"roofwatch.kernels.{folder}.")


def test_two_kernels_are_written_in_cuda_too():
    assert {spec.name for spec in suite() if "cuda" in spec.implementations} == {"softmax", "rms_norm"}


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


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(KernelError, match="'swish'; choose from attention, "):
        find_kernel("swish")


def test_importing_the_registry_imports_neither_torch_nor_triton():
    program = "import sys, roofwatch.kernels.registry; print(sorted({'torch', 'triton'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
