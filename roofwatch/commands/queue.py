"""Commands of the queue: jobs on runners, and the runner itself."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.commands.options import AsJson, StoreUrl
from roofwatch.console.terminal import make_table, print_error, print_note, print_result

if TYPE_CHECKING:
    from roofwatch.queue.service import QueueService

app = typer.Typer()
queue_app = typer.Typer(help="Jobs that wait for a runner.", no_args_is_help=True)
runner_app = typer.Typer(help="Carry out jobs of the queue.", no_args_is_help=True)
app.add_typer(queue_app, name="queue")
app.add_typer(runner_app, name="runner")

_JobId = Annotated[UUID, typer.Argument(metavar="JOB", help="ID, as shown by list.")]
_COLUMNS = ("job", "state", "class", "command", "by", "requested", "took", "exit")


def _service(url: str | None) -> "QueueService":
    from roofwatch.queue.service import QueueService
    from roofwatch.store.server import server_at, server_url

    return QueueService(server_at(server_url(url)))


@queue_app.command("list")
def list_(
    *,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Default: the project of the current repository."),
    ] = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List waiting and running jobs, then those of seven days."""
    from roofwatch.collector.git import project_of
    from roofwatch.configuration.arguments import repository_of
    from roofwatch.queue.client import describe

    jobs = list(_service(url).jobs(project or project_of(repository_of(Path()))))
    table = make_table(_COLUMNS, [describe(job) for job in jobs])
    print_result({"jobs": jobs}, table, as_json=as_json)


@queue_app.command("show")
def show(job_id: _JobId, *, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show a job with its progress so far."""
    from roofwatch.queue.client import describe

    service = _service(url)
    job, lines = service.follow(job_id, 0)
    progress_lines = list(lines)
    # the server answers with some lines at a time
    while lines:
        job, lines = service.follow(job_id, len(progress_lines))
        progress_lines += lines
    table = make_table(_COLUMNS, [describe(job)])
    print_result({"job": job, "lines": progress_lines}, table, *progress_lines, as_json=as_json)


@queue_app.command("follow")
def follow(job_id: _JobId, *, url: StoreUrl = None) -> None:
    """Follow a job that was sent earlier, and write its files into this repository.

    Exit status: that of its command. Ctrl-C leaves the job as it is.
    """
    from roofwatch.queue.client import follow_to_end

    raise typer.Exit(follow_to_end(_service(url), job_id))


@queue_app.command("cancel")
def cancel(job_id: _JobId, *, url: StoreUrl = None) -> None:
    """Cancel a job; a running one ends within seconds."""
    _service(url).cancel(job_id)
    print_note(f"job {job_id} is cancelled")


@runner_app.command("up")
def up(
    *,
    runner_class: Annotated[
        str,
        typer.Option(
            "--class",
            metavar="CLASS",
            help="As in the token, which decides the jobs it takes.",
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="End as soon as no job waits; for batch systems.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Pause while no job waits.")
    ] = 5.0,
    network: Annotated[
        bool, typer.Option("--network", help="Jobs may use the network, for example to build.")
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="GIB", help="Memory of a job. Default: 90 % of this machine's."
        ),
    ] = None,
    disk: Annotated[
        float, typer.Option(min=0, metavar="GIB", help="Disk that the files of a job may take.")
    ] = 32.0,
    isolation: Annotated[
        bool, typer.Option("--isolation/--no-isolation", help="Isolate jobs from this machine.")
    ] = True,
    url: StoreUrl = None,
) -> None:
    """Take jobs of a class from the server, and measure them here, one at a time.

    The token in ROOFWATCH_TOKEN has the scope runner and this class.
    """
    from roofwatch.configuration.settings import load_settings
    from roofwatch.measurement.turns import measuring_alone
    from roofwatch.model.errors import SpoolError
    from roofwatch.queue.limits import JobLimits, machine_memory
    from roofwatch.queue.runner import Runner, RunnerPlan, check_programs
    from roofwatch.store.server import server_url

    check_programs()
    service = _service(url)
    address = server_url(url)
    # jobs run as this user, and could read it here
    os.environ.pop("ROOFWATCH_TOKEN", None)
    memory_bytes = 0.9 * machine_memory() if memory is None else memory * 2**30
    plan = RunnerPlan(
        data_dir=load_settings().data_dir,
        limits=JobLimits(memory_bytes=memory_bytes, disk_bytes=disk * 2**30),
        has_network=network,
        is_isolated=isolation,
    )
    runner = Runner(service, plan, print_error)
    print_error(f"runner of class {runner_class} at {address}")
    while True:
        try:
            # a watch of this machine finishes its job first
            with measuring_alone(plan.data_dir):
                has_worked = runner.run_next(runner_class)
        except SpoolError as error:
            # a server that is away comes back; a batch job does not wait for it
            if once:
                raise
            print_error(str(error))
            has_worked = False
        if has_worked:
            continue
        if once:
            return
        time.sleep(every)
