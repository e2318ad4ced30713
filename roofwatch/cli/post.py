"""Tell a pull request on GitHub what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import EXIT_CANNOT, AsJson, BaselineFile, NoiseFloorFile, Output

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def post(
    records: Annotated[
        list[Path] | None,
        typer.Argument(help="The two records, base and head, or a folder that holds them.", show_default=False),
    ] = None,
    *,
    begin: Annotated[
        bool, typer.Option("--begin", help="Only say that it is being measured: a check-run in progress.")
    ] = False,
    comment: Annotated[bool, typer.Option(help="Keep one comment on the pull request up to date.")] = True,
    check: Annotated[bool, typer.Option(help="Put a check-run on the commit.")] = True,
    name: Annotated[
        str, typer.Option(help="Of the check-run, and of the comment where several report on one pull request.")
    ] = "roofwatch",
    baseline: BaselineFile = None,
    noise_floor: NoiseFloorFile = None,
    output: Output = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the comment, and ask GitHub nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell a pull request on GitHub what two records amount to, from a job of GitHub Actions.

    Repository, commit and pull request are read from the job's environment, the token from GITHUB_TOKEN. Where nothing
    changed, no comment is posted. The page of the job shows the whole report. Exit status 0 means that it is said,
    whatever it says: the check-run carries the verdict. 2: it could not be, or the records are not what they should be.
    """
    import os

    from roofwatch import posting
    from roofwatch.ci.errors import GitHubError
    from roofwatch.ci.github import check_run
    from roofwatch.ci.github.event import is_name
    from roofwatch.measuring.calibrating import read_noise_floor
    from roofwatch.terminal import print_json, print_note, write_text

    if not is_name(name):
        raise GitHubError(f"--name {name[:100]!r}: at most 60 letters, digits, spaces and . ( ) / + - are a name")
    if begin == bool(records):
        raise GitHubError("give the records, or --begin without any")
    job = None if dry_run else posting.this_job(os.environ)
    if begin:
        report = posting.Report(check_run.BEGUN)
    else:
        report = posting.report_on(records or [], baseline, job, read_noise_floor(noise_floor))
    if output is not None and report.comment is not None:
        write_text(output, report.comment)
    if job is None:
        if as_json:
            print_json({"check_run": report.check, "comment": report.comment})
        else:
            print(report.comment or report.check.summary, end="")
        raise typer.Exit(EXIT_CANNOT if report.is_refused else 0)
    posting.append_summary(report, os.environ)
    posted = posting.Posted()
    if comment or check:
        repository = posting.open_repository(job.run, os.environ)
        posted = posting.post(repository, job, report, name, with_comment=comment, with_check=check)
    if as_json:
        print_json(posting.to_json(posted, report))
    else:
        print_note("\n".join(posting.summary(posted, report)))
    raise typer.Exit(EXIT_CANNOT if report.is_refused else 0)


@app.command()
def command(
    *,
    name: Annotated[
        str, typer.Option(help="Of the check-run and the comment that are meant, as post has it.")
    ] = "roofwatch",
    as_json: AsJson = False,
) -> None:
    """Do what a comment on a pull request asks for: /roofwatch accept REASON, rerun or bisect.

    From a job of GitHub Actions that issue_comment started. Only people who may write to the repository are obeyed;
    GitHub says who they are. Exit status 0 means that it is answered, whatever the answer is.
    """
    import os

    from roofwatch import posting
    from roofwatch.ci.errors import GitHubError
    from roofwatch.ci.github.commands import carry_out
    from roofwatch.ci.github.event import command_request, is_name
    from roofwatch.terminal import print_json, print_note

    if not is_name(name):
        raise GitHubError(f"--name {name[:100]!r}: at most 60 letters, digits, spaces and . ( ) / + - are a name")
    request = command_request(os.environ, posting.event_of(os.environ))
    if request is None:
        print_note("not a new comment on a pull request: nothing to do")
        return
    reply = carry_out(posting.open_repository(request.run, os.environ), request, name)
    if as_json:
        print_json({"verb": reply.verb, "reaction": reply.reaction, "answer": reply.line})
    else:
        print_note(reply.line)
