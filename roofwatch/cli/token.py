"""Commands that control access to the HTTP API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from roofwatch.options import AsJson, StoredProject
from roofwatch.terminal import print_json, print_note, print_table

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()
token_app = typer.Typer(help="Manage API tokens and trusted repositories.", no_args_is_help=True)
app.add_typer(token_app, name="token")

Repository = Annotated[str, typer.Argument(help="owner/name, or GitHub's numeric id, which survives renaming.")]


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="A description of its use.", show_default=False)],
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Limit the token to this project.", show_default=False)
    ] = None,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="Allow all projects.")] = False,
    scope: Annotated[
        list[str], typer.Option("--scope", "-s", help="ingest, read, triage, or admin (all); repeatable.")
    ],
    days: Annotated[int, typer.Option(help="Days until it expires.", min=1, max=366)] = 90,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Store records sent with it in quarantine, outside all analysis.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and show it once; only its hash is stored."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.admin import create_project_token

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
        f"shown only once; expires on {new.token.expires_at:%Y-%m-%d}; "
        f"revoke it with: roofwatch token revoke {new.token.token_id}"
    )


@token_app.command("list")
def list_(
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Only for this project.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, without their secrets, and trusted repositories."""
    from sqlalchemy.orm import Session

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import list_tokens, list_trusted
    from roofwatch.store.admin import repositories_table, tokens_table

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
def revoke(token_id: Annotated[str, typer.Argument(help="Id, as shown by list.", show_default=False)]) -> None:
    """Revoke a token at once."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import revoke_token
    from roofwatch.store.admin import ACTOR

    with open_configured_store() as engine:
        token = revoke_token(engine, token_id, now=datetime.now(UTC), actor=ACTOR)
    print_note(f"token {token.token_id} ({token.name}) is revoked")


@token_app.command("trust")
def trust(
    repository: Repository,
    *,
    project: StoredProject,
    ref: Annotated[
        list[str] | None,
        typer.Option(
            help="Refs whose records count, such as refs/heads/main; others go to quarantine. Repeatable. "
            "Default: all branches.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let a repository's GitHub Actions send records of a project without a stored token."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import trust_repository
    from roofwatch.store.admin import ACTOR, check_project_name

    refs = ref or ["refs/heads/*"]
    check_project_name(project)
    with open_configured_store() as engine:
        trust_repository(engine, repository, project, refs, actor=ACTOR)
    print_note(f"workflows of {repository} may send records of {project}; trusted refs: {', '.join(refs)}")


@token_app.command("distrust")
def distrust(repository: Repository, *, project: StoredProject) -> None:
    """Stop trusting a repository's GitHub Actions."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.auth.tokens import distrust_repository
    from roofwatch.store.admin import ACTOR

    with open_configured_store() as engine:
        distrust_repository(engine, repository, project, actor=ACTOR)
    print_note(f"workflows of {repository} may no longer send records of {project}")
