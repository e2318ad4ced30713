"""Errors of delivering results, and messages that contain untrusted text."""

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_NAME = 80


class ForgeError(Exception):
    """GitHub or GitLab refused a request or did not answer."""


class NotFoundError(ForgeError):
    """The object does not exist, or the token may not see it."""


class UncertainError(ForgeError):
    """It is unknown whether a request was carried out."""


class AlertError(Exception):
    """Alert rules or channels cannot be used; the message never contains an address."""


@dataclass(frozen=True)
class Remark:
    """A sentence with untrusted words kept apart, for the caller to quote."""

    template: str
    """Has one `{}` for each word."""
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.quoted(str)

    def quoted(self, quote: Callable[[str], str]) -> str:
        return self.template.format(*map(quote, self.words))


def may_carry_secrets(url: str) -> bool:
    """Return whether nobody can read what is sent there: https, or plain http to this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return False
    is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    return is_local or (parts.scheme == "https" and bool(parts.hostname))


def visible(text: str) -> str:
    """Replace unprintable characters, such as terminal controls and bidirectional marks, by `�`."""
    return "".join(character if character.isprintable() else "�" for character in text)


def on_one_line(text: str) -> str:
    """Make the text visible and collapse white space to single blanks."""
    return visible(" ".join(text.split()))


def short_name(name: str) -> str:
    """Cut the name of a kernel at 80 characters."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
