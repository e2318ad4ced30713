from typing import Any

import pytest
import torch

import roofwatch
from roofwatch import Case, InputMaker, KernelSpec, Tolerance, cases
from roofwatch.spec import EXACT, TOLERANCES, Direction, SpecError


def declare(**fields: Any) -> KernelSpec:
    defaults: dict[str, Any] = {
        "name": "kernel",
        "inputs": lambda case, make: {"x": make.normal(case["n"])},
        "reference": lambda x: x,
        "cases": cases(shapes=[{"n": 4}]),
        "flop_count": lambda case: case["n"],
        "memory_bytes": lambda case: case["n"],
    }
    return KernelSpec(**defaults | fields)


def test_cases_are_every_combination_in_order() -> None:
    spec = declare(
        cases=cases(
            shapes=[{"n": 4}, {"n": 8}], dtypes=["float32", "float16"], directions=["fwd", "bwd"]
        )
    )
    assert [case.id for case in spec.cases] == [
        "kernel/n=4/float32/fwd",
        "kernel/n=4/float32/bwd",
        "kernel/n=4/float16/fwd",
        "kernel/n=4/float16/bwd",
        "kernel/n=8/float32/fwd",
        "kernel/n=8/float32/bwd",
        "kernel/n=8/float16/fwd",
        "kernel/n=8/float16/bwd",
    ]


def test_a_case_returns_its_dimensions_by_name() -> None:
    case = Case("kernel", (("M", 2), ("N", 3)), "bfloat16", Direction.BWD)
    assert (case["M"], case["N"], case.itemsize, case.is_backward) == (2, 3, 2, True)
    with pytest.raises(SpecError, match="no dimension 'K'; the shape has M, N"):
        case["K"]


def test_a_case_returns_its_choices_by_name() -> None:
    case = Case("kernel", (("T", 8), ("routing", "zipf")), "bfloat16")
    assert case.choice("routing") == "zipf"
    assert case.id == "kernel/T=8,routing=zipf/bfloat16/fwd"
    assert case == Case("kernel", case.shape, "bfloat16", tags=frozenset({"quick"}))
    with pytest.raises(
        SpecError, match=r"routing is the word 'zipf'; read it with case.choice\('routing'\)"
    ):
        case["routing"]
    with pytest.raises(SpecError, match=r"T is the length 8; read it with case\['T'\]"):
        case.choice("T")


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"name": "two words"}, "kernel name 'two words'"),
        ({"name": "<script>"}, "kernel name"),
        ({"cases": []}, "no cases"),
        ({"cases": cases(shapes=[{"n": 1}, {"n": 1}])}, "declared twice"),
        ({"edges": cases(shapes=[{"n": 4}])}, "declared twice"),
    ],
)
def test_an_invalid_spec_is_refused(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        declare(**wrong)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"dtypes": ["float31"]}, "dtype 'float31'"),
        ({"directions": ["sideways"]}, "direction 'sideways'"),
        ({"shapes": [{"n": -1}]}, "n=-1"),
        ({"shapes": [{"n": 1.5}]}, "n=1.5"),
        ({"shapes": [{"n": True}]}, "n=True"),
        ({"shapes": [{"n": "two words"}]}, "n='two words'"),
        ({"tags": ["two words"]}, "tag 'two words'"),
    ],
)
def test_invalid_cases_are_refused(wrong: dict[str, Any], expected: str) -> None:
    arguments: dict[str, Any] = {"shapes": [{"n": 1}], **wrong}
    with pytest.raises(SpecError, match=expected):
        cases(**arguments)


def test_an_implementation_is_named_after_its_language() -> None:
    spec = declare()
    spec.implementation("triton", directions=("fwd",))(lambda x: x)
    spec.implementation("torch", name="cudnn")(lambda x: x)

    assert list(spec.implementations) == ["triton", "cudnn"]
    assert spec.implementations["triton"].directions == {Direction.FWD}


def test_an_implementation_may_be_compiled_too() -> None:
    spec = declare()
    spec.implementation("torch", compile=True)(lambda x: x)

    assert list(spec.implementations) == ["torch", "compile"]
    assert spec.implementations["compile"].is_compiled


def test_the_public_names_load_on_first_use() -> None:
    assert roofwatch.KernelSpec is KernelSpec


def test_other_names_are_refused_with_the_public_ones() -> None:
    with pytest.raises(AttributeError, match="it offers Case, CudaKernel, InputMaker"):
        roofwatch.Kernel  # noqa: B018  the access is what is tested


@pytest.mark.parametrize(
    ("language", "name"), [("cobol", None), ("torch", "torch"), ("torch", "a b")]
)
def test_an_invalid_implementation_is_refused(language: str, name: str | None) -> None:
    spec = declare()
    spec.implementation("torch")(lambda x: x)
    with pytest.raises(SpecError):
        spec.implementation(language, name=name)(lambda x: x)


def test_a_spec_may_replace_tolerances_of_the_table() -> None:
    own = Tolerance(elementwise=0.5, rmse_ratio=0.5)
    assert declare(tolerances={"float32": own}).tolerance(Case("k", (), "float32")) == own
    assert declare().tolerance(Case("k", (), "float32")).elementwise == 1e-4
    with pytest.raises(SpecError, match="no tolerance for int64"):
        declare().tolerance(Case("k", (), "int64"))


def test_an_output_has_the_looser_tolerance_of_its_dtype_against_that_of_the_case() -> None:
    case = Case("k", (), "bfloat16")
    for output in ("float32", "bfloat16"):
        assert declare().tolerance(case, output) == TOLERANCES["bfloat16"]
    assert declare().tolerance(case, "float8_e4m3fn") == TOLERANCES["float8_e4m3fn"]
    assert declare().tolerance(case, "int8").rmse_floor == TOLERANCES["int8"].rmse_floor
    assert declare().tolerance(case, "float8_e8m0fnu") == TOLERANCES["bfloat16"]


def test_integers_must_be_exact_by_default() -> None:
    case = Case("k", (), "bfloat16")
    own = Tolerance(elementwise=0.5, rmse_ratio=0.5)
    assert {
        declare().tolerance(case, output) for output in ("bool", "uint8", "int32", "int64")
    } == {EXACT}
    assert declare(tolerances={"uint8": own}).tolerance(case, "uint8") == own


def test_the_interpreter_gets_the_same_case_at_a_smaller_shape() -> None:
    spec = declare(
        cases=cases(shapes=[{"M": 4096, "N": 8}], directions=["bwd"]), interpreted_shape={"M": 16}
    )
    assert spec.interpreted_case(spec.cases[0]).id == "kernel/M=16,N=8/float32/bwd"


HALF_CASE = Case("kernel", (("n", 1000),), "float16")


def test_inputs_are_seeded_by_the_case() -> None:
    first = InputMaker(HALF_CASE).normal(1000, scale=2.0)
    second = InputMaker(HALF_CASE).normal(1000, scale=2.0)

    assert torch.equal(first, second)


def test_inputs_have_the_dtype_of_the_case() -> None:
    assert InputMaker(HALF_CASE).normal(1000).dtype is torch.float16


def test_inputs_are_distributed_as_asked() -> None:
    make = InputMaker(HALF_CASE)
    normal = make.normal(1000, scale=2.0)
    uniform = make.uniform(1000)
    integers = make.integers(1000, high=7)

    assert 1.8 < float(normal.float().std()) < 2.2
    assert -1 <= float(uniform.min()) < -0.9
    assert 0.9 < float(uniform.max()) <= 1
    assert set(integers.tolist()) == set(range(7))


def test_with_only_integers_floats_are_uninitialised() -> None:
    case = Case("kernel", (), "bfloat16")
    everything, integers = InputMaker(case), InputMaker(case, only_integers=True)
    assert torch.equal(integers.integers(100, high=7), everything.integers(100, high=7))
    assert torch.equal(integers.permutation(100).sort().values, torch.arange(100))
    # eight gigabytes of address space
    large = integers.normal(2**16, 2**16)
    assert (large.shape, large.dtype) == ((2**16, 2**16), torch.bfloat16)


def test_the_ranks_of_a_case_are_a_dimension_of_it() -> None:
    spec = declare(cases=cases(shapes=[{"ranks": 8, "n": 4}]), rank_dimension="ranks")
    assert spec.rank_count(spec.cases[0]) == 8
    assert declare().rank_count(declare().cases[0]) == 1
    assert InputMaker(declare().cases[0]).rank == 0


@pytest.mark.parametrize(
    ("shape", "fields", "message"),
    [
        ({"ranks": 1, "n": 4}, {}, "ranks=1: a group has at least 2 ranks; omit rank_dimension"),
        ({"n": 4}, {}, "no dimension 'ranks'"),
        ({"ranks": 8, "n": 4}, {"interpreted_shape": {"ranks": 2}}, "must not change ranks"),
    ],
)
def test_invalid_ranks_are_refused(
    shape: dict[str, int], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        declare(cases=cases(shapes=[shape]), rank_dimension="ranks", **fields)
