"""Cached results are valid exactly as long as nothing that they depend on changes."""

import importlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from roofwatch.collector.compile import source_module, sources
from roofwatch.collector.compile.cache import DiskCache
from roofwatch.collector.runs.case_run import select
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.runs.static_compiler import (
    analyse_suite,
    compile_subjects,
    compile_suite,
    compilers,
)
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.results import StaticFacts
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import CompileStatic
from tests.collector.static_suite import COPY, HEADER, use_caches

pytestmark = pytest.mark.usefixtures("forked_servers")

PLAN = RunPlan(targets=("sm_90",), device="cpu")
SUITE = (
    HEADER
    + "import os, json, pathlib\nimport helper\n"
    + COPY.replace("BLOCK=256", "BLOCK=helper.BLOCK")
    .replace("x.numel(), ", "x.numel(), num_warps=int(os.environ.get('WARPS', '4')), ")
    .replace(
        "    y = torch",
        "    json.loads(pathlib.Path(__file__).with_name('tuned.json').read_text())\n    y = torch",
    )
)

Facts = dict[str, StaticFacts]


@contextmanager
def noted_jobs() -> Iterator[list[CompileStatic]]:
    """What is compiled within the block, and so not cached."""
    noted: list[CompileStatic] = []
    do_all = WorkerPool.do_all

    def noting(self: WorkerPool, jobs: Sequence[CompileStatic], **limits: Any) -> Any:
        noted.extend(jobs)
        return do_all(self, jobs, **limits)

    with mock.patch.object(WorkerPool, "do_all", noting):
        yield noted


def made_suite(folder: Path) -> Path:
    """A benchmark file, with the helper, the data file and the setting that it reads."""
    suite = folder / "suite"
    suite.mkdir()
    (suite / "helper.py").write_text("BLOCK = 256\n")
    (suite / "tuned.json").write_text("{}")
    (suite / "bench_copy.py").write_text(SUITE)
    other = (
        SUITE.replace('name="kernel"', 'name="other"')
        .replace("import helper\n", "")
        .replace("helper.BLOCK", "512")
    )
    (suite / "bench_other.py").write_text(other)
    return suite


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    """A folder with a compiled suite and its caches, and the facts that were found."""
    folder = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        use_caches(folder, patch)
        compiled, facts = compiled_now(made_suite(folder))
    assert compiled == ["kernel", "other"]
    return folder, facts


@pytest.fixture
def known(
    compiled_once: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Facts]:
    """A copy of a suite that was compiled before, which the test may change, and its facts."""
    folder, facts = compiled_once
    shutil.copytree(folder, tmp_path / "known")
    use_caches(tmp_path / "known", monkeypatch)
    return tmp_path / "known" / "suite", facts


def compiled_now(folder: Path) -> tuple[list[str], Facts]:
    """Which kernels had to be compiled, and the facts of all."""
    with noted_jobs() as jobs:
        facts = compile_suite(SuiteSource(folder), PLAN)
    compiled = sorted(job.case_id.split("/")[0] for job in jobs)
    return compiled, {fact.case_id.split("/")[0]: fact for fact in facts}


def edit(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


CHANGES: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], list[str]]] = {
    "a helper module": (lambda folder, _: edit(folder, "helper.py", "BLOCK = 1024\n"), ["kernel"]),
    "a kernel": (
        lambda folder, _: edit(folder, "bench_copy.py", SUITE.replace("* BLOCK", "* BLOCK * 2")),
        ["kernel"],
    ),
    "a file that the launchers read": (
        lambda folder, _: edit(folder, "tuned.json", "[]"),
        ["kernel", "other"],
    ),
    "a variable that the launchers read": (
        lambda _, patch: patch.setenv("WARPS", "8"),
        ["kernel", "other"],
    ),
    "a compiler's setting": (
        lambda _, patch: patch.setenv("TRITON_DEFAULT_FP_FUSION", "0"),
        ["kernel", "other"],
    ),
    "the version of Triton": (
        lambda _, patch: patch.setattr(
            "roofwatch.collector.compile.cache.installed_packages", lambda: [("triton-9.9", "0")]
        ),
        ["kernel", "other"],
    ),
    "a module that comes before another of its name": (
        lambda folder, _: edit(folder, "helper/__init__.py", "BLOCK = 2048\n"),
        ["kernel"],
    ),
}


def test_unchanged_kernels_are_not_compiled_again(known: tuple[Path, Facts]) -> None:
    suite, facts = known
    assert compiled_now(suite) == ([], facts)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_only_kernels_that_a_change_affects_are_compiled_again(
    known: tuple[Path, Facts], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (suite, before), (make, expected) = known, CHANGES[change]
    make(suite, monkeypatch)
    after_change, facts = compiled_now(suite)

    assert after_change == expected
    if change not in {
        "a file that the launchers read",
        "the version of Triton",
        "a compiler's setting",
    }:
        assert facts["kernel"] != before["kernel"]


def test_without_the_cache_a_run_neither_reads_nor_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_caches(tmp_path, monkeypatch)
    with noted_jobs() as jobs:
        analyse_suite(SuiteSource(made_suite(tmp_path)), PLAN, use_cache=False)

    assert sorted(job.job for job in jobs) == ["compile_static"] * 2 + ["prove_case"] * 2
    assert not (tmp_path / "cache").exists()


def test_the_oldest_entries_of_a_full_cache_are_deleted(tmp_path: Path) -> None:
    store = DiskCache(tmp_path)
    keys = [f"{number:02}-key" for number in range(4)]
    for age, key in enumerate(keys):
        store.put(key, {"text": "x" * 1_000})
        os.utime(store.folder / key[:2] / f"{key}.json", (age, age))

    store.shrink(max_bytes=2_500)

    assert [store.get(key) is not None for key in keys] == [False, False, True, True]


def test_a_run_compiles_only_what_the_cache_lacks(known: tuple[Path, Facts]) -> None:
    source = SuiteSource(known[0])
    with ForkServer() as fork_server, compilers(fork_server, source) as workers:
        subjects = [found.subject for found in select(workers.start(), PLAN)]
        with noted_jobs() as jobs:
            again = list(compile_subjects(workers, subjects, PLAN))
            assert (len(again), jobs) == (2, [])
            more = list(
                compile_subjects(workers, subjects, replace(PLAN, targets=("gfx942", "sm_90")))
            )

    assert len(jobs) == 2
    assert {tuple(fact.target for fact in facts) for _, facts in more} == {("gfx942", "sm_90")}


# --- sources of a kernel


def test_installed_packages_are_no_sources_except_for_the_bundled_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "roofwatch.collector.compile.source_module._BUNDLED",
        "/venv/lib/site-packages/roofwatch/kernels/",
    )
    assert source_module.is_installed("/venv/lib/site-packages/liger_kernel/ops.py")
    assert not source_module.is_installed("/venv/lib/site-packages/roofwatch/kernels/mlp/swiglu.py")
    assert not source_module.is_installed("/home/user/project/bench_copy.py")


LAZY = """
from roofwatch import KernelSpec, cases

def launch(x):
    import lazy_helper
    return lazy_helper.double(x)

kernel = KernelSpec(
    name="kernel", inputs=lambda case, make: {"x": make.normal(case["n"])}, reference=launch,
    cases=cases(shapes=[{"n": 8}]), flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)
"""


def test_code_of_the_project_that_lies_elsewhere_is_never_taken_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hidden_suite.py").write_text(LAZY.replace("lazy_helper", "hidden_helper"))
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = importlib.import_module("hidden_suite")
    names = frozenset({"hidden_helper"})

    def digests(project: sources.ProjectPackages) -> set[str]:
        source_module.read_module.cache_clear()
        source_module._find_spec.cache_clear()
        found = [sources.source_digests([suite.kernel], ["hidden_suite"], project) for _ in "ab"]
        return {digest["kernel"].everything for digest in found}

    assert len(digests(sources.ProjectPackages())) == 1
    assert len(digests(sources.ProjectPackages(names, (tmp_path,)))) == 2
    (tmp_path / "hidden_helper.py").write_text("def double(x): return 2 * x\n")
    assert len(digests(sources.ProjectPackages(names, (tmp_path,)))) == 1
    assert len(digests(sources.ProjectPackages(names, (tmp_path / "another",)))) == 2


def test_a_module_that_is_imported_at_launch_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        source_module.read_module.cache_clear()
        return sources.source_digests([lazy_suite.kernel], ["lazy_suite"])["kernel"].everything

    (tmp_path / "lazy_suite.py").write_text(LAZY)
    (tmp_path / "library").mkdir()
    helper = tmp_path / "library" / "lazy_helper.py"
    helper.write_text("def double(x): return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    lazy_suite = importlib.import_module("lazy_suite")
    before = digest()

    helper.write_text('"""Doubles."""\ndef double(x): return 2 * x  # twice\n')
    assert digest() == before
    helper.write_text("def double(x): return x + x\n")
    assert digest() != before


TRITON = """
import triton
from roofwatch import KernelSpec, cases

@triton.jit
def _double_kernel(x_ptr, y_ptr):
    {body}

def launch(x):
    _double_kernel[({grid},)](x, x)
    return x

kernel = KernelSpec(
    name="kernel", inputs=lambda case, make: {{"x": make.normal(case["n"])}}, reference=launch,
    cases=cases(shapes=[{{"n": 8}}]), flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)
"""


def test_the_host_digest_leaves_out_what_triton_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(body: str = "pass", grid: int = 1) -> sources.SourceDigest:
        source_module.read_module.cache_clear()
        file.write_text(TRITON.format(body=body, grid=grid))
        return sources.source_digests([suite.kernel], ["triton_suite"])["kernel"]

    file = tmp_path / "triton_suite.py"
    file.write_text(TRITON.format(body="pass", grid=1))
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = importlib.import_module("triton_suite")
    base = digest()

    other_kernel, other_launch = digest(body="return"), digest(grid=2)

    assert other_kernel.host == base.host
    assert other_kernel.everything != base.everything
    assert other_launch.host != base.host


TWO_IMPLEMENTATIONS = """
import torch
from edited_ops import double
from roofwatch import KernelSpec, cases

kernel = KernelSpec(
    name="kernel", inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x + x, cases=cases(shapes=[{"n": 8}]),
    flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)

@kernel.implementation("torch", name="ours")
def launch(x):
    return double(x)

@kernel.implementation("torch", name="library")
def library(x):
    return torch.add(x, x)
"""


def test_an_edit_changes_the_implementations_that_it_may_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digests(code: str) -> dict[str, str]:
        source_module.read_module.cache_clear()
        module.write_text(code)
        return sources.implementation_digests([suite.kernel], ["two_suite", "edited_ops"])

    def changed(code: str) -> set[str]:
        head = digests(code)
        return {name for name in head if head[name] != base[name]}

    (tmp_path / "two_suite.py").write_text(TWO_IMPLEMENTATIONS)
    module = tmp_path / "edited_ops.py"
    module.write_text("def double(x): return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = importlib.import_module("two_suite")
    base = digests("def double(x): return 2 * x\n")

    assert changed("def double(x): return 2 * x  # twice\n") == set()
    assert changed("def double(x): return x + x\n") == {"kernel/ours"}
    # importing it may change how torch works
    importing = "import torch\ndef double(x): return 2 * x\ntorch.set_num_threads(1)\n"
    assert changed(importing) == {"kernel/ours", "kernel/library"}
