"""Metrics of the service as a whole, read from the database when they are asked for."""

import math
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from roofwatch.db.maintenance.service_state import ServiceState

_TEXTS = {
    "database_bytes": "Size of the database.",
    "database_connections": "Connections of all clients to the database server.",
    "database_connections_max": "Largest number of connections to the database server.",
    "disk_free_bytes": "Free disk space of an embedded database; NaN for another server.",
    "analysis_waiting": "Projects that wait for an analysis.",
    "analysis_oldest_wait_seconds": "Age of the oldest request for an analysis.",
    "analysis_failing": "Projects whose last analysis failed.",
    "analysis_last_seconds": "Longest of the last analyses of all projects.",
    "deliveries_waiting": "Alert messages that wait to be sent.",
    "delivery_oldest_wait_seconds": "Age of the oldest alert message that waits.",
    "deliveries_failed": "Alert messages that were given up.",
    "backup_age_seconds": "Age of the newest backup; NaN without one.",
    "archive_age_seconds": "Since a segment of the write-ahead log was archived; NaN if it is not.",
    "token_expiry_seconds": "Time until the first token in use expires; NaN without one.",
    "disk_full": "1 while the database has no disk space.",
}


@dataclass(frozen=True)
class ServiceMetrics:
    gauges: dict[str, Gauge]

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "ServiceMetrics":
        gauges = {
            name: Gauge(f"roofwatch_{name}", meaning, registry=registry)
            for name, meaning in _TEXTS.items()
        }
        return cls(gauges)

    def update(self, state: ServiceState, *, is_disk_full: bool) -> None:
        queue = state.queue
        values: dict[str, float | None] = {
            "database_bytes": state.database_bytes,
            "database_connections": state.connection_count,
            "database_connections_max": state.max_connections,
            "disk_free_bytes": state.disk_free_bytes,
            "analysis_waiting": queue.waiting_count,
            "analysis_oldest_wait_seconds": queue.oldest_wait_s,
            "analysis_failing": queue.failing_count,
            "analysis_last_seconds": queue.last_duration_s,
            "deliveries_waiting": state.delivery_count,
            "delivery_oldest_wait_seconds": state.oldest_delivery_s,
            "deliveries_failed": state.failed_delivery_count,
            "backup_age_seconds": state.backup_age_s,
            "archive_age_seconds": state.archive_age_s,
            "token_expiry_seconds": state.token_expiry_s,
            "disk_full": is_disk_full,
        }
        for name, value in values.items():
            # NaN, not 0: an unknown age is no age of 0 seconds
            self.gauges[name].set(math.nan if value is None else value)
