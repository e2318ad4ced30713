"""Signed links that acknowledge one episode of an alert, once. Pure."""

import hashlib
import hmac
import re
from dataclasses import dataclass, replace
from uuid import UUID

from roofwatch.model.alert import Alert, AlertEvent, AlertStep, Delivery, Link

PATH = "/v1/acknowledge"
_TOKEN = re.compile(r"(?P<alert>[0-9a-f]{32})\.(?P<episode>\d{1,9})\.(?P<signature>[0-9a-f]{64})")


@dataclass(frozen=True)
class AcknowledgeLinks:
    """Makes and reads links. The holder of one may acknowledge its episode, and nothing else."""

    url: str
    """Public address of the API."""
    secret: str

    def of(self, alert: Alert) -> Link:
        """Return the signed link to acknowledge the current episode of an alert."""
        subject = f"{alert.alert_id.hex}.{alert.episode}"
        token = f"{subject}.{self._signature(subject)}"
        return Link("Acknowledge", f"{self.url}{PATH}?token={token}")

    def read(self, token: str) -> tuple[UUID, int] | None:
        """Return the alert and the episode of a token; None if it is not genuine."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        expected = self._signature(f"{match['alert']}.{match['episode']}")
        if not hmac.compare_digest(expected, match["signature"]):
            return None
        return UUID(match["alert"]), int(match["episode"])

    def add_to(self, step: AlertStep) -> AlertStep:
        """Add a link to each message that somebody could answer."""
        deliveries = [self._with_link(delivery) for delivery in step.deliveries]
        return replace(step, deliveries=tuple(deliveries))

    def _with_link(self, delivery: Delivery) -> Delivery:
        if delivery.event is AlertEvent.RESOLVED:
            return delivery
        alert = delivery.alert
        links = (*alert.message.links, self.of(alert))
        message = replace(alert.message, links=links)
        return replace(delivery, alert=replace(alert, message=message))

    def _signature(self, subject: str) -> str:
        signature = hmac.new(
            self.secret.encode(),
            subject.encode(),
            hashlib.sha256,
        )
        return signature.hexdigest()
