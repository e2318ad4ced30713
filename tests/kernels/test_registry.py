import subprocess
import sys

import pytest

from kernels.errors import KernelError
from kernels.registry import find_kernel, suite


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


def test_a_kernel_is_found_by_its_name():
    assert find_kernel("swiglu").name == "swiglu"


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(KernelError, match="'swish'; choose from softmax, "):
        find_kernel("swish")


def test_importing_the_registry_imports_neither_torch_nor_triton():
    program = "import sys, kernels.registry; print(sorted({'torch', 'triton'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
