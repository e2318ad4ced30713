"""What to say where a machine cannot be measured at all."""

from __future__ import annotations

from roofwatch.collector.errors import CollectorError
from roofwatch.collector.workers.protocol import Failure


def machine_error(what: str, failure: Failure | None, device: str) -> CollectorError:
    """One line: what cannot be done, why, and the way out.

    Args:
        what: That cannot be done.
        failure: What the worker said.
        device: That was to be measured.
    """
    why = "the worker did not say why" if failure is None else next(iter(failure.message.splitlines()), failure.outcome)
    way_out = (
        "see to the memory and the limits of this machine"
        if device == "cpu"
        else "see whether the GPU works and who uses it (nvidia-smi or rocm-smi), or measure without it: --device cpu"
    )
    return CollectorError(f"{what}: {why}; {way_out}")
