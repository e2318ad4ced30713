"""Authentication by our tokens or GitHub Actions' OIDC tokens, and what each client may see.

Source: GitHub Docs, "OpenID Connect reference".
"""

import fnmatch
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

import jwt
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from jwt.exceptions import PyJWKClientConnectionError, PyJWKClientError, PyJWTError
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.api.issuer import fetch_keys
from roofwatch.api.limits import Limits, RateLimit
from roofwatch.api.problems import ProblemError, not_found, unavailable
from roofwatch.api.state import State
from roofwatch.db.access import check_token, list_trusted
from roofwatch.db.project_access import ProjectAccess, read_project_access
from roofwatch.db.projects import record_name
from roofwatch.db.queries.runs import projects_of_bisections, projects_of_runs
from roofwatch.db.regressions.judgements import RunState, read_run_state
from roofwatch.db.schema.subjects import Subjects
from roofwatch.model.history import Scope

GITHUB = "https://token.actions.githubusercontent.com"

# clocks of the issuer and this machine differ
_LEEWAY_S = 30
# an issuer announces a new key long before it signs with it
_KEYS_LIVE_S = 3_600
# forged key ids must not make this service flood the issuer
_KEYS_COOLDOWN_S = 30
_RETRY_S = 30
# a token of GitHub Actions has one to two thousand
_MAX_JWT_CHARACTERS = 16_000
# claims become names in the audit trail
_MAX_CLAIM_CHARACTERS = 500
_REQUIRED_CLAIMS = ["exp", "iat", "iss", "aud", "sub", "repository", "ref", "event_name"]
# other events, such as pull requests, may run untrusted code
_TRUSTED_EVENTS = frozenset({"push", "schedule", "workflow_dispatch", "release"})
# plain http is safe only where no network is in between
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger("roofwatch.api")

_bearer = HTTPBearer(
    auto_error=False,
    bearerFormat="rw_<id>_<secret>, or an OIDC token of GitHub Actions",
    description="Create one with `roofwatch token create`.",
)


@dataclass(frozen=True)
class Principal:
    actor: str
    """Name in the audit trail and the log."""
    scopes: frozenset[Scope]
    projects: Mapping[str, bool] | None
    """By project, whether its records are quarantined; None for all projects."""
    access: ProjectAccess | None = None
    """Hides restricted projects from a token for all projects; None to hide none."""
    is_quarantined: bool = False
    """Quarantine records of every project."""
    rate_key: str = ""
    """Requests with one key share a rate limit."""
    runner_class: str | None = None
    """Whose queued jobs it may take, with the scope `runner`."""
    device_minutes: float | None = None
    """That its queued jobs may take in 24 hours; None for any."""

    def may_see(self, project: str) -> bool:
        if self.projects is not None:
            return project in self.projects
        # a token is nobody whom a list of readers names
        return self.access is None or self.access.may_read(project, ())

    def check_project(self, project: str) -> None:
        """Raise ProblemError unless the project may be seen."""
        if not self.may_see(project):
            ours = "public projects"
            if self.projects is not None:
                ours = ", ".join(sorted(self.projects)) or "no project"
            detail = f"this token is for {ours}; create one for the project: roofwatch token create"
            raise ProblemError(403, "forbidden", detail)

    def check_subjects(self, session: Session, subjects: Subjects) -> None:
        """Raise ProblemError unless everything that a question is about may be seen: 403 for a
        project, else 404.
        """
        for project in subjects.projects:
            self.check_project(record_name(project))
        projects = projects_of_runs(session, subjects.run_ids)
        for run_id in subjects.run_ids:
            if run_id not in projects or not self.may_see(projects[run_id]):
                raise no_run(run_id)
        if not all(map(self.may_see, projects_of_bisections(session, subjects.regression_ids))):
            raise not_found("this regression", "see GET /v1/regressions")

    def must_quarantine(self, project: str) -> bool:
        return self.is_quarantined or (self.projects or {}).get(project, False)

    def see_run(self, state: State, run_id: UUID) -> RunState:
        """Read the state of a run, or raise ProblemError (404) unless it may be seen."""
        with state.reading() as session:
            run_state = read_run_state(session, run_id)
        if run_state is None or not self.may_see(run_state.project):
            raise no_run(run_id)
        return run_state


def no_run(run_id: UUID) -> ProblemError:
    return not_found(f"run {run_id}", "see GET /v1/runs")


class _IssuerKeys:
    """The issuer's public keys by ID. Forged IDs cost it at most one fetch per `_KEYS_COOLDOWN_S`,
    and no request waits for the fetch of another.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at_s = self._tried_at_s = -math.inf
        self._fetching = threading.Lock()

    def find(self, key_id: str) -> jwt.PyJWK:
        """The key of an ID.

        Raises:
            PyJWKClientConnectionError: the keys cannot be fetched now.
            PyJWKClientError: the issuer has no such key.
        """
        now_s = time.monotonic()
        is_old = now_s > self._fetched_at_s + _KEYS_LIVE_S
        if is_old or (key_id not in self._keys and now_s > self._tried_at_s + _KEYS_COOLDOWN_S):
            self._fetch(now_s)
        elif key_id not in self._keys and self._tried_at_s > self._fetched_at_s:
            # a stranger must not cause a request for each unknown key
            raise PyJWKClientConnectionError("the last fetch failed")
        if key_id not in self._keys:
            raise PyJWKClientError("no such key")
        return self._keys[key_id]

    def _fetch(self, now_s: float) -> None:
        # one fetch at a time; the others answer at once
        if now_s <= self._tried_at_s + _KEYS_COOLDOWN_S or not self._fetching.acquire(
            blocking=False
        ):
            raise PyJWKClientConnectionError("a fetch is under way, or has just failed")
        try:
            self._tried_at_s = now_s
            document = fetch_keys(self._url)
            self._keys = {
                str(key.key_id): key
                for key in jwt.PyJWKSet.from_dict(document).keys
                # keys of another use may be as valid, and prove nothing
                if key.key_id and key.public_key_use in {"sig", None}
            }
            self._fetched_at_s = now_s
        finally:
            self._fetching.release()


class Workflows:
    """Authenticates workflows of trusted repositories by their OIDC tokens.

    Args:
        engine: Of the store, which lists the trusted repositories.
        audience: Required audience of the tokens.
        issuer: Issuer of the tokens; its keys are at `/.well-known/jwks`.

    Raises:
        ValueError: the issuer has no https URL.
    """

    def __init__(self, engine: Engine, audience: str, issuer: str) -> None:
        parts = urlsplit(issuer)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and parts.hostname in _LOCAL_HOSTS
        ):
            raise ValueError(f"the issuer {issuer!r} must be https://…")
        self._engine = engine
        self._audience = audience
        self._issuer = issuer
        self._keys = _IssuerKeys(f"{issuer}/.well-known/jwks")

    def authenticate(self, text: str) -> Principal | None:
        """The workflow of a token; None unless its signature is valid and its repository trusted.

        Raises:
            ProblemError: the issuer's keys cannot be fetched.
        """
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                self._keys.find(str(jwt.get_unverified_header(text).get("kid"))),
                algorithms=["RS256"],
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_S,
                options={"require": _REQUIRED_CLAIMS},
            )
        except PyJWKClientConnectionError as error:
            _log.error("the keys of %s cannot be fetched: %s", self._issuer, error)
            raise unavailable(
                "the keys of the token's issuer cannot be fetched; try again later", _RETRY_S
            ) from None
        except (PyJWTError, ValueError) as error:
            _log.warning("a workflow's token is refused: %s", type(error).__name__)
            return None
        repository, ref, event = (claims[name] for name in ("repository", "ref", "event_name"))
        number = str(claims.get("repository_id", repository))
        for claim in (repository, ref, event, number):
            if not (
                isinstance(claim, str)
                and claim.isprintable()
                and len(claim) < _MAX_CLAIM_CHARACTERS
            ):
                return None
        with Session(self._engine) as session:
            trusted = list_trusted(session, [repository, number])
        if not trusted:
            return None
        is_trusted_event = event in _TRUSTED_EVENTS
        projects: dict[str, bool] = {}
        for trusted_project in trusted:
            may_store = is_trusted_event and any(
                fnmatch.fnmatchcase(ref, pattern) for pattern in trusted_project.refs
            )
            projects[trusted_project.project] = not may_store
        return Principal(
            actor=f"workflow {repository}@{ref}",
            scopes=frozenset({Scope.INGEST}),
            projects=projects,
            # not by ref: a pull request can create any ref
            rate_key=f"workflow {repository}",
        )


class Authenticator:
    """Authenticates requests, within limits for requests and for wrong tokens."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        now: Callable[[], datetime],
        workflows: Workflows | None,
    ) -> None:
        self._engine = engine
        self._now = now
        self._workflows = workflows
        self._requests = RateLimit(
            limits.requests, "too many requests of this token; see Retry-After"
        )
        self._failures = RateLimit(
            limits.failures, "too many wrong tokens from this address; see Retry-After"
        )

    def authenticate(
        self,
        credentials: HTTPAuthorizationCredentials | None,
        scope: Scope,
        address: str,
    ) -> Principal:
        """Authenticate a request.

        Args:
            credentials: From the header.
            scope: Required by the route.
            address: Of the connection; headers about it are ignored.

        Raises:
            ProblemError: 401 for an unknown token, 403 for one without the scope, 429 for too many
            requests.
        """
        if credentials is None:
            detail = (
                "a token is required: Authorization: Bearer rw_…; create one: roofwatch "
                "token create"
            )
            raise _unauthenticated(detail)
        principal = self._find(credentials.credentials)
        if principal is None:
            # only wrong tokens count: behind a proxy all clients share an address
            self._failures.hit(address)
            detail = (
                "this token is unknown, expired or revoked; create another: roofwatch token create"
            )
            raise _unauthenticated(detail, ', error="invalid_token"')
        self._requests.hit(principal.rate_key)
        granting = {scope, Scope.ADMIN}
        # a runner has a class, which only its own tokens name
        if scope is Scope.RUNNER:
            granting = {scope}
        if not principal.scopes & granting:
            raise ProblemError(
                403,
                "forbidden",
                f"this needs the scope {scope}, the token has "
                f"{' '.join(sorted(principal.scopes))}; "
                "create one that has it: roofwatch token create",
                {
                    "WWW-Authenticate": f'Bearer realm="roofwatch", error="insufficient_scope", '
                    f'scope="{scope}"'
                },
            )
        if principal.projects is not None or scope is Scope.INGEST:
            return principal
        if Scope.ADMIN in principal.scopes:
            return principal
        with Session(self._engine) as session:
            return replace(principal, access=read_project_access(session))

    def _find(self, text: str) -> Principal | None:
        is_jwt = text.count(".") == 2 and text.startswith("ey") and len(text) <= _MAX_JWT_CHARACTERS
        # a token of ours has no dots
        if self._workflows is not None and is_jwt:
            return self._workflows.authenticate(text)
        token = check_token(self._engine, text, self._now())
        if token is None:
            return None
        return Principal(
            actor=f"token {token.token_id}",
            scopes=frozenset(token.scopes),
            projects=None if token.project is None else {token.project: token.is_quarantined},
            is_quarantined=token.is_quarantined,
            rate_key=f"token {token.token_id}",
            runner_class=token.runner_class,
            device_minutes=token.device_minutes,
        )


def _unauthenticated(detail: str, error: str = "") -> ProblemError:
    return ProblemError(
        401, "unauthenticated", detail, {"WWW-Authenticate": f'Bearer realm="roofwatch"{error}'}
    )


def _needing(scope: Scope) -> Callable[..., Principal]:
    def authenticate(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Principal:
        authenticator: Authenticator = request.app.state.authenticator
        address = "" if request.client is None else request.client.host
        principal = authenticator.authenticate(credentials, scope, address)
        request.state.actor = principal.actor
        return principal

    return authenticate


Sender = Annotated[Principal, Depends(_needing(Scope.INGEST))]
Reader = Annotated[Principal, Depends(_needing(Scope.READ))]
Triager = Annotated[Principal, Depends(_needing(Scope.TRIAGE))]
Requester = Annotated[Principal, Depends(_needing(Scope.RUN))]
JobRunner = Annotated[Principal, Depends(_needing(Scope.RUNNER))]
Administrator = Annotated[Principal, Depends(_needing(Scope.ADMIN))]
