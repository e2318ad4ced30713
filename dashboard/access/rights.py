"""Who may decide about regressions: by verified e-mail address, for all projects or for one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roofwatch.dashboard.errors import DashboardError

_FOR_PROJECT = "="


class NotAllowedError(DashboardError):
    """Somebody may not do what they asked for."""


@dataclass(frozen=True)
class Person:
    """Somebody who signed in."""

    subject: str
    """What the provider calls them for ever."""
    email: str
    """In lower case; empty where the provider does not vouch for it."""

    @property
    def shown_as(self) -> str:
        return self.email or "somebody without a verified address"

    @property
    def actor(self) -> str:
        """As the audit trail names who was let in."""
        return f"sign-in:{self.subject}"


def person_of(claims: Mapping[str, object]) -> Person:
    """Who an identity token speaks of. An address that is not said to be verified is none: whoever can write any
    address into a profile would have the rights of its owner.
    """
    said = claims.get("email_verified")
    # some providers write the word
    is_verified = said is True or said == "true"
    email = str(claims.get("email") or "").strip().lower() if is_verified else ""
    return Person(subject=str(claims.get("sub") or ""), email=email)


def may_triage(person: Person, project: str, triagers: Iterable[str]) -> bool:
    """Whether a person is on the list.

    Args:
        person: Who signed in.
        project: Whose regression it is.
        triagers: Addresses or `@domain`; `project=address` holds for that project alone.
    """
    _, at, domain = person.email.rpartition("@")
    if not at:
        return False
    for entry in triagers:
        of_project, separator, who = entry.strip().rpartition(_FOR_PROJECT)
        if separator and of_project != project:
            continue
        if who.lower() in {person.email, f"@{domain}"}:
            return True
    return False
