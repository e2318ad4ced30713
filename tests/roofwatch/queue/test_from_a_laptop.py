"""A laptop without torch measures on a runner in another process, through a real server."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.bisection.commits import newest_commits
from roofwatch.collector.git import read_commit
from roofwatch.db.agenda import list_jobs
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queue import list_queued_jobs
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.agenda import StoredJob
from roofwatch.model.history import CommitRef, Scope
from roofwatch.model.queue import QueuedJob
from roofwatch.model.record import RunRecord
from tests.api.conftest import RUNNER_CLASS, new_token, served
from tests.builders import make_change_point, make_record, make_regression, make_series_key
from tests.databases import ingest_all, text_of
from tests.docs.markdown import ROOT, code_blocks, shell_lines
from tests.git_repository import commit_all, commit_file, git, make_repository
from tests.roofwatch.agents.test_mcp import Agent, ask, finished
from tests.roofwatch.command import Done
from tests.roofwatch.extras import only_with

_COMMAND = (sys.executable, "-m", "roofwatch")
SUITE = textwrap.dedent('''\
    """A kernel in torch alone."""

    from helper import total_of
    from roofwatch import KernelSpec, cases

    total = KernelSpec(
        name="total",
        inputs=lambda case, make: {"x": make.normal(case["n"])},
        reference=lambda x: x.square().sum(),
        cases=cases(shapes=[{"n": 500}], directions=["fwd"]),
        flop_count=lambda case: 2 * case["n"],
        memory_bytes=lambda case: case["n"] * case.itemsize,
    )


    @total.implementation("torch")
    def total_eager(x):
        return total_of(x)
    ''')
FAST = "def total_of(x):\n    return (x * x).sum()\n"
SLOW = (
    "def total_of(x):\n    for _ in range(50):\n        x = x.clone()\n    return (x * x).sum()\n"
)
_PAGE = ROOT / "docs" / "how-to" / "queue.md"
CANDIDATE = "def candidate(x):\n    return x.sum()\n"
PROGRAM = "import torch\nfor _ in range(3):\n    (torch.rand(9) * 2).sum()\n"
NCU = """\
#!{python}
import json, shutil, sys
job = json.load(open(json.loads(sys.argv[-1])[0]))
open(job["answer"], "w").write("null")
shutil.copy("{report}", sys.argv[sys.argv.index("--export") + 1])
"""
"""A stand-in for Nsight Compute, which needs a GPU: it reports what was recorded on one."""
RECORDED_REPORT = ROOT / "tests" / "data" / "profiles" / "sgemm_profile.ncu-rep"
RUNNER_JOB = """\
#!/bin/sh
#SBATCH --gres=gpu:1 --time=01:00:00
exec {python} -m roofwatch runner up --class '{runner_class}' --once
"""
"""What is given to `sbatch`."""
SBATCH = '#!/bin/sh\nnohup sh "$1" > "$1.log" 2>&1 &\necho "Submitted batch job 1"\n'
"""A stand-in for Slurm's: starts the script in the background."""


@dataclass
class Place:
    """A server, a repository on a laptop, and what the processes of both sides know."""

    store: Engine
    url: str
    repository: Path
    laptop: dict[str, str]
    machine: dict[str, str]

    def client(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*_COMMAND, *arguments],
            cwd=self.repository,
            env=os.environ | self.laptop,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def jobs(self) -> list[QueuedJob]:
        with Session(self.store) as session:
            return list_queued_jobs(session, None)

    def states(self) -> list[str]:
        return [job.state for job in self.jobs()]

    def has_trees(self) -> bool:
        with self.store.connect() as connection:
            return bool(connection.scalar(text("SELECT bool_and(has_tree) FROM queued_job")))


@pytest.fixture
def place(store: Engine, tmp_path: Path) -> Iterator[Place]:
    repository = make_repository(tmp_path / "kernels")
    (repository / ".gitignore").write_text("roofwatch-records/\n__pycache__/\n")
    (repository / "helper.py").write_text(FAST)
    commit_file(repository, "bench_total.py", SUITE)
    # a change that is not committed, and a file that git does not know
    (repository / "helper.py").write_text(SLOW)
    (repository / "notes.txt").write_text("not committed\n")
    core = tmp_path / "core"
    core.mkdir()
    with served(store) as (host, port):
        url = f"http://{host}:{port}"
        common = {"ROOFWATCH_SERVER_URL": url, "NO_COLOR": "1"}
        now = datetime.now(UTC)
        tokens = {
            scope: new_token(store, scope, project=None, now=now).text
            for scope in (Scope.RUN, Scope.RUNNER)
        }
        laptop = common | only_with(core) | {"ROOFWATCH_TOKEN": tokens[Scope.RUN]}
        machine = common | {
            "ROOFWATCH_TOKEN": tokens[Scope.RUNNER],
            "ROOFWATCH_DATA_DIR": str(tmp_path / "data"),
        }
        yield Place(store, url, repository, laptop, machine)


@contextlib.contextmanager
def runner_of(place: Place, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*_COMMAND, "runner", "up", "--class", RUNNER_CLASS, "--every", "0.2", *options],
        env=os.environ | place.machine,
        cwd=place.repository.parent,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def ended(client: subprocess.Popen[str]) -> Done:
    output, error = client.communicate(timeout=300)
    return Done(client.returncode, output, error)


def documented_commands() -> list[list[str]]:
    """The words after `roofwatch` that the page shows, for this suite and runner."""
    lines = shell_lines(_PAGE, "Send a command")
    words = {"bench_scale_add.py": "bench_total.py", "h100": RUNNER_CLASS}
    return [[words.get(word, word) for word in shlex.split(line)[1:]] for line in lines]


@pytest.mark.slow
def test_a_laptop_without_torch_measures_its_work_tree_on_a_runner(place: Place) -> None:
    _, compare, measure = documented_commands()
    measuring = ["--targets", "", "--device", "cpu", "--json"]
    with runner_of(place):
        refused = ended(place.client("run", "bench_total.py", "--device", "cpu"))
        compared = ended(place.client(*compare, "--budget", "0", *measuring))
        # a path of the laptop alone
        suite = str(place.repository / "bench_total.py")
        killed = place.client(
            *[suite if word == "bench_total.py" else word for word in measure], *measuring
        )
        wait_until(lambda: "running" in place.states())
        killed.kill()
        killed.communicate()
        (job,) = [job for job in place.jobs() if job.command[0] == "run"]
        measured = ended(place.client("queue", "follow", str(job.job_id)))

    assert "import torch" in refused.error
    assert compared.status == 1, compared.error
    assert compared.parsed["summary"].startswith("regressed: 1 of 1")
    base, head = [RunRecord.read(place.repository / name) for name in compared.parsed["records"]]
    assert base.commit.sha == head.commit.sha
    assert (base.commit.is_dirty, head.commit.is_dirty) == (False, True)
    assert (head.project, head.commit.branch) == ("kernels", "main")
    # each result as a line, as it comes
    assert "total/n=500/float32/fwd" in compared.error
    assert measured.status == 0, measured.error
    assert measured.parsed["commit"]["is_dirty"]
    assert RunRecord.read(place.repository / "record.json").commit.is_dirty
    assert (place.repository / "helper.py").read_text() == SLOW
    assert place.states() == ["done", "done"]


@pytest.mark.slow
def test_a_batch_job_of_slurm_takes_over_from_a_killed_runner_until_its_job_is_cancelled(
    place: Place, tmp_path: Path
) -> None:
    (place.repository / "waits.py").write_text("import time\ntime.sleep(600)\n")
    check, *_ = documented_commands()
    client = place.client(*check, "--device", "cpu")
    with runner_of(place) as runner:
        wait_until(lambda: place.states() == ["running"])
        runner.send_signal(signal.SIGKILL)
        runner.wait()
    with place.store.begin() as connection:
        connection.execute(text("UPDATE queued_job SET leased_until = now()"))

    script = tmp_path / "runner.sh"
    script.write_text(RUNNER_JOB.format(python=sys.executable, runner_class=RUNNER_CLASS))
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(SBATCH)
    submitted = subprocess.run(
        ["sh", str(sbatch), str(script)],
        env=os.environ | place.machine,
        capture_output=True,
        check=True,
    )
    assert submitted.stdout.startswith(b"Submitted batch job")
    checked = ended(client)
    assert checked.status == 0, checked.error
    assert "attempt 2" in checked.error
    wait_until(lambda: "exit status 0" in script.with_suffix(".sh.log").read_text())

    profiled = place.client("profile", "--on", RUNNER_CLASS, "--", "python", "waits.py")
    with runner_of(place):
        wait_until(lambda: "running" in place.states())
        profiled.send_signal(signal.SIGINT)
        interrupted = ended(profiled)
        wait_until(lambda: "running" not in place.states())
    assert interrupted.status == 130
    assert "is cancelled" in interrupted.error
    assert sorted(place.states()) == ["cancelled", "done"]


def wait_until(is_true: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "program", "message"),
    [
        ("--memory", "numbers = bytearray(b'x' * 2**30)", "GiB of memory, at most 0.5 GiB"),
        (
            "--disk",
            "open('numbers', 'wb').write(b'x' * 2**30)",
            "GiB of the disk, at most 0.5 GiB",
        ),
    ],
)
def test_a_job_that_takes_more_than_a_runner_gives_is_ended(
    limit: str, program: str, message: str, place: Place
) -> None:
    (place.repository / "takes.py").write_text(f"import time\n{program}\ntime.sleep(600)\n")
    with runner_of(place, limit, "0.5"):
        done = ended(place.client("profile", "--on", RUNNER_CLASS, "--", "python", "takes.py"))

    assert done.status == 124
    assert message in done.error


@pytest.mark.slow
def test_a_submission_is_judged_on_a_runner(place: Place) -> None:
    # a submission may change nothing but its own file
    (place.repository / "helper.py").write_text(FAST)
    (place.repository / "candidate.py").write_text(CANDIDATE)
    submit = ["submit", "candidate.py", "--spec", "bench_total.py", "--budget", "120", "--json"]
    with runner_of(place):
        submitted = ended(place.client(*submit, "--on", RUNNER_CLASS))

    assert submitted.status == 1, submitted.error
    assert submitted.parsed["verdict"] == "incorrect"


@pytest.mark.slow
def test_a_kernel_is_diagnosed_on_a_runner_even_from_a_record_that_git_ignores(
    place: Place,
) -> None:
    record = "roofwatch-records/total.json"
    (place.repository / "roofwatch-records").mkdir()
    measure = ["diagnose", "total", "bench_total.py", "--targets", "", "--device", "cpu"]
    with runner_of(place):
        measured = ended(place.client(*measure, "-o", record, "--json", "--on", RUNNER_CLASS))
        read = ended(
            place.client("diagnose", "total", "--record", record, "--json", "--on", RUNNER_CLASS)
        )

    assert measured.status == 0, measured.error
    assert read.status == 0, read.error
    (measured_case,) = measured.parsed["diagnoses"]
    (read_case,) = read.parsed["diagnoses"]
    assert measured_case["timing"] == read_case["timing"]
    assert measured_case["limit"] == read_case["limit"]


@pytest.mark.slow
def test_counters_of_nsight_compute_come_from_the_runner(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report", reason="the module that reads its reports is not installed")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ncu").write_text(NCU.format(python=sys.executable, report=RECORDED_REPORT))
    (tools / "ncu").chmod(0o755)
    place.machine["PATH"] = f"{tools}:{os.environ['PATH']}"
    count = ["ncu", "total", "bench_total.py", "-i", "torch", "-o", "total.ncu-rep", "--json"]
    with runner_of(place):
        counted = ended(place.client(*count, "--on", RUNNER_CLASS))

    assert counted.status == 0, counted.error
    (call,) = counted.parsed["calls"]
    assert call["counters"]
    assert (place.repository / "total.ncu-rep").read_bytes() == RECORDED_REPORT.read_bytes()


@pytest.mark.slow
def test_records_of_a_watch_on_a_runner_are_sent_from_here(
    place: Place,
) -> None:
    git(place.repository, "checkout", "--quiet", "--", "helper.py")
    (place.repository / "README.md").write_text("Sums.\n")
    commit_all(place.repository, "Describe the kernel")
    # settings of the tree name a server that the runner cannot reach
    (place.repository / "roofwatch.toml").write_text('server_url = "http://127.0.0.1:9"\n')
    watch = ["watch", "bench_total.py", "--targets", "", "--device", "cpu", "--on", RUNNER_CLASS]
    with runner_of(place):
        first = ended(place.client(*watch, "--json"))
        (place.repository / "helper.py").write_text(SLOW)
        commit_all(place.repository, "Copy the input")
        second = ended(place.client(*watch, "--json"))
        planned = ended(place.client(*watch, "--dry-run", "--json"))
        refused = ended(place.client(*watch, "--follow"))

    assert first.status == 0, first.error
    assert [done["job"]["kind"] for done in first.parsed["done"]] == ["new", "calibrate"]
    assert second.status == 1, second.error
    (news,) = second.parsed["news"]
    assert news["kind"] == "regressed"
    assert news["sha"] == git(place.repository, "rev-parse", "HEAD")
    assert planned.parsed["agenda"] == []
    assert refused.status == 2
    assert "--follow needs this machine" in refused.error
    # what was told is known to the next runner
    assert (place.repository / "roofwatch-records" / "watch" / "told.json").exists()
    heads = {
        RunRecord.read(file).commit.first_parent_count
        for file in (place.repository / "roofwatch-records").glob("*.json*")
    }
    assert heads == {2, 3}


@pytest.mark.slow
def test_an_agent_without_torch_measures_on_a_runner(place: Place, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (place.repository / "program.py").write_text(PROGRAM)
    (place.repository / "candidate.py").write_text(CANDIDATE)

    async def session(agent: Agent) -> None:
        compared = await finished(
            agent,
            "ab",
            base="HEAD",
            blocks=3,
            budget=0,
            targets="",
            device="cpu",
            runner=RUNNER_CLASS,
        )
        assert compared["exit_status"] == 1, compared
        assert compared["result"]["changed"][0]["verdict"] == "regressed", compared
        measured = await finished(
            agent, "run", blocks=3, targets="", device="cpu", runner=RUNNER_CLASS
        )
        assert measured["exit_status"] == 0, measured
        # a submission may change nothing but its own file
        (place.repository / "helper.py").write_text(FAST)
        checked = await finished(
            agent, "check", target="bench_total.py", runner=RUNNER_CLASS, device="cpu"
        )
        assert checked["exit_status"] == 0, checked
        profiled = await finished(
            agent, "profile", command=["program.py"], seconds=0, runner=RUNNER_CLASS
        )
        assert profiled["exit_status"] == 0, profiled
        submitted = await finished(
            agent,
            "submit",
            candidate="candidate.py",
            spec="bench_total.py",
            budget=120,
            runner=RUNNER_CLASS,
        )
        assert submitted["result"]["verdict"] == "incorrect", submitted

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "roofwatch", "mcp", str(place.repository)],
        env=os.environ | place.laptop | only_with(installed, "mcp"),
    )
    with runner_of(place):
        ask(server, session)
    commands = sorted(job.command[0] for job in place.jobs())
    assert commands == ["ab", "check", "profile", "run", "submit"]
    assert list(place.repository.glob("roofwatch-profiles/*/*.json*"))
    assert set(place.states()) == {"done"}


@pytest.mark.slow
def test_ray_divides_the_cases_of_a_job_among_the_devices_of_its_runner(place: Place) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    measure = ["run", "bench_total.py", "--targets", "", "--device", "cpu", "--json"]
    with runner_of(place):
        done = ended(place.client(*measure, "-o", "r.json", "--ray", "local", "--on", RUNNER_CLASS))

    assert done.status == 0, done.error
    (record,) = done.parsed["records"]
    assert record["record"] == "r.json"
    assert RunRecord.read(place.repository / "r.json").commit.is_dirty


@pytest.mark.slow
def test_the_documented_job_of_kubernetes_ends_after_it_carried_out_what_waits(
    place: Place,
) -> None:
    import yaml  # missing where only tests of the GPU run

    (manifest,) = code_blocks(_PAGE, "yaml", section="Kubernetes")
    (container,) = yaml.safe_load(manifest)["spec"]["template"]["spec"]["containers"]
    program, *words = [RUNNER_CLASS if word == "h100" else word for word in container["command"]]
    assert program == "roofwatch"
    assert {variable["name"] for variable in container["env"]} == {
        "ROOFWATCH_SERVER_URL",
        "ROOFWATCH_TOKEN",
    }
    client = place.client("profile", "--on", RUNNER_CLASS, "--", "python", "-c", "print(1)")
    wait_until(lambda: place.states() == ["waiting"] and place.has_trees())

    ended_job = subprocess.run(
        [*_COMMAND, *words],
        env=os.environ | place.machine,
        cwd=place.repository.parent,
        check=False,
    )

    assert ended_job.returncode == 0
    assert place.states() == ["done"]
    assert "running on" in ended(client).error


def ask_to_confirm(place: Place, base: CommitRef, head: CommitRef, runner_class: str) -> None:
    """Store a regression between two commits, and ask for its pair as a person does."""
    point = make_change_point(
        series=make_series_key(
            project="kernels",
            case_id="total/n=500/float32/fwd",
            runner_class=runner_class,
        ),
        commit=head,
        previous_commit=base,
    )
    regression = make_regression(
        project="kernels", commit=head, kernel="total", change_points=(point,)
    )
    replace_regressions(place.store, "kernels", [regression])
    asked = subprocess.run(
        [*_COMMAND, "triage", head.sha, "confirm", "--project", "kernels"],
        cwd=place.repository,
        env=os.environ | {"ROOFWATCH_DATABASE_URL": text_of(place.store.url)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr


@pytest.mark.slow
def test_a_pair_that_a_person_asked_for_is_measured_once_by_a_runner_of_the_queue(
    place: Place,
) -> None:
    records = place.repository / "roofwatch-records"
    git(place.repository, "config", "user.email", "ada@example.com")
    git(place.repository, "checkout", "--quiet", "--", "helper.py")
    watch = ["watch", "bench_total.py", "--targets", "", "--device", "cpu", "--on", RUNNER_CLASS]
    (place.repository / "helper.py").write_text(SLOW)
    commit_all(place.repository, "Copy the input")
    base, head = newest_commits(place.repository, "HEAD", 2)
    with runner_of(place):
        first = ended(place.client(*watch, "--max-jobs", "1", "--json"))
        assert first.status == 0, first.error
        measured = [RunRecord.read(file) for file in records.glob("*.json*")]
        # the base is known too, from a run that is not in the folder
        other = make_record(0, project="kernels", commit=read_commit(place.repository, base.sha))
        ingest_all(place.store, *measured, other)
        ask_to_confirm(place, base, head, measured[0].environment.runner_class)
        (asked,) = requested_jobs(place)
        second = ended(place.client(*watch, "--max-jobs", "1", "--json"))
        (answered,) = requested_jobs(place)
        planned = ended(place.client(*watch, "--dry-run", "--json"))

    assert asked.finished_at is None
    (done,) = second.parsed["done"]
    assert (done["job"]["kind"], done["job"]["base"]["sha"]) == ("confirm", base.sha)
    assert answered.finished_at is not None
    assert answered.spent_s == pytest.approx(done["seconds"])
    assert answered.note is None
    assert done["job"]["reason"] == "a person asked for it"
    pairs = [RunRecord.read(file) for file in records.glob("confirm-*")]
    assert sorted(record.commit.sha for record in pairs) == sorted([base.sha, head.sha])
    assert planned.status == 0, planned.error
    assert "a person asked for it" not in planned.output
    assert requested_jobs(place) == [answered]
    ingest_all(place.store, *pairs)
    with Session(place.store) as session:
        stored = list_pairs(session, "kernels")
    assert {(pair.base.sha, pair.head.sha) for pair in stored} == {(base.sha, head.sha)}


def requested_jobs(place: Place) -> list[StoredJob]:
    with Session(place.store) as session:
        return [job for job in list_jobs(session, "kernels") if job.is_requested]
