"""What it takes to send a message through a channel, and what goes wrong there. Pure.

Each message has a key that is the same in every attempt: a sender may die between sending and saying so, and then the
message is sent again. What keeps it from being said twice is, by kind of channel:

- *github*: GitHub is asked before anything is written, and every text has a hidden marker with the key;
- *email*: the Message-ID is made of the key, by which mail systems drop the second;
- *webhook*: the header `Idempotency-Key` is the key, by which the receiver drops the second;
- *apprise*: chat services take no key and cannot be asked. The second message says that it may have been said before:
  rather twice than never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from roofwatch.ci.alerts.text import Notice
from roofwatch.ci.errors import AlertError

_HIDDEN = 4
"""Shorter parts of an address are words such as `to`, which hiding would only make errors unreadable."""


class SendError(AlertError):
    """A message could not be sent.

    Attributes:
        is_uncertain: It may have arrived for all that.
        wait_s: Seconds that the receiver asks to be left alone for.
    """

    def __init__(self, message: str, *, is_uncertain: bool, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        self.wait_s = wait_s


@dataclass(frozen=True)
class Address:
    """Where a channel is: a secret, which no text of ours shows."""

    url: str

    def __repr__(self) -> str:
        return "Address(***)"

    def without(self, text: str) -> str:
        """A text in which nothing of the address is left but short words."""
        parts = sorted(set(re.split(r"[^\w.-]+", self.url)), key=len, reverse=True)
        for part in (self.url, *parts):
            if len(part) >= _HIDDEN:
                text = text.replace(part, "***")
        return " ".join(text.split())[:500]


class Sender(Protocol):
    """A channel that can be used."""

    def send(self, notice: Notice, key: str) -> None:
        """Send a message. Raises `SendError`."""
