"""What a judge says about two results: a change with its verdict and its reason. Pure."""

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from roofwatch.ci.messages import Remark
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.history import Cause
from roofwatch.model.metrics import metric
from roofwatch.model.verdict import Reason, Verdict

EvidenceT = TypeVar("EvidenceT", covariant=True)

_LARGEST_LOG = 700.0
"""exp() of more overflows."""


@dataclass(frozen=True, order=True)
class ChangeSubject:
    """What changed: a case and implementation, or a part of it."""

    case_id: str
    implementation: str
    part: str = ""
    """Compiled function, tensor, or kernel of the device."""
    target: str = ""
    """Of compiled code."""
    launch_index: int = 0
    """Launch of a call, for a counter."""

    @property
    def kernel(self) -> str:
        """The kernel of the case."""
        return kernel_of(self.case_id)

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation


class FunctionFacts(Protocol):
    """Facts about a function of one case, measured, analysed or accepted."""

    @property
    def case_id(self) -> str: ...
    @property
    def implementation(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def target(self) -> str: ...


def subject_of(facts: FunctionFacts) -> ChangeSubject:
    return ChangeSubject(
        case_id=facts.case_id,
        implementation=facts.implementation,
        part=facts.function,
        target=facts.target,
    )


@dataclass(frozen=True, kw_only=True)
class Change(Generic[EvidenceT]):
    """One metric of one subject, base against head."""

    subject: ChangeSubject
    metric: str
    """Or the name of a counter, with its unit."""
    base: float | None = None
    """In the metric's unit; None if the side has no value."""
    head: float | None = None
    """The same of the head."""
    log_ratio: float = 0.0
    """ln(head / base); of neighbouring blocks where times are paired. Infinite if one side is 0,
    and 0 without values of both.
    """
    log_interval: tuple[float, float] | None = None
    """95 % interval of `log_ratio`; None for what is counted."""
    verdict: Verdict = Verdict.UNCHANGED
    """`unchanged` where the metric decides nothing."""
    reason: Reason
    cause: Cause | None = None
    """What changed it, if that is known."""
    detail: Remark | None = None
    """What explains the reason, in words."""
    evidence: EvidenceT

    @property
    def case_id(self) -> str:
        return self.subject.case_id

    @property
    def implementation(self) -> str:
        return self.subject.implementation

    @property
    def case_key(self) -> CaseKey:
        return self.subject.case_key

    @property
    def values(self) -> tuple[float, float]:
        """Values of base and head, which both sides have."""
        assert self.base is not None
        assert self.head is not None
        return self.base, self.head

    @property
    def is_decided(self) -> bool:
        """Whether it is better or worse."""
        return self.verdict.is_change

    @property
    def relative_change(self) -> float:
        """(head - base) / base; infinite where the base is 0."""
        return expm1(self.log_ratio)

    @property
    def relative_interval(self) -> tuple[float, float] | None:
        """The interval as relative change, low and high; None if there is none."""
        if self.log_interval is None:
            return None
        low, high = self.log_interval
        return expm1(low), expm1(high)

    @property
    def interval(self) -> tuple[float, float]:
        """`relative_interval` of a change that has one."""
        assert self.relative_interval is not None
        return self.relative_interval

    @property
    def in_words(self) -> str:
        """`peak allocated memory 1 MiB → 2 MiB (+100.0%)`."""
        definition = metric(self.metric)
        sides: list[str] = []
        for value in (self.base, self.head):
            # a side without the value
            if value is None:
                sides.append("–")
            else:
                sides.append(definition.format(value))
        text = f"{definition.title} {' → '.join(sides)}"
        if math.isinf(self.relative_change):
            return text
        return f"{text} ({self.relative_change:+.1%})"


def counted_change(
    subject: ChangeSubject,
    name: str,
    base: float,
    head: float,
    *,
    reason: Reason,
    verdict: Verdict = Verdict.UNCHANGED,
) -> Change[None]:
    """Make the change of a counted value, which has no noise."""
    return Change(
        subject=subject,
        metric=name,
        base=base,
        head=head,
        log_ratio=log_ratio_of(base, head),
        verdict=verdict,
        reason=reason,
        evidence=None,
    )


def log_ratio_of(base: float, head: float) -> float:
    """ln(head / base); infinite where one of the two is 0."""
    if base == head:
        return 0.0
    if base > 0 and head > 0:
        return math.log(head / base)
    return math.copysign(math.inf, head - base)


def expm1(value: float) -> float:
    """exp(value) - 1, infinite instead of an overflow."""
    if value > _LARGEST_LOG:
        return math.inf
    return math.expm1(value)
