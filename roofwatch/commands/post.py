"""Commands for jobs of GitHub Actions and GitLab CI: report on a pull request, and carry out
commands in comments.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from roofwatch.commands.options import AsJson, NoiseFloorFile, Output, WorkloadsFile
from roofwatch.console.terminal import (
    EXIT_CANNOT,
    fail,
    print_error,
    print_json,
    print_note,
    print_result,
    write_text,
)

if TYPE_CHECKING:
    from roofwatch.pull_requests.posting import Report

app = typer.Typer()
_MEASURING_SHARE = 0.8
"""Of a job's time limit."""
Requires = Annotated[
    str,
    typer.Option(help="Evidence whose absence fails: accuracy,code,time. Default: [check]."),
]
Untimed = Annotated[
    str,
    typer.Option(help="pass: changed kernels without a time do not count. Default: [check]."),
]
AcceptedBy = Annotated[
    str,
    typer.Option(help="Who may accept: reviewer, anyone or admin. Default: [accept]."),
]
Parts = Annotated[
    str,
    typer.Option(help="Measurements that must be there, separated by commas."),
]
ReportName = Annotated[str, typer.Option(help="Name of the check-run and of the comment.")]


@app.command()
def post(
    records: Annotated[
        list[Path] | None,
        typer.Argument(help="Two records, base and head, or a folder that contains them."),
    ] = None,
    *,
    begin: Annotated[
        bool, typer.Option("--begin", help="Only post a check-run in progress.")
    ] = False,
    comment: Annotated[
        bool, typer.Option(help="Keep one comment on the pull request up to date.")
    ] = True,
    check: Annotated[bool, typer.Option(help="Put a check-run on the commit.")] = True,
    name: ReportName = "roofwatch",
    noise_floor: NoiseFloorFile = None,
    workloads: WorkloadsFile = None,
    requires: Requires = "",
    untimed: Untimed = "",
    accept_by: AcceptedBy = "",
    part: Annotated[
        str, typer.Option(help="Name of this measurement, if several measure one commit.")
    ] = "",
    parts: Parts = "",
    output: Output = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the comment and send nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report on a pull or merge request, from a job of GitHub Actions (GITHUB_TOKEN) or GitLab CI
    (GITLAB_TOKEN).

    Without a change no comment is posted; the job's page has the whole report. Exit status 0: the
    report was posted; the check-run has the verdict. 2: it could not be posted, or the records are
    not valid.
    """
    import os

    from roofwatch.ci.forges.comment import check_name
    from roofwatch.ci.messages import ForgeError
    from roofwatch.configuration.check_policy import read_accept_by, read_policy
    from roofwatch.configuration.settings import load_settings
    from roofwatch.pull_requests import job_services, posting, posting_output
    from roofwatch.reporting.report_files import read_noise_floor

    check_name(name)
    # a check-run in progress has no results yet
    if begin == bool(records):
        raise ForgeError("give the records, or --begin without any")
    if part and not posting.PART_NAME.fullmatch(part):
        raise ForgeError(f"--part {part[:80]!r}: use letters, digits and . _ -")
    job = None if dry_run else job_services.job_here(os.environ)
    if begin:
        assert job is not None
        print_result({}, *posting.begin_here(job, name, os.environ), as_json=as_json)
        return
    event = job_services.event_of(os.environ)
    policy = read_policy(os.environ, event, requires=requires, untimed=untimed)
    floor = read_noise_floor(noise_floor)
    settings = load_settings()

    def read(paths: list[Path]) -> posting.Report:
        return posting.report_on(
            paths,
            job,
            floor,
            dashboard=settings.dashboard_url,
            documentation=settings.documentation_url,
            workloads=workloads,
            policy=policy,
        )

    expected = posting.part_names(parts)
    paths = records or []
    reports = {part: read(paths)}
    # a folder may hold the parts of several jobs
    if len(paths) == 1 and not part:
        reports = posting.reports_on(paths[0], lambda folder: read([folder]), expected)
    texts = [report.comment for report in reports.values() if report.comment is not None]
    if output is not None and texts:
        write_text(output, "\n".join(texts))
    posted = posting.Posted()
    if job is None:
        _print_dry_run(list(reports.values()), as_json=as_json)
    else:
        # the summary of the job needs no permission, so it is always written
        for report in reports.values():
            posting_output.append_summary(report, os.environ)
        if comment or check:
            posted = posting.post(
                job_services.open_forge(job, os.environ),
                job,
                reports,
                name,
                with_comment=comment,
                with_check=check,
                expected=expected,
                accept_by=read_accept_by(os.environ, event, accept_by=accept_by),
                tell_service=job_services.open_service(os.environ),
            )
        document = posting_output.to_json(posted, reports)
        print_result(document, *posting_output.summary(posted, reports), as_json=as_json)
    for reason in posted.missing:
        print_error(f"missing: {reason}")
    is_refused = any(report.is_refused for report in reports.values())
    raise typer.Exit(EXIT_CANNOT if is_refused or posted.missing else 0)


def _print_dry_run(reports: "list[Report]", *, as_json: bool) -> None:
    from roofwatch.pull_requests import posting_output

    if as_json:
        documents = [{"check_run": item.check, "comment": item.comment} for item in reports]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for report in reports:
        lines = posting_output.check_lines(report.check)
        print(report.comment or report.check.summary, *lines, sep="\n")


@app.command()
def command(
    result: Annotated[
        Path | None,
        typer.Argument(help="Files of a measurement that was asked for: report it and reply."),
    ] = None,
    *,
    name: ReportName = "roofwatch",
    requires: Requires = "",
    untimed: Untimed = "",
    accept_by: AcceptedBy = "",
    parts: Parts = "",
    as_json: AsJson = False,
) -> None:
    """Carry out a comment on a pull request: /roofwatch accept REASON, rerun, run or bisect.

    From a job of GitHub Actions that a comment or a label started. Only people with write access
    are allowed. What another job has to measure becomes the output `requests`; `queueable` and
    `unqueueable` are its parts. Exit status 0: the comment was answered.
    """
    import json
    import os

    from roofwatch.ci.forges.commands import carry_out
    from roofwatch.ci.forges.comment import check_name
    from roofwatch.ci.forges.event import (
        REQUEST_VARIABLE,
        command_request,
        job_of,
        requested_measurement,
    )
    from roofwatch.ci.messages import ForgeError
    from roofwatch.configuration.check_policy import read_accept_by, read_policy
    from roofwatch.pull_requests import job_services, posting
    from roofwatch.pull_requests.github_action import report_result

    check_name(name)
    event = job_services.event_of(os.environ)
    may_accept = read_accept_by(os.environ, event, accept_by=accept_by)
    if result is not None:
        measurement = requested_measurement(os.environ)
        if measurement is None:
            raise ForgeError(f"{REQUEST_VARIABLE} is not set, so nothing was asked for")
        policy = read_policy(os.environ, event, requires=requires, untimed=untimed)
        answer = report_result(
            request=measurement,
            job=job_of(os.environ, event),
            folder=result,
            name=name,
            variables=os.environ,
            policy=policy,
            expected=posting.part_names(parts),
            accept_by=may_accept,
        )
        print_result({"answer": answer}, answer, as_json=as_json)
        return
    request = command_request(os.environ, event)
    # jobs of GitHub start for edited comments too
    if request is None:
        print_note("not a new comment on a pull request: nothing to do")
        return
    repository = job_services.open_repository(request.run, os.environ)
    service = job_services.open_service(os.environ)
    reply = carry_out(repository, request, name, may_accept, service)
    # another job measures: this one must not run code of the pull request
    if reply.requests and (path := os.environ.get("GITHUB_OUTPUT")):
        outputs = {
            "requests": reply.requests,
            "queueable": [
                measurement for measurement in reply.requests if measurement.is_queueable
            ],
            "unqueueable": [
                measurement for measurement in reply.requests if not measurement.is_queueable
            ],
        }
        with Path(path).open("a") as file:
            for output, requests in outputs.items():
                if requests:
                    documents = [measurement.model_dump() for measurement in requests]
                    file.write(f"{output}={json.dumps(documents)}\n")
    document = {
        "verbs": reply.verbs,
        "reaction": reply.reaction,
        "answer": reply.line,
        "requests": reply.requests,
    }
    print_result(document, reply.line, as_json=as_json)


@app.command()
def action(
    *,
    mode: Annotated[
        Literal["all", "measure", "report"], typer.Option(help="What this job does.")
    ] = "all",
    suite: Annotated[str, typer.Option(help="Benchmark file or folder.")] = "",
    base: Annotated[
        str, typer.Option(help="Revision; auto: where the branch left the target branch.")
    ] = "auto",
    arguments: Annotated[str, typer.Option(help="Further arguments of roofwatch ab.")] = "",
    name: ReportName = "roofwatch",
    requires: Requires = "",
    untimed: Untimed = "",
    accept_by: AcceptedBy = "",
    part: Annotated[str, typer.Option(help="As of post.")] = "",
    parts: Parts = "",
    timeout_minutes: Annotated[
        str, typer.Option(help="Limit of the job, before which measuring stops.")
    ] = "",
    queue: Annotated[
        str,
        typer.Option(
            metavar="CLASS", help="Measure on a runner of this class, from the service's queue."
        ),
    ] = "",
) -> None:
    """Do what the GitHub action does in a job: measure, report, or answer a comment.

    It calls ab, bisect, post and command as the event asks for it. Exit status: that of the last of
    them; a measurement that fails is reported.
    """
    import os

    from roofwatch.pull_requests.github_action import run_action

    if mode != "report" and not suite:
        fail("name a benchmark file: --suite bench_layers.py", exit_status=EXIT_CANNOT)
    values = {
        "--requires": requires,
        "--untimed": untimed,
        "--accept-by": accept_by,
        "--parts": parts,
    }
    if timeout_minutes:
        try:
            # the job began before this step, and has to hand the records over
            arguments += f" --stop-after {_MEASURING_SHARE * float(timeout_minutes):g}"
        except ValueError:
            fail(f"--timeout-minutes {timeout_minutes!r}: give a number", exit_status=EXIT_CANNOT)
    options = [f"{option}={value}" for option, value in values.items() if value]
    status = run_action(
        mode=mode,
        suite=suite,
        base=base,
        arguments=arguments,
        name=name,
        variables=os.environ,
        policy=options,
        part=part,
        runner_class=queue,
    )
    raise typer.Exit(status)
