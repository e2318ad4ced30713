"""Commands for who may use the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from roofwatch.options import AsJson

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
token_app = typer.Typer(help="Who may use the HTTP API: tokens, and repositories that need none.", no_args_is_help=True)
app.add_typer(token_app, name="token")

ProjectName = Annotated[str, typer.Option("--project", "-p", help="The project.", show_default=False)]
Repository = Annotated[
    str, typer.Argument(help="owner/name, or its number at GitHub, which outlives a change of name.")
]


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What it is for, so that you know it again.", show_default=False)],
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="The only project that it is good for.", show_default=False)
    ] = None,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="It is good for all projects.")] = False,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", "-s", help="What it may do: ingest, read, triage, or admin, which is all; may be given again."
        ),
    ],
    days: Annotated[int, typer.Option(help="Until it expires.", min=1, max=366)] = 90,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="All that is sent with it is kept where nothing counts it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, this once: only its hash is stored."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.access import create_project_token
    from roofwatch.terminal import print_json, print_note

    with open_configured_store() as engine:
        new = create_project_token(
            engine,
            name=name,
            project=project,
            all_projects=all_projects,
            scopes=scope,
            days=days,
            is_quarantined=quarantine,
        )
    if as_json:
        print_json(new)
        return
    print_note(new.text)
    print_note(
        f"shown this once; it ends on {new.token.expires_at:%Y-%m-%d}, or with: "
        f"roofwatch token revoke {new.token.token_id}"
    )


@token_app.command("list")
def list_(
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Only what is good for this one.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens, never their secrets, and the repositories that are trusted."""
    from sqlalchemy.orm import Session

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import list_tokens
    from roofwatch.db.auth.trust import list_trusted
    from roofwatch.store.access import repositories_table, tokens_table
    from roofwatch.terminal import print_json, print_table

    with open_configured_store() as engine, Session(engine) as session:
        tokens = list_tokens(session, project)
        trusted = [one for one in list_trusted(session) if project in (None, one.project)]
    if as_json:
        print_json({"tokens": tokens, "repositories": trusted})
        return
    print_table(tokens_table(tokens))
    if trusted:
        print_table(repositories_table(trusted))


@token_app.command("revoke")
def revoke(token_id: Annotated[str, typer.Argument(help="The id, as list shows it.", show_default=False)]) -> None:
    """End a token at once."""
    from datetime import UTC, datetime

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import revoke_token
    from roofwatch.store.access import ACTOR
    from roofwatch.terminal import print_note

    with open_configured_store() as engine:
        token = revoke_token(engine, token_id, now=datetime.now(UTC), actor=ACTOR)
    print_note(f"token {token.token_id} ({token.name}) is revoked")


@token_app.command("trust")
def trust(
    repository: Repository,
    *,
    project: ProjectName,
    ref: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose records count, for example refs/heads/main or refs/heads/release/*; may be given again. "
            "Those of other refs land in quarantine. Left out: every branch.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let a repository's GitHub Actions send records of a project without a stored token."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.trust import trust_repository
    from roofwatch.store.access import ACTOR, check_project
    from roofwatch.terminal import print_note

    refs = ref or ["refs/heads/*"]
    check_project(project)
    with open_configured_store() as engine:
        trust_repository(engine, repository, project, refs, actor=ACTOR)
    print_note(f"workflows of {repository} may send records of {project}; they count from {', '.join(refs)}")


@token_app.command("distrust")
def distrust(repository: Repository, *, project: ProjectName) -> None:
    """Take that back."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.trust import distrust_repository
    from roofwatch.store.access import ACTOR
    from roofwatch.terminal import print_note

    with open_configured_store() as engine:
        distrust_repository(engine, repository, project, actor=ACTOR)
    print_note(f"workflows of {repository} may no longer send records of {project}")
