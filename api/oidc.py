"""Workflows of GitHub Actions, which prove who they are with a token of GitHub's, so that CI needs no stored secret.

Source: GitHub Docs, "OpenID Connect reference", for the claims and where the keys are.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt
from jwt.exceptions import PyJWKClientConnectionError, PyJWTError

from roofwatch.api.problems import unavailable
from roofwatch.db.auth.values import TrustedRepository

GITHUB = "https://token.actions.githubusercontent.com"

_ALGORITHMS = ("RS256",)
_LEEWAY_S = 30
_FETCH_TIMEOUT_S = 5
_KEYS_LIVE_S = 3_600
_MOST_CHARACTERS = 16_000
_RETRY_S = 30
_REQUIRED = ("exp", "iat", "iss", "aud", "sub", "repository", "ref", "event_name")
# all others, above all those of pull requests and what they set off, run on what somebody else may have made
_EVENTS_OF_THE_REPOSITORY = frozenset({"push", "schedule", "workflow_dispatch", "release"})
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger("roofwatch.api")

TrustedBy = Callable[[Sequence[str]], Sequence[TrustedRepository]]
"""Which of some repositories, by names and numbers, are trusted, and for which projects."""


@dataclass(frozen=True)
class Workflow:
    """A run of a workflow that has proved who it is."""

    actor: str
    repository: str
    """Of which it is, whatever its ref: what it asks is counted by that."""
    quarantined_by_project: Mapping[str, bool]
    """The projects that it may send records of, and whether these land in quarantine."""


class Workflows:
    """Lets workflows of trusted repositories in.

    Args:
        audience: What their tokens must be made for: this server.
        trusted_by: Asked for the repository that a token names.
        issuer: Who makes them, and has its keys at `/.well-known/jwks`.

    Raises:
        ValueError: the issuer's keys would come over an open line.
    """

    def __init__(self, audience: str, trusted_by: TrustedBy, *, issuer: str = GITHUB) -> None:
        parts = urlsplit(issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _THIS_MACHINE):
            raise ValueError(f"the issuer {issuer!r} must be https://…, as its keys decide who gets in")
        self._issuer = issuer
        self._audience = audience
        self._trusted_by = trusted_by
        # keeps the keys, and asks for unknown ones no more often than every half minute, whoever names them
        self._keys = jwt.PyJWKClient(
            f"{issuer}/.well-known/jwks", lifespan=_KEYS_LIVE_S, timeout=_FETCH_TIMEOUT_S, cooldown_duration=30
        )

    def check(self, text: str) -> Workflow | None:
        """Who a token says this is, if that is true and trusted; else None.

        Raises:
            ProblemError: the issuer's keys cannot be had.
        """
        try:
            key = self._keys.get_signing_key_from_jwt(text)
            claims: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_S,
                options={"require": list(_REQUIRED)},
            )
        except PyJWKClientConnectionError as error:
            _log.error("the keys of %s cannot be had: %s", self._issuer, error)
            raise unavailable("the keys of the token's issuer cannot be had now; try again later", _RETRY_S) from None
        except (PyJWTError, ValueError) as error:
            _log.warning("a workflow's token is refused: %s", type(error).__name__)
            return None
        return self._judge(claims)

    def _judge(self, claims: Mapping[str, Any]) -> Workflow | None:
        said = [claims[name] for name in ("repository", "ref", "event_name")]
        if not all(isinstance(value, str) and value.isprintable() and len(value) < 500 for value in said):
            return None
        repository, ref, event = said
        names = [repository, str(claims.get("repository_id", repository))]
        if not names[1].isprintable():
            return None
        trusted = self._trusted_by(names)
        if not trusted:
            return None
        is_own_event = event in _EVENTS_OF_THE_REPOSITORY
        return Workflow(
            actor=f"workflow {repository}@{ref}",
            repository=repository,
            quarantined_by_project={
                one.project: not (is_own_event and any(fnmatch.fnmatchcase(ref, pattern) for pattern in one.refs))
                for one in trusted
            },
        )


def is_json_web_token(text: str) -> bool:
    return text.count(".") == 2 and text.startswith("ey") and len(text) <= _MOST_CHARACTERS
