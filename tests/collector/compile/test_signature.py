from pathlib import Path

import pytest

from roofwatch.collector.compile.signature import Signature, is_notation, read_signatures, to_toml
from roofwatch.collector.errors import SuiteError

COMPLETE = Signature(
    function="package.module:kernel",
    arguments={
        "x_ptr": "*bf16:16",
        "n": "i32:1",
        "scale": "fp32",
        "mask": {"none": True},
        "DTYPE": {"dtype": "float16"},
        "ACTIVATION": {"function": "package.other:relu"},
        "BLOCK": 128,
        "EPS": 1e-06,
        "CAUSAL": True,
        "NAME": 'a "word" \\ with\n\x7f ü',
    },
    options={"num_warps": 4, "enable_fp_fusion": False},
)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "signatures.toml"
    file.write_text(text)
    return file


def test_a_written_file_reads_back_equal(tmp_path: Path) -> None:
    plain = Signature(function="kernels.py:other", arguments={"x_ptr": "*fp32"})

    assert read_signatures(written(tmp_path, to_toml([COMPLETE, plain]))) == (plain, COMPLETE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, True) for text in ("*fp32:16", "*fp8e4nv", "i32", "i64:16", "fp32", "u1", "*i1")),
        *((text, False) for text in ("*float", "*fp32:8", "fp16", "i32:2", "", "* fp32")),
    ],
)
def test_notations_are_those_of_triton(text: str, expected: bool) -> None:
    assert is_notation(text) is expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[signature]\n", "cannot be read as TOML"),
        ("signature = 3", r"signature: Input should be a valid tuple"),
        ("[[signature]]\narguments = {}", r"signature.0.function: Field required"),
        ('[[signature]]\nfunction = "kernel"', r"signature.0.function: String should match pattern"),
        ('[[signature]]\nfunction = "m:f"\ngrid = 3', "signature.0.grid: Extra inputs are not permitted"),
        ('[[signature]]\nfunction = "m:f"\narguments = { n = [1] }', r"signature.0.arguments.n"),
    ],
)
def test_an_invalid_entry_is_reported_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SuiteError, match=complaint):
        read_signatures(written(tmp_path, text))
