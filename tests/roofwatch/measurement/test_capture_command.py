"""`roofwatch static capture`: launches of a program, compiled for GPUs that are not present."""

import shutil
from pathlib import Path

import pytest

from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, Done, roofwatch

IN_STEPS_OF_ONE = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
IN_STEPS_OF_TWO = "tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK) * 2"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a library and a program, and the launches that were captured from it."""
    folder = tmp_path_factory.mktemp("library")
    for name in ("undeclared_kernels.py", "launches_some.py"):
        shutil.copy(SUITES / name, folder / name)
    commit_all(make_repository(folder))
    captured = roofwatch("static", "capture", "--", "launches_some.py", "--steps", "1", cwd=folder)
    assert captured.status == 3, captured.error
    assert captured.output.splitlines()[-1] == "1.0 ['--steps', '1']"
    assert "4 launches in bench_captured.py, 4 new" in captured.error
    assert "skipped: __main__.hidden_kernel is not a global of its module" in captured.error
    return folder


def static(repository: Path, *arguments: str) -> Done:
    return roofwatch("static", *arguments, "--targets", "sm_90", cwd=repository)


def test_captured_launches_are_compiled_with_their_specialisation(repository: Path) -> None:
    facts = static(repository, "bench_captured.py", "--json").parsed["static_facts"]

    assert {fact["outcome"] for fact in facts} == {"ok"}
    assert {fact["function"].partition("[")[0] for fact in facts} == {
        "add_kernel",
        "copy_kernel",
        "fill_kernel",
    }
    widths = [
        {name for name in fact["instructions"] if name.startswith("global_store")}
        for fact in facts
        if fact["function"] == "add_kernel"
    ]
    assert sorted(widths, key=str) == [{"global_store.128"}, {"global_store.32"}], (
        "the second one is not aligned"
    )
    assert sum("copy_kernel[BLOCK=" in fact["function"] for fact in facts) == 2


def test_a_revision_is_compiled_with_the_current_launches(repository: Path) -> None:
    library = repository / "undeclared_kernels.py"
    before = library.read_text()
    library.write_text(before.replace(IN_STEPS_OF_ONE, IN_STEPS_OF_TWO, 1))
    try:
        done = static(
            repository,
            "bench_captured.py",
            "--kernel",
            "add*",
            "--kernel",
            "copy*",
            "--base",
            "HEAD",
            "--json",
        )
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
        (
            ("capture", "-o", "x.json", "--", "launches_some.py"),
            "x.json: a benchmark file ends in .py",
        ),
        (
            ("capture", "-o", "undeclared_kernels.py", "--", "launches_some.py"),
            "was not written by",
        ),
    ],
)
def test_errors_are_one_line(repository: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = roofwatch("static", *arguments, cwd=repository)

    assert done.status == 2
    assert complaint in done.error
    assert len(done.error.splitlines()) == 1


def test_more_launches_are_added_to_those_of_a_file(repository: Path) -> None:
    program = repository / "more.py"
    program.write_text(
        "import torch\nfrom undeclared_kernels import add_kernel, never_launched\n"
        "x = torch.ones(100)\nnever_launched[(1,)](x)\nadd_kernel[(1,)](x, x, x, 32, BLOCK=128, "
        "num_warps=1)\n"
    )
    before = (repository / "bench_captured.py").read_text().splitlines()
    shutil.copy(repository / "bench_captured.py", repository / "bench_more.py")

    done = roofwatch("static", "capture", "-o", "bench_more.py", "--", "more.py", cwd=repository)

    assert "5 launches in bench_more.py, 1 new" in done.error
    added = set((repository / "bench_more.py").read_text().splitlines()).difference(before)
    assert [line.partition("_launched_")[0] for line in added] == ["never"]


def test_a_file_of_tests_that_ran_none_of_them_leads_to_pytest(repository: Path) -> None:
    (repository / "test_some.py").write_text("def test_nothing():\n    assert False\n")

    done = roofwatch(
        "static", "capture", "-o", "bench_none.py", "--", "test_some.py", cwd=repository
    )

    assert "0 launches" in done.error
    assert "give -m pytest test_some.py" in done.error


def test_init_passes_on_that_a_captured_test_failed(repository: Path) -> None:
    (repository / "test_some.py").write_text("def test_nothing():\n    assert False\n")

    done = roofwatch("init", "--agents", "--capture", "test_some.py", "--yes", cwd=repository)

    assert done.status == 1
    assert "test_some.py: ended with status 1" in done.error


def test_an_outdated_launch_is_unsupported(repository: Path) -> None:
    file = repository / "bench_old.py"
    file.write_text(
        "from roofwatch.spec import jit_launch, pointer\nfrom undeclared_kernels import "
        "add_kernel\n"
        'extra = jit_launch("extra", add_kernel, {"x_ptr": pointer("float32"), "gone": 3})\n'
        'short = jit_launch("short", add_kernel, {"x_ptr": pointer("float32"), "BLOCK": 64})\n'
    )

    facts = static(repository, file.name, "--json").parsed["static_facts"]

    assert {fact["outcome"] for fact in facts} == {"unsupported"}
    messages = " ".join(fact["message"] for fact in facts)
    assert "no parameter 'gone'" in messages
    assert "the launch has no value for 'y_ptr'" in messages


def test_captured_launches_of_gluon_kernels_compile(tmp_path: Path) -> None:
    captured = roofwatch(
        "static", "capture", "-o", "captured.py", "--", SUITES / "bench_gluon.py", cwd=tmp_path
    )

    assert captured.status == 0, captured.error
    assert "2 launches in captured.py" in captured.error
    assert "add_one_in_gluon is recorded and not run" in captured.error
    targets = "sm_86,sm_89,sm_90"
    done = roofwatch(
        "static", SUITES / "bench_gluon.py", "--targets", targets, "--json", cwd=tmp_path
    )
    facts = {fact["target"]: fact for fact in done.parsed["static_facts"]}
    assert {fact["outcome"] for fact in facts.values()} == {"ok"}
    assert facts["sm_90"]["estimate"]["predicted_ns"] > 0
    assert facts["sm_86"]["estimate"] is None, "there is no table of rates for it"


def test_targets_that_are_not_in_the_default_set_are_compiled_by_name(tmp_path: Path) -> None:
    names = ["gfx90a", "gfx1100", "gfx1201"]
    done = roofwatch(
        "static",
        SUITES / "bench_tuned.py",
        "--targets",
        ",".join(names),
        "--json",
        cwd=tmp_path,
    )

    facts = done.parsed["static_facts"]
    assert {(fact["target"], fact["outcome"]) for fact in facts} == {(name, "ok") for name in names}
    with_occupancy = {fact["target"] for fact in facts if fact["theoretical_occupancy"] is not None}
    assert with_occupancy == {"gfx90a"}
