"""Alerts by e-mail, through an SMTP server. Not through apprise, which makes a new Message-ID each time."""

from __future__ import annotations

import logging
import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from roofwatch.ci.alerts.sending import Address, SendError
from roofwatch.ci.alerts.text import Notice, to_html, to_text, to_title
from roofwatch.ci.errors import AlertError

_TIMEOUT_S = 30.0
_log = logging.getLogger("roofwatch.alerts")

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class EmailSender:
    """A mailbox, by `smtps://user:password@host/?from=…&to=…`, or `smtp://` with STARTTLS.

    Raises:
        AlertError: the address is none.
    """

    def __init__(self, address: Address) -> None:
        parts, query = _split(address)
        senders, receivers = query.get("from", []), [one for text in query.get("to", []) for one in text.split(",")]
        if len(senders) != 1 or not receivers or not all("@" in parseaddr(one)[1] for one in (*senders, *receivers)):
            raise AlertError("the address says one sender in `from` and its receivers in `to`, separated by commas")
        self._address, self._parts = address, parts
        self._sender, self._receivers = senders[0], receivers

    def send(self, notice: Notice, key: str) -> None:
        """Send it. The Message-ID says the key, and all messages of an episode refer to one thread."""
        message = self._message(notice, key)
        try:
            with self._connect() as server:
                if self._parts.username:
                    server.login(unquote(self._parts.username), unquote(self._parts.password or ""))
                refused = server.send_message(message)
        except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError) as error:
            raise self._failed(error, is_uncertain=False) from None
        except (ConnectionRefusedError, ssl.SSLError) as error:
            raise self._failed(error, is_uncertain=False) from None
        except (OSError, smtplib.SMTPException) as error:
            raise self._failed(error, is_uncertain=True) from None
        if refused:
            # the others have it: sending it again would not help these
            _log.warning("alert message %s: %d of %d receivers were refused", key, len(refused), len(self._receivers))

    def _message(self, notice: Notice, key: str) -> EmailMessage:
        domain = parseaddr(self._sender)[1].rpartition("@")[2]
        message = EmailMessage(policy=SMTP)
        message["From"], message["To"] = self._sender, ", ".join(self._receivers)
        message["Subject"] = to_title(notice)
        message["Message-ID"] = f"<{key}@{domain}>"
        message["References"] = f"<{notice.alert_id}.{notice.episode}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(to_text(notice))
        message.add_alternative(to_html(notice), subtype="html")
        return message

    def _connect(self) -> smtplib.SMTP:
        host, is_here = self._parts.hostname or "", self._parts.hostname in _THIS_MACHINE
        if self._parts.scheme == "smtps":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(host, self._parts.port or 465, timeout=_TIMEOUT_S, context=context)
        server = smtplib.SMTP(host, self._parts.port or 587, timeout=_TIMEOUT_S)
        if not is_here:
            server.starttls(context=ssl.create_default_context())
        return server

    def _failed(self, error: Exception, *, is_uncertain: bool) -> SendError:
        return SendError(self._address.without(f"{type(error).__name__}: {error}"), is_uncertain=is_uncertain)


def _split(address: Address) -> tuple[SplitResult, dict[str, list[str]]]:
    try:
        parts = urlsplit(address.url)
        is_known = parts.scheme in {"smtp", "smtps"} and bool(parts.hostname) and parts.port != 0
        if is_known:
            return parts, parse_qs(parts.query)
    except ValueError:
        pass
    raise AlertError("the address is not of the form smtps://user:password@host/?from=…&to=…")
