"""The command that decides about regressions: triage."""

from typing import Annotated, Literal

import typer

from roofwatch.commands.options import AsJson, ShownProject
from roofwatch.console.terminal import fail, print_result

app = typer.Typer()


@app.command("triage")
def decide_about(
    regression: Annotated[
        str,
        typer.Argument(
            help="First digits of its id, or of a commit for all of that commit; several "
            "separated by commas."
        ),
    ],
    action: Annotated[
        Literal[
            "confirm",
            "acknowledge",
            "assign",
            "issue",
            "expected",
            "not-real",
            "fixed",
            "reopen",
            "snooze",
            "undo",
        ],
        typer.Argument(help="What to decide."),
    ],
    value: Annotated[
        str,
        typer.Argument(
            help="Who is assigned, the issue's address, or the end of a snooze: 7d, 2026-12-24 "
            "or a commit."
        ),
    ] = "",
    *,
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why; stored with it.")] = "",
    project: ShownProject = None,
    as_json: AsJson = False,
) -> None:
    """Decide about regressions in the database of this machine, signed with git's user.email.

    confirm asks its runners to measure the pair next. undo reverts the newest decision.
    """
    from sqlalchemy.orm import Session

    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.regressions.deciding import (
        DecisionKind,
        TriageDecision,
        apply_decision,
        find_all_regressions,
    )
    from roofwatch.db.regressions.judgements import list_triaged
    from roofwatch.regressions.triaging import git_signature
    from roofwatch.store.database_source import DatabaseSource
    from roofwatch.store.reading import choose_project

    signature = git_signature()
    # a decision without a name could not be asked about
    if signature is None:
        fail("who decides? set it with: git config --global user.email you@example.com")
    names = [name.strip() for name in regression.split(",")]
    decision = TriageDecision(kind=DecisionKind(action), value=value, reason=reason)
    lines: list[str] = []
    with open_configured_store() as engine:
        project = choose_project(DatabaseSource(engine), project)
        # all in one transaction: what is named together is decided as a whole
        with Session(engine) as session, session.begin():
            for about in find_all_regressions(list_triaged(session, project), names):
                outcome = apply_decision(
                    session=session,
                    project=project,
                    about=about,
                    decision=decision,
                    by=signature,
                )
                lines.append(f"{about.regression_id[:8]} {about.regression.kernel}: {outcome}")
    document = {"project": project, "by": signature.person, "decisions": lines}
    print_result(document, "\n".join(lines), as_json=as_json)
