"""CODEOWNERS as GitHub reads it."""

import pytest

from roofwatch.ci.alerts.rules import KernelOwners, Ownership, parse_codeowners


def owners_of(text: str, path: str) -> tuple[str, ...]:
    return Ownership(codeowners=parse_codeowners(text), source_paths={"kernel": path}).owners_of(["kernel"])


EXAMPLE = """
*       @default
*.js    @js-owner # an inline comment
/docs/  @docs @writers
apps/github
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ("@default",)),
        ("a/b/deep.js", ("@js-owner",)),
        ("docs/a/b.md", ("@docs", "@writers")),
        ("apps/github/a.py", ()),
    ],
)
def test_the_last_matching_pattern_owns_a_file(path: str, owners: tuple[str, ...]) -> None:
    assert owners_of(EXAMPLE, path) == owners


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("docs/*", "docs/a.md", "docs/app/a.md"),
        ("docs/*", "docs/a.md", "x/docs/a.md"),
        ("*", "any/where.py", None),
        ("kernels/", "a/kernels/x.py", "kernels"),
        ("/kernels/", "kernels/a/x.py", "a/kernels/x.py"),
        ("/kernels/attention", "kernels/attention/triton.py", "kernels/attention2.py"),
        ("kernels/**/triton.py", "kernels/triton.py", "kernels/a/cuda.py"),
        ("kernels/**/triton.py", "kernels/a/b/triton.py", "triton.py"),
        ("**/logs", "logs/a", "catalogs/a"),
        ("foo/**", "foo/a/b", "foo"),
        ("*.cu", "kernels/softmax.cu", "kernels/softmax.cuh"),
        ("sm_?0.py", "kernels/sm_80.py", "kernels/sm_/0.py"),
        ("a.b", "a.b", "aXb"),
        ("Kernels/", "Kernels/x", "kernels/x"),
    ],
)
def test_a_pattern_means_what_gitignore_says(pattern: str, matching: str, other: str | None) -> None:
    assert owners_of(f"{pattern} @owner", matching) == ("@owner",)
    assert other is None or owners_of(f"{pattern} @owner", other) == ()


@pytest.mark.parametrize(
    "line", ["!*.py @other", "[ab].py @other", r"\#a.py @other", "*.py other", "*.py @other nobody", "# *.py @other"]
)
def test_a_line_that_is_not_valid_is_skipped_alone(line: str) -> None:
    assert owners_of(f"* @owner\n{line}\n", "a.py") == ("@owner",)


def test_a_kernel_is_owned_by_its_source_file_unless_the_table_says_otherwise() -> None:
    ownership = Ownership(
        table=(KernelOwners(kernels=("flash_*",), owners=("@attention",)),),
        codeowners=parse_codeowners("/kernels/ @kernels"),
        source_paths={"rms_norm": "kernels/rms_norm.py", "flash_mla": "kernels/flash_mla.py"},
    )

    assert ownership.owners_of(["rms_norm", "flash_mla", "rms_norm", "unknown"]) == ("@kernels", "@attention")
