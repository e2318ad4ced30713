from pathlib import Path

import pytest

from roofwatch.collector.compile.signature import Signature, is_notation, read_signatures, to_toml
from roofwatch.collector.errors import SuiteError

WHOLE = Signature(
    "package.module:kernel",
    {
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
    {"num_warps": 4, "enable_fp_fusion": False},
)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "signatures.toml"
    file.write_text(text)
    return file


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    plain = Signature("kernels.py:other", {"x_ptr": "*fp32"}, {})

    assert read_signatures(written(tmp_path, to_toml([WHOLE, plain]))) == (plain, WHOLE)


def test_signatures_are_told_apart_by_arguments_and_options_alone() -> None:
    assert Signature("m:f", {"n": "i32", "B": 1}, {}).digest == Signature("m:g", {"B": 1, "n": "i32"}, {}).digest
    others = [Signature("m:f", {"n": "i32:16"}, {}), Signature("m:f", {"n": "i32"}, {"num_warps": 8})]
    assert len({one.digest for one in [Signature("m:f", {"n": "i32"}, {}), *others]}) == 3


@pytest.mark.parametrize("text", ["*fp32:16", "*fp8e4nv", "i32", "i64:16", "u64:1", "fp32", "u1", "*i1"])
def test_a_notation_of_triton_s_is_one(text: str) -> None:
    assert is_notation(text)


@pytest.mark.parametrize("text", ["*float", "*fp32:8", "fp16", "i32:2", "", "tensordesc<fp16[64]>", "* fp32"])
def test_what_triton_does_not_specialise_so_is_none(text: str) -> None:
    assert not is_notation(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1", r"expected \[\[signature\]\] tables"),
        ("[[signature]\n", "cannot be read as TOML"),
        ("signature = 3", r"expected \[\[signature\]\] tables"),
        ("[[signature]]\narguments = {}", r'signature 1: function = None: write "package.module:name"'),
        ('[[signature]]\nfunction = "kernel"', r'function = \'kernel\': write "package.module:name"'),
        (
            '[[signature]]\nfunction = "m:f"\ngrid = 3',
            "'grid' is not known; a signature has arguments, function, options",
        ),
        ('[[signature]]\nfunction = "m:f"\narguments = { n = [1] }', r"m:f: n = \[1\]: neither a notation"),
        ('[[signature]]\nfunction = "m:f"\narguments = { n = { none = false } }', "neither a notation"),
        ('[[signature]]\nfunction = "m:f"\noptions = { num_warps = {} }', r"option num_warps = \{\}: write a number"),
    ],
)
def test_what_is_no_signature_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SuiteError, match=complaint):
        read_signatures(written(tmp_path, text))
