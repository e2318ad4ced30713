"""Cases that a commit cannot have made slower or faster: their times are carried over. Pure."""

import math
from collections.abc import Collection, Mapping
from datetime import datetime

from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.static.same_code import has_one_toolchain, is_same_machine_code
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.record import RunRecord

_TIMED_SHARE = 0.1
"""Share of the carried cases that is timed all the same, to see the machine."""


def find_carried(base: RunRecord, head: RunRecord) -> frozenset[CaseKey]:
    """List the cases with the same machine code, launch configuration, host code and dependencies.

    A case that is not compiled for this machine's device is never carried.
    """
    has_same_packages = base.requirements == head.requirements
    if not has_same_packages or not has_one_toolchain(base.environment, head.environment):
        return frozenset()
    pairing = Pairing(base, head)
    compiled = {facts.case_key for facts in head.static_facts}
    return frozenset(
        subject
        for subject in compiled
        if is_same_machine_code(pairing, subject)
        and _configurations(base, subject) == _configurations(head, subject)
        and _has_same_host_code(base, head, subject)
    )


def _configurations(record: RunRecord, subject: CaseKey) -> dict[tuple[str, str], object]:
    """Constants and compile options of each function of a case, such as the number of warps."""
    return {
        (facts.target, facts.function): facts.configuration
        for facts in record.static_facts
        if facts.case_key == subject
    }


def _has_same_host_code(
    base: RunRecord,
    head: RunRecord,
    subject: CaseKey,
) -> bool:
    kernel = kernel_of(subject[0])
    digest = base.host_digests.get(kernel)
    return digest is not None and digest == head.host_digests.get(kernel)


def rotating_share(
    timed_at: Mapping[CaseKey, datetime],
    kernels: Collection[str],
) -> frozenset[CaseKey]:
    """Choose a tenth of the cases of some kernels, at least one: those that were timed longest ago.

    Args:
        timed_at: When each case was timed last.
        kernels: Whose times are carried.
    """
    carried = [subject for subject in timed_at if kernel_of(subject[0]) in kernels]
    count = math.ceil(_TIMED_SHARE * len(carried))
    oldest_first = sorted(carried, key=lambda subject: (timed_at[subject], subject))
    return frozenset(oldest_first[:count])
