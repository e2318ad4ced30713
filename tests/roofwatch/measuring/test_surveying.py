"""What commits are made from, found out without measuring anything."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.history.survey import commit_refs, commits_between, machine_code_digest, sha_of, survey
from tests.roofwatch.command import SUITES

pytestmark = pytest.mark.usefixtures("forked_servers")

BENCHMARK = (SUITES / "bench_good.py").read_text()
Commit = Callable[[str, str], str]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "some"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", folder], check=True)
    return folder


@pytest.fixture
def commit(repository: Path) -> Commit:
    def make(file: str, text: str) -> str:
        (repository / file).write_text(text)
        own = ["-c", "user.name=A. Author", "-c", "user.email=author@example.org"]
        subprocess.run(["git", "-C", repository, "add", "."], check=True)
        subprocess.run(["git", "-C", repository, *own, "commit", "-qm", f"Change {file}"], check=True)
        return sha_of(repository, "HEAD")

    return make


def test_the_machine_code_is_the_same_where_only_the_host_s_part_changed(repository: Path, commit: Commit) -> None:
    benchmark = repository / "bench_good.py"
    first = commit("bench_good.py", BENCHMARK)
    host = commit("bench_good.py", BENCHMARK.replace("y = torch.empty_like(x)", "y = torch.zeros_like(x)"))
    kernel = commit("bench_good.py", BENCHMARK.replace("x * factor", "x * factor + 1"))
    plan = RunPlan(kernels=("scale",), implementations=("triton",), targets=("sm_90",))

    digests = [machine_code_digest(benchmark, sha, plan) for sha in (first, host, kernel)]

    assert digests[0] is not None
    assert digests[0] == digests[1] != digests[2]


def test_commits_that_change_comments_documents_or_another_module_leave_the_sources_of_a_kernel_equal(
    repository: Path, commit: Commit
) -> None:
    benchmark = repository / "bench_good.py"
    shas = [
        commit("bench_good.py", BENCHMARK),
        commit("other.py", "nobody = 'imports this'"),
        commit("bench_good.py", f"# a comment\n{BENCHMARK}"),
        commit("page.md", "a page"),
        commit("bench_good.py", f"{BENCHMARK}\nMORE = 1"),
        commit("bench_good.py", "raise RuntimeError('broken')"),
        commit("table.csv", "1"),
    ]

    with ForkServer() as fork_server:
        found = survey(benchmark, shas, fork_server, lambda _: None)

    sources = [one.sources.get("scale") for one in found]
    assert sources[0] is not None
    assert sources[0] == sources[1] == sources[2] == sources[3] != sources[4]
    assert [bool(one.trouble) for one in found] == [False] * 5 + [True] * 2
    assert found[5].trouble == "bench_good.py: line 1: RuntimeError: broken"


def test_commits_are_listed_along_first_parents_with_their_places(repository: Path, commit: Commit) -> None:
    shas = [commit("a.md", str(number)) for number in range(4)]

    between = commits_between(repository, shas[0], "HEAD")

    assert between == shas[1:]
    refs = commit_refs(repository, shas[0], between)
    assert [(ref.first_parent_count, ref.sha) for ref in refs] == [(2, shas[1]), (3, shas[2]), (4, shas[3])]
    assert {ref.author for ref in refs} == {"A. Author"}
