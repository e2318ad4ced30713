"""The commits of a range, and what kernels are built from at each."""

from pathlib import Path

import pytest

from roofwatch.bisection.commits import list_commits, read_build_inputs
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from tests.git_repository import commit_file, make_repository
from tests.roofwatch.command import SUITES

pytestmark = pytest.mark.usefixtures("forked_servers")

BENCHMARK = (SUITES / "bench_good.py").read_text()
PLAN = RunPlan(kernels=("scale",), implementations=("triton",))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "some")


def test_machine_code_is_identical_if_only_host_code_changed(repository: Path) -> None:
    other_host = BENCHMARK.replace("y = torch.empty_like(x)", "y = torch.zeros_like(x)")
    other_kernel = BENCHMARK.replace("x * factor", "x * factor + 1")
    shas = [
        commit_file(repository, "bench_good.py", text)
        for text in (BENCHMARK, other_host, other_kernel)
    ]

    with ForkServer() as fork_server:
        commits = list_commits(repository, shas[0], "HEAD")
        found = read_build_inputs(
            repository / "bench_good.py", commits, PLAN, "sm_90", fork_server, lambda _: None
        )

    first, host, kernel = (one.machine_code for one in found)
    assert first is not None
    assert first == host != kernel


def test_what_a_kernel_does_not_run_leaves_its_sources_equal(
    repository: Path,
) -> None:
    shas = [
        commit_file(repository, "bench_good.py", BENCHMARK),
        commit_file(repository, "other.py", "nobody = 'imports this'"),
        commit_file(repository, "bench_good.py", f"# a comment\n{BENCHMARK}"),
        commit_file(repository, "page.md", "a page"),
        commit_file(repository, "bench_good.py", f"{BENCHMARK}\nMORE = 1"),
        commit_file(repository, "bench_good.py", "raise RuntimeError('broken')"),
        commit_file(repository, "table.csv", "1"),
    ]

    with ForkServer() as fork_server:
        commits = list_commits(repository, shas[0], "HEAD")
        found = read_build_inputs(
            repository / "bench_good.py", commits, PLAN, None, fork_server, lambda _: None
        )

    sources = [one.sources for one in found]
    assert sources[0] is not None
    assert sources[0] == sources[1] == sources[2] == sources[3] != sources[4]
    assert [bool(one.error) for one in found] == [False] * 5 + [True] * 2
    assert found[5].error == "bench_good.py: line 1: RuntimeError: broken"


def test_commits_are_listed_along_first_parents_with_their_numbers(repository: Path) -> None:
    shas = [commit_file(repository, "a.md", str(number)) for number in range(4)]

    found = list_commits(repository, shas[0], "HEAD")

    assert found.good_sha == shas[0]
    numbers = [(ref.first_parent_count, ref.sha) for ref in found.commits]
    assert numbers == [(2, shas[1]), (3, shas[2]), (4, shas[3])]
    assert {ref.author for ref in found.commits} == {"A. Author"}
