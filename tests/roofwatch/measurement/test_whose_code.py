"""The code that is measured is that of the commit, wherever a package lies and however it is
installed; else there is no verdict.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from roofwatch.model.provenance import Origin
from roofwatch.model.record import RunRecord
from tests.git_repository import commit_all, commit_file
from tests.packaged import (
    BENCHMARK,
    OPS,
    install,
    make_compiled,
    make_inner,
    make_pure,
    make_triton,
    slow_down,
    write,
)
from tests.roofwatch.command import Done, roofwatch, started_roofwatch

BRIEFLY = ("--device", "cpu", "--blocks", "4", "--budget", "0")
SERIES = "accumulated/n=20000/float32/fwd"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(tmp_path / "cache"))


def ab(
    repository: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    command: Callable[..., Done] = roofwatch,
) -> Done:
    (benchmark,) = repository.rglob("bench_*.py")
    records = repository.parent / "records"
    settings = ("--base", "HEAD~1", "-o", records, "--json", *BRIEFLY)
    return command("ab", benchmark, *settings, *arguments, cwd=repository, **(environment or {}))


def installed_copy(repository: Path, project: str = "") -> dict[str, str]:
    """Install the repository's package as it is now; the installation stays as it is."""
    copy = repository.parent / "copy"
    shutil.copytree(repository / project, copy)
    return install(copy, repository.parent / "site")


def reasons(done: Done) -> set[str]:
    return {case["reason"] for case in done.parsed["judgement"]["cases"]}


LAYOUTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "in a folder": (make_pure, ""),
    "in a monorepo": (
        lambda folder: make_pure(folder, project="packages/qk", root="lib"),
        "packages/qk",
    ),
    "in src": (lambda folder: make_pure(folder, root="src"), ""),
    "with an extension, in a folder": (lambda folder: make_compiled(folder, root="python"), ""),
    "with an extension, at the root": (lambda folder: make_compiled(folder, root="."), ""),
    "with an extension and the benchmark": (make_inner, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slower_head_is_found_although_another_build_is_installed(
    layout: str, tmp_path: Path
) -> None:
    make, project = LAYOUTS[layout]
    repository = make(tmp_path / "repository")
    environment = installed_copy(repository, project)
    slow_down(repository)

    done = ab(repository, "--affected", environment=environment)

    assert done.status == 1, done.error
    assert reasons(done) == {"beyond_threshold"}
    base, head = (RunRecord.read(Path(file)) for file in done.parsed["records"])
    digests = [
        {
            file.path: file.sha256
            for file in record.provenance
            if "ops" in file.path or ".so" in file.path
        }
        for record in (base, head)
    ]
    assert digests[0].keys() == digests[1].keys() != set()
    assert digests[0] != digests[1]
    origins = {file.origin for record in (base, head) for file in record.provenance}
    assert origins <= {Origin.TREE, Origin.BUILD}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--editable"])
def test_an_installation_in_the_environment_is_not_measured(option: str, tmp_path: Path) -> None:
    repository = make_pure(tmp_path / "repository")
    python = make_environment(tmp_path / "environment")
    slow_down(repository)
    program = os.fspath(python)
    pip = [program, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    prefix = os.fspath(python.parent.parent)
    arguments = ["--no-index", "--prefix", prefix, *filter(None, [option]), os.fspath(repository)]
    subprocess.run([*pip, *arguments], check=True, capture_output=True)

    command = [program, "-c", "from roofwatch.cli.main import main; main()", "ab"]
    settings = ["bench/bench_qk.py", "--base", "HEAD~1", *BRIEFLY]
    done = subprocess.run(
        [*command, *settings], cwd=repository, check=False, capture_output=True, text=True
    )

    assert done.returncode == 1, done.stderr
    assert "regressed: 1 of 1 benchmark slower" in done.stdout


def make_environment(folder: Path) -> Path:
    """A virtual environment that sees the packages of this one behind its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    purelib = sysconfig.get_path("purelib")
    (packages / "others.pth").write_text(f"import site; site.addsitedir({purelib!r})\n")
    return folder / "bin" / "python"


@pytest.fixture
def hidden(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A repository that says nowhere that its package lies in `python`, and another copy of it."""
    repository = make_pure(tmp_path / "repository")
    (repository / "pyproject.toml").unlink()
    late = BENCHMARK.replace("from qk.ops import accumulate\n", "", 1)
    late = late.replace("    return acc", "    from qk.ops import accumulate\n\n    return acc")
    write(repository, {"bench/bench_qk.py": late})
    commit_all(repository)
    shutil.copytree(repository / "python", tmp_path / "site")
    slow_down(repository)
    return repository, {"PYTHONPATH": os.fspath(tmp_path / "site")}


@pytest.mark.slow
def test_code_from_elsewhere_gets_the_way_out_in_place_of_a_verdict(
    hidden: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    repository, environment = hidden

    done = ab(repository, "--affected", environment=environment)

    assert done.status == 2
    assert reasons(done) == {"foreign_code"}
    assert "nothing is timed: qk is not the code of the commit" in done.error
    files = [Path(file) for file in done.parsed["records"]]
    compared = roofwatch("compare", *files)
    assert compared.status == 2
    words = " ".join(compared.output.split())
    assert "the base loaded qk from another folder (qk/__init__.py), not from its commit" in words
    assert "give roofwatch.toml a [build] command that installs it into {prefix}" in words
    assert "no result: the measured code is not that of the commit" in words

    command = 'command = "cp -r {source}/python/. {prefix}"'
    write(repository, {"roofwatch.toml": f"[build]\n{command}\n"})
    done = ab(repository, "--resume", environment=environment)
    assert done.status == 1, "the head's command builds the base too"
    assert reasons(done) == {"beyond_threshold"}


@pytest.mark.slow
def test_commands_that_measure_one_commit_refuse_code_from_elsewhere(
    hidden: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    repository, environment = hidden
    suite = repository / "bench"
    output = ("-o", tmp_path / "records", "--device", "cpu")
    commands: list[tuple[str | Path, ...]] = [
        ("run", suite, "--rev", "HEAD~1", *output),
        ("check", suite, "--device", "cpu"),
        ("bisect", suite, "--series", SERIES, "--good", "HEAD~1", "--bad", "HEAD", *output),
    ]
    for command in commands:
        done = roofwatch(*command, cwd=repository, **environment)
        assert done.status == 2, command
        assert "qk was loaded from another folder (qk/__init__.py)" in done.error, command


@pytest.mark.slow
def test_a_head_that_cannot_be_built_fails_unlike_such_a_base(
    tmp_path: Path,
) -> None:
    repository = make_compiled(tmp_path / "repository", root="python")
    good = (repository / "csrc" / "native.c").read_text()
    commit_file(repository, "csrc/native.c", f"{good}\n#error broken\n")

    done = ab(repository)
    assert done.status == 1
    assert "head: qk: cannot be built: exit status 1" in done.error
    assert "#error broken" in done.error

    commit_file(repository, "csrc/native.c", good)
    done = ab(repository)
    assert done.status == 2
    assert "base: qk: cannot be built" in done.error


@pytest.mark.slow
def test_the_machine_code_of_a_triton_kernel_is_that_of_each_commit(tmp_path: Path) -> None:
    repository = make_triton(tmp_path / "repository")
    environment = installed_copy(repository)
    slow_down(repository)

    done = ab(repository, "--targets", "sm_90", "--affected", environment=environment)

    assert "nothing to measure" not in done.error
    base, head = (RunRecord.read(Path(file)) for file in done.parsed["records"])
    assert base.foreign_code is head.foreign_code is None
    assert {fact.code_hash for fact in base.static_facts}.isdisjoint(
        fact.code_hash for fact in head.static_facts
    )


def make_wheel(folder: Path, version: str, source: str) -> None:
    """A wheel of a package `helper`."""
    folder.mkdir(exist_ok=True)
    info = f"helper-{version}.dist-info"
    files = {
        "helper.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: helper\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"helper-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.mark.slow
def test_changed_dependencies_are_measured_in_isolated_environments(
    tmp_path: Path,
) -> None:
    for version, rounds in (("1", 1), ("2", 9)):
        make_wheel(tmp_path / "wheels", version, f"ROUNDS = {rounds}\n")
    repository = make_pure(tmp_path / "repository")
    ops = OPS.replace("ROUNDS = {rounds}\n", "from helper import ROUNDS\n")
    write(repository, {"python/qk/ops.py": ops, "requirements.txt": "helper==1\n"})
    write(repository, {"roofwatch.toml": "[build]\nisolated = true\n"})
    commit_all(repository)
    commit_file(repository, "requirements.txt", "helper==2\n")

    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": os.fspath(tmp_path / "wheels")}
    # a forked command would fork its workers from this environment
    done = ab(repository, environment=index, command=started_roofwatch)

    assert done.status == 1, done.error
    assert reasons(done) == {"beyond_threshold"}
    compared = roofwatch("compare", *map(Path, done.parsed["records"]))
    words = " ".join(compared.output.split())
    assert "the dependencies differ (helper ==1 → ==2): each side ran with its own" in words

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "helper.py").write_text("ROUNDS = 1\n")
    shared = {"PYTHONPATH": os.fspath(tmp_path / "site"), "ROOFWATCH_BUILD_ISOLATED": "false"}
    compared = ab(repository, "-o", os.fspath(tmp_path / "shared"), environment=shared)
    note = compared.parsed["judgement"]["dependencies"]
    assert "both sides ran with the head's packages" in note["template"]
