"""Commands that control access to the HTTP API."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from roofwatch.commands.options import ACTOR, AsJson, StoredProject
from roofwatch.console.terminal import make_table, print_note, print_result
from roofwatch.model.optional import map_optional

_PROJECT = re.compile(r"[\w.][\w./-]{0,199}")

app = typer.Typer()
token_app = typer.Typer(help="Manage API tokens and trusted repositories.", no_args_is_help=True)
app.add_typer(token_app, name="token")

Repository = Annotated[
    str, typer.Argument(help="owner/name, or GitHub's numeric id, which survives renaming.")
]


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="A description of its use.")],
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Limit the token to this project.")
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Allow all projects.")
    ] = False,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            "-s",
            help="ingest, read, triage, run, runner, or admin (all but runner); repeatable.",
        ),
    ],
    runner_class: Annotated[
        str | None,
        typer.Option("--class", help="Runner class whose jobs a token with scope runner takes."),
    ] = None,
    device_minutes: Annotated[
        float,
        typer.Option(min=0.0, help="With scope run: minutes on runners in 24 hours."),
    ] = 120.0,
    days: Annotated[int, typer.Option(help="Days until it expires.", min=1, max=366)] = 90,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine", help="Store records sent with it in quarantine, outside all analysis."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and show it once; only its hash is stored."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.access import create_token
    from roofwatch.db.errors import StoreError
    from roofwatch.model.history import Scope

    unknown = [word for word in scope if word not in set(Scope)]
    if unknown:
        raise StoreError(
            f"scope {unknown[0]!r}: unknown; use {', '.join(Scope)}, one --scope for each"
        )
    # a token for all projects must be asked for by name
    if (project is None) != all_projects:
        raise StoreError("use either --project or --all-projects")
    if project is not None:
        _check_project_name(project)
    scopes = {Scope(word) for word in scope}
    with open_configured_store() as engine:
        new = create_token(
            engine,
            name=name,
            project=project,
            scopes=scopes,
            now=datetime.now(UTC),
            validity=timedelta(days=days),
            is_quarantined=quarantine,
            runner_class=runner_class,
            device_minutes=device_minutes if Scope.RUN in scopes else None,
            actor=ACTOR,
        )
    expiry = f"shown only once; expires on {new.token.expires_at:%Y-%m-%d}"
    revoking = f"revoke it with: roofwatch token revoke {new.token.token_id}"
    print_result(new, new.text, f"{expiry}; {revoking}", as_json=as_json)


@token_app.command("list")
def list_(
    *,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Only for this project.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, without their secrets, and trusted repositories."""
    from sqlalchemy.orm import Session

    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.access import list_tokens, list_trusted

    with open_configured_store() as engine, Session(engine) as session:
        tokens = list_tokens(session, project)
        trusted = list_trusted(session)
    # a repository of another project is nobody's business here
    if project is not None:
        trusted = [repository for repository in trusted if repository.project == project]
    now = datetime.now(UTC)
    rows = [
        (
            token.token_id,
            token.name,
            token.project or "all",
            " ".join(token.scopes),
            f"{token.expires_at:%Y-%m-%d}",
            map_optional("{:%Y-%m-%d %H:%M}".format, token.last_used_at) or "never",
            token.state(now),
        )
        for token in tokens
    ]
    listing = [make_table(("id", "for", "project", "scopes", "ends", "last used", "state"), rows)]
    if trusted:
        repositories = [
            (repository.repository, repository.project, " ".join(repository.refs))
            for repository in trusted
        ]
        listing.append(make_table(("repository", "project", "refs that count"), repositories))
    print_result({"tokens": tokens, "repositories": trusted}, *listing, as_json=as_json)


@token_app.command("revoke")
def revoke(token_id: Annotated[str, typer.Argument(help="Id, as shown by list.")]) -> None:
    """Revoke a token at once."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.access import revoke_token

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
            help="Refs whose records count, such as refs/heads/main; others go to quarantine. "
            "Repeatable. "
            "Default: all branches."
        ),
    ] = None,
) -> None:
    """Let a repository's GitHub Actions send records of a project without a stored token."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.access import trust_repository

    refs = ref or ["refs/heads/*"]
    _check_project_name(project)
    with open_configured_store() as engine:
        trust_repository(engine, repository, project, refs, actor=ACTOR)
    print_note(
        f"workflows of {repository} may send records of {project}; trusted refs: {', '.join(refs)}"
    )


@token_app.command("distrust")
def distrust(repository: Repository, *, project: StoredProject) -> None:
    """Stop trusting a repository's GitHub Actions."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.access import distrust_repository

    with open_configured_store() as engine:
        distrust_repository(engine, repository, project, actor=ACTOR)
    print_note(f"workflows of {repository} may no longer send records of {project}")


def _check_project_name(project: str) -> None:
    """Raise StoreError if no record can have this project name."""
    from roofwatch.db.errors import StoreError

    if not _PROJECT.fullmatch(project):
        raise StoreError(
            f"project {project!r}: a name has letters, digits, _ . / and -, 200 at most"
        )
