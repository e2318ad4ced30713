import subprocess
import sys

import pytest

from kernels.errors import KernelError
from kernels.registry import find_kernel, suite


def test_the_suite_has_five_kernels_each_by_triton_eager_and_compile():
    assert {spec.name: list(spec.implementations) for spec in suite()} == {
        "softmax": ["triton", "eager", "compile"],
        "rms_norm": ["triton", "eager", "compile"],
        "swiglu": ["triton", "eager", "compile"],
        "matmul": ["triton", "eager", "compile"],
        "attention": ["triton", "eager", "compile"],
    }


def test_a_kernel_is_found_by_its_name():
    assert find_kernel("swiglu").name == "swiglu"


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(KernelError, match="'swish'; choose from softmax, rms_norm, swiglu, matmul, attention"):
        find_kernel("swish")


def test_importing_the_registry_imports_neither_torch_nor_triton():
    program = "import sys, kernels.registry; print(sorted({'torch', 'triton'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
