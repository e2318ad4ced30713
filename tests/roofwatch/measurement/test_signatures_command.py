"""Kernels without a benchmark file: launches are captured once, then compiled for GPUs that are not present."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.roofwatch.command import SUITES, Done, roofwatch

IN_STEPS_OF_ONE = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
IN_STEPS_OF_TWO = "tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK) * 2"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Test Author", "-c", "user.email=author@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a library and a program, and the signatures that were captured from it."""
    folder = tmp_path_factory.mktemp("library")
    for name in ("undeclared_kernels.py", "launches_some.py"):
        shutil.copy(SUITES / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Add the library")
    captured = roofwatch("static", "capture", "--", "launches_some.py", "--steps", "1", cwd=folder)
    assert captured.status == 3, captured.error
    assert captured.output.splitlines()[-1] == "1.0 ['--steps', '1']"
    assert "4 signatures in roofwatch-signatures.toml, 4 new" in captured.error
    assert "skipped: __main__:hidden_kernel is not a global of its module" in captured.error
    return folder


def static(repository: Path, *arguments: str) -> Done:
    return roofwatch("static", *arguments, "--targets", "sm_90", cwd=repository)


def test_captured_launches_are_compiled_with_their_specialisation(repository: Path) -> None:
    facts = static(repository, "roofwatch-signatures.toml", "--json").parsed["static_facts"]

    assert {fact["outcome"] for fact in facts} == {"ok"}
    assert {fact["function"].partition("[")[0] for fact in facts} == {"add_kernel", "copy_kernel", "fill_kernel"}
    widths = [
        {name for name in fact["instructions"] if name.startswith("global_store")}
        for fact in facts
        if fact["function"] == "add_kernel"
    ]
    assert sorted(widths, key=str) == [{"global_store.128"}, {"global_store.32"}], "the second one is not aligned"
    assert sum("copy_kernel[BLOCK=" in fact["function"] for fact in facts) == 2


def test_a_revision_is_compiled_with_the_current_signatures(repository: Path) -> None:
    library = repository / "undeclared_kernels.py"
    before = library.read_text()
    library.write_text(before.replace(IN_STEPS_OF_ONE, IN_STEPS_OF_TWO, 1))
    try:
        done = static(repository, "--module", "undeclared_kernels", "--base", "HEAD", "--json")
    finally:
        library.write_text(before)

    judged = {(item["function"], item["verdict"], item["reason"]) for item in done.parsed["judged"]}
    assert done.parsed["unchanged_by_target"] == {"sm_90": 2}
    assert ("add_kernel", "regressed", "access_width_changed") in judged, judged
    assert {function for function, _, _ in judged} == {"add_kernel"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("capture", "--", "absent.py"), "absent.py: give a Python file"),
        (("capture", "-o", "x.json", "--", "launches_some.py"), "x.json: a signature file ends in .toml"),
        (("--module", "undeclared_kernels", "absent.toml"), "absent.toml: no such signature file"),
        (("--module", "undeclared_kernels", "launches_some.py"), "--module takes a signature file"),
        (("--module", "no_such_module"), "module no_such_module: no signature"),
    ],
)
def test_errors_are_one_line(repository: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = roofwatch("static", *arguments, cwd=repository)

    assert done.status == 2
    assert complaint in done.error
    assert len(done.error.splitlines()) == 1


def test_an_outdated_signature_is_unsupported(repository: Path, tmp_path: Path) -> None:
    file = repository / "old.toml"
    file.write_text(
        '[[signature]]\nfunction = "undeclared_kernels:add_kernel"\narguments = { x_ptr = "*fp32", gone = "i32" }\n'
        '[[signature]]\nfunction = "undeclared_kernels:add_kernel"\narguments = { x_ptr = "*fp32", BLOCK = 64 }\n'
        '[[signature]]\nfunction = "undeclared_kernels:never_launched"\narguments = { x_ptr = 5 }\n'
    )

    facts = static(repository, "old.toml", "--json").parsed["static_facts"]

    assert {fact["outcome"] for fact in facts} == {"unsupported"}
    messages = " ".join(fact["message"] for fact in facts)
    assert "no parameter 'gone'" in messages
    assert "the signature has no value for 'y_ptr'" in messages
    assert "x_ptr: 5 is not a notation" in messages
