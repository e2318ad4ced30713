"""Which part of a benchmark file a kernel uses."""

import ast

import pytest

from roofwatch.collector.compile.kernel_part import part_of, part_of_implementation

FILE = """
from roofwatch import KernelSpec, cases

SHAPES = [{"n": 8}]


def missing_reference(**inputs):
    raise NotImplementedError


def helper(x):
    return x


first = KernelSpec(name="first", reference=missing_reference)


@first.implementation("triton")
def first_triton(x):
    from pkg.first import run

    return run(x)


second = KernelSpec(name="second", reference=missing_reference)


@second.implementation("triton")
def second_triton(x):
    from pkg.second import run

    return helper(run(x))
"""


def names(text: str, kernel: str, *functions: str) -> set[str]:
    """The functions and kernels of the part that a kernel uses."""
    part = part_of(ast.parse(text), [kernel], functions)
    return {
        statement.name
        if isinstance(statement, ast.FunctionDef)
        else ast.unparse(statement.targets[0])
        for statement in part.body
        if isinstance(statement, (ast.FunctionDef, ast.Assign))
    }


EVERYTHING = {
    *("SHAPES", "missing_reference", "helper"),
    *("first", "first_triton", "second", "second_triton"),
}


def test_other_kernels_are_left_out_with_what_only_they_name() -> None:
    assert names(FILE, "first") == {"SHAPES", "missing_reference", "first", "first_triton"}
    assert names(FILE, "second") == EVERYTHING - {"first", "first_triton"}
    assert names(FILE, "first", "helper") >= {"helper", "first"}


@pytest.mark.parametrize(
    "more",
    [
        "print(globals())",
        "def change():\n    global SHAPES\n    SHAPES = []",
        "second = first",
        "@register\ndef hook():\n    return second_triton",
        "def hook(x=second_triton(1)):\n    return x",
        "for kernel in (first, second):\n    kernel.tags = ()",
    ],
)
def test_in_doubt_the_whole_file_counts(more: str) -> None:
    assert names(f"{FILE}\n{more}\n", "first") >= EVERYTHING


def test_a_function_that_nothing_calls_uses_nothing() -> None:
    text = f"{FILE}\ndef unused():\n    return second\n"

    assert names(text, "first") == names(FILE, "first")


def test_a_kernel_that_is_not_assigned_at_the_top_uses_the_whole_file() -> None:
    assert names(FILE, "third") == EVERYTHING


def test_a_function_that_triton_compiles_belongs_to_the_kernels_that_launch_it() -> None:
    compiled = """
@triton.jit
def _helper_kernel(x_ptr):
    pass


@triton.jit
def _second_kernel(x_ptr):
    _helper_kernel(x_ptr)


def launch(x):
    _second_kernel[(1,)](x)
"""
    file = FILE.replace("return helper(run(x))", "return launch(run(x))") + compiled

    assert names(file, "first") == names(FILE, "first")
    assert names(file, "second") >= {"launch", "_second_kernel", "_helper_kernel"}


@pytest.mark.parametrize(("method", "is_left_out"), [("staticmethod", True), ("register", False)])
def test_an_autograd_function_belongs_to_the_kernels_that_apply_it(
    method: str, is_left_out: bool
) -> None:
    file = (
        FILE.replace("return helper(run(x))", "return Second.apply(run(x))")
        + f"""
def compute(x):
    return x


class Second(torch.autograd.Function):
    @{method}
    def forward(ctx, x):
        return compute(x)
"""
    )

    # the functions that a class names show whether it counts
    assert ("compute" not in names(file, "first")) is is_left_out
    assert "compute" in names(file, "second")


ONE_KERNEL = """
import torch
from my_ops import squared
from roofwatch import KernelSpec

BLOCK = 64

first = KernelSpec(name="first", reference=lambda x: x * x)


@first.implementation("triton")
def first_triton(x):
    return squared(x, BLOCK)


@first.implementation("torch")
def first_torch(x):
    return torch.square(x)
"""


def implementation_source(text: str, *functions: str) -> str:
    """The part of a file that one implementation of its kernel uses."""
    kernels = ["first"] if functions else []
    return ast.unparse(part_of_implementation(ast.parse(text), kernels, functions))


def test_other_implementations_and_their_imports_are_left_out() -> None:
    torch_source = implementation_source(ONE_KERNEL, "first_torch")

    assert "import torch" in torch_source
    assert "BLOCK = 64" in torch_source
    assert "my_ops" not in torch_source
    assert "first_triton" not in torch_source
    assert "from my_ops import squared" in implementation_source(ONE_KERNEL, "first_triton")


@pytest.mark.parametrize(
    "more",
    [
        "first.implementation('torch', name='other')(squared)",
        "def first_torch(x):\n    return first.implementations['triton'].launch(x)",
        "def first_torch(x):\n    return globals()['squared'](x)",
        "torch.relu = squared",
        "configure(squared)",
        "from my_ops import *",
    ],
)
def test_an_implementation_that_may_use_another_one_counts_with_it(more: str) -> None:
    source = implementation_source(f"{ONE_KERNEL}\n{more}\n", "first_torch")

    assert "from my_ops import" in source


def test_of_a_module_that_is_only_imported_what_its_import_runs_counts() -> None:
    module = """
import torch
from helper import choose

def configure():
    torch.set_num_threads(choose())

def squared(x):
    return x * x

configure()
"""
    source = implementation_source(module)

    assert "set_num_threads" in source
    assert "from helper import choose" in source
    assert "squared" not in source
