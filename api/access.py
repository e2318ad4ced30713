"""Who is asking, and what for: every route but the health checks asks for a scope."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Engine

from roofwatch.api.login_throttle import FailureLimiter
from roofwatch.api.oidc import Workflows, is_json_web_token
from roofwatch.api.problems import ProblemError
from roofwatch.api.rate import RateLimiter
from roofwatch.db.auth.tokens import check_token
from roofwatch.db.auth.values import Scope, Token

_bearer = HTTPBearer(
    auto_error=False,
    bearerFormat="rw_<id>_<secret>, or an OIDC token of GitHub Actions",
    description="`roofwatch token create` makes one. It goes into this header and nowhere else.",
)


@dataclass(frozen=True)
class Principal:
    """Who was let in."""

    actor: str
    """As the audit trail and the log name it."""
    scopes: frozenset[Scope]
    projects: Mapping[str, bool] | None
    """Whether what comes from here lands in quarantine, by project; None for all projects."""
    is_quarantined: bool = False
    """It does in each."""
    counted_as: str | None = None
    """Whose requests these are among; the actor's own if None."""

    def may_see(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def check_project(self, project: str) -> None:
        """Raise ProblemError unless this one is for the project."""
        if not self.may_see(project):
            ours = ", ".join(sorted(self.projects or ())) or "no project"
            raise ProblemError(
                403, "forbidden", f"this token is for {ours}; ask for one of the project: roofwatch token create"
            )

    def must_quarantine(self, project: str) -> bool:
        return self.is_quarantined or (self.projects or {}).get(project, False)


@dataclass(frozen=True)
class Gatekeeper:
    """Lets in who has a token."""

    engine: Engine
    limiter: RateLimiter
    failures: FailureLimiter
    workflows: Workflows | None
    """None where no workflow is let in."""
    now: Callable[[], datetime]

    def admit(self, credentials: HTTPAuthorizationCredentials | None, scope: Scope, address: str) -> Principal:
        """Who shows these credentials, if that one may do what the scope says.

        Args:
            credentials: As they were sent.
            scope: What is asked for.
            address: Where the connection comes from.

        Raises:
            ProblemError: nobody known, the wrong scope, or too often.
        """
        if credentials is None:
            raise _unauthenticated(
                "this needs a token: Authorization: Bearer rw_…; make one: roofwatch token create", ""
            )
        principal = self._principal(credentials.credentials, address)
        wait_s = self.limiter.take(principal.counted_as or principal.actor)
        if wait_s > 0:
            detail = "this token asks too often; wait as long as Retry-After says"
            raise ProblemError(429, "rate-limited", detail, {"Retry-After": str(math.ceil(wait_s))})
        if not principal.scopes & {scope, Scope.ADMIN}:
            raise ProblemError(
                403,
                "forbidden",
                f"this needs the scope {scope}, the token has {' '.join(sorted(principal.scopes))}; "
                "ask for one that has it: roofwatch token create",
                {"WWW-Authenticate": f'Bearer realm="roofwatch", error="insufficient_scope", scope="{scope}"'},
            )
        return principal

    def _principal(self, text: str, address: str) -> Principal:
        if self.workflows is not None and is_json_web_token(text):
            # a forged one is told by its signature, without the database
            workflow = self.workflows.check(text)
            if workflow is None:
                raise self._refusal(address)
            return Principal(
                workflow.actor,
                frozenset({Scope.INGEST}),
                workflow.quarantined_by_project,
                # anybody who opens a pull request makes a ref
                counted_as=f"workflow {workflow.repository}",
            )
        wait_s = self.failures.wait_s(address)
        if wait_s > 0 and not self.failures.is_right(text):
            raise _too_many_failures(wait_s)
        token = check_token(self.engine, text, self.now())
        if token is None:
            raise self._refusal(address)
        return _principal_of(token)

    def _refusal(self, address: str) -> ProblemError:
        wait_s = self.failures.wait_s(address)
        if wait_s > 0:
            return _too_many_failures(wait_s)
        self.failures.note(address)
        return _invalid_token()


def _principal_of(token: Token) -> Principal:
    return Principal(
        actor=f"token {token.token_id}",
        scopes=frozenset(token.scopes),
        projects=None if token.project is None else {token.project: token.is_quarantined},
        is_quarantined=token.is_quarantined,
    )


def _unauthenticated(detail: str, error: str) -> ProblemError:
    return ProblemError(401, "unauthenticated", detail, {"WWW-Authenticate": f'Bearer realm="roofwatch"{error}'})


def _invalid_token() -> ProblemError:
    detail = "this token is not known, or expired or revoked; make another: roofwatch token create"
    return _unauthenticated(detail, ', error="invalid_token"')


def _too_many_failures(wait_s: float) -> ProblemError:
    detail = "too many wrong tokens came from this address; wait as long as Retry-After says, then send a right one"
    return ProblemError(429, "rate-limited", detail, {"Retry-After": str(math.ceil(wait_s))})


def _admitting(scope: Scope) -> Callable[..., Principal]:
    def admit(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Principal:
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        address = "" if request.client is None else request.client.host
        principal = gatekeeper.admit(credentials, scope, address)
        request.state.actor = principal.actor
        return principal

    return admit


Sender = Annotated[Principal, Depends(_admitting(Scope.INGEST))]
Reader = Annotated[Principal, Depends(_admitting(Scope.READ))]
Triager = Annotated[Principal, Depends(_admitting(Scope.TRIAGE))]
Administrator = Annotated[Principal, Depends(_admitting(Scope.ADMIN))]
