"""Call a candidate and an implementation of the spec on the same unpredictable inputs, and check the results.

A case is tried as declared, at shapes that the spec does not list, in other memory layouts, and with other values.
Where the implementation itself is wrong or refuses, the candidate is not tried.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import torch

from roofwatch.collector.accuracy.accuracy import CheckCache, compare_with_reference, worst_message
from roofwatch.collector.accuracy.check import rearranged
from roofwatch.collector.accuracy.check_report import Arrangement
from roofwatch.collector.accuracy.deviation import deviation
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    differentiated_names,
    make_inputs,
    prepare_inputs,
    upstream_gradients,
)
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.workers.candidate import CandidateProcess
from roofwatch.collector.workers.candidate_protocol import (
    Arguments,
    CandidateError,
    CandidateGoneError,
    CandidateLateError,
    ForgeryError,
    Returned,
)
from roofwatch.spec import Case, Direction, Implementation, KernelSpec, Language

_CANDIDATE = Implementation("candidate", Language.TORCH, lambda: None, frozenset(Direction))
_REFUSALS = frozenset({"ValueError", "TypeError", "NotImplementedError", "AssertionError", "RuntimeError"})
_PLAIN = (bool, int, float, str, type(None))
_MAX_LAYOUTS = 4
_FAR = 3.0
"""Two right results may be apart by twice the tolerance."""


class Test(StrEnum):
    """What a trial is about."""

    LISTED = "listed case"
    SHAPE = "unseen shape"
    LAYOUT = "memory layout"
    VALUES = "values"
    TIMED = "timed call"


@dataclass(frozen=True)
class Trial:
    """One case and how its inputs are changed."""

    test: Test
    case: Case
    detail: str = ""
    change: Callable[[str, Any], Any] = field(default=lambda _name, value: value, repr=False)
    """Given the name and value of an input."""

    @property
    def name(self) -> str:
        return f"{self.case.id} {self.detail}".strip()


class NotComparableError(Exception):
    """The implementation of the spec is wrong or refuses, so the candidate was not tried."""


class Failed(Exception):  # noqa: N818  a finding about the candidate
    """The candidate's result is wrong or missing."""

    def __init__(self, trial: Trial, message: str, cause: CandidateError | None = None) -> None:
        super().__init__(message)
        self.trial = trial
        self.is_forgery = isinstance(cause, ForgeryError)
        self.is_gone = isinstance(cause, CandidateGoneError)
        self.is_late = isinstance(cause, CandidateLateError)
        """The budget was spent before it returned: it may hang or compile for long."""


@dataclass(frozen=True)
class Pair:
    """Both sides' calls on the same inputs."""

    trial: Trial
    case: Case
    """With the salt of its inputs."""
    arguments: Arguments
    base: Returned
    candidate: Returned


class Bench:
    """Both processes, and what their calls need.

    Args:
        spec: The kernel.
        device: Of the kernels.
        base: Process that loaded the spec.
        candidate: Process that loaded the candidate.
        against: Implementation of the spec that is compared with.
        timeout_s: Returns the time limit of a call.
    """

    def __init__(
        self,
        spec: KernelSpec,
        device: str,
        base: CandidateProcess,
        candidate: CandidateProcess,
        against: str,
        timeout_s: Callable[[], float],
    ) -> None:
        self.spec, self.device, self.against = spec, device, against
        self.base, self.candidate = base, candidate
        self._timeout_s = timeout_s
        self._forms: dict[str, dict[str, torch.Tensor]] = {}
        self.call_count = self.checked_count = 0

    def call_base(self, trial: Trial, implementation: str | None = None) -> tuple[Case, Arguments, Returned]:
        """Draw inputs and call the implementation.

        Raises:
            CandidateError: it fails.
        """
        case = replace(trial.case, salt=secrets.token_hex(16))
        call = partial(self.base.call, implementation=implementation or self.against, timeout_s=self._timeout_s())
        arguments = self._draw(trial, case, call)
        return case, arguments, call(arguments)

    def try_once(self, trial: Trial) -> Pair | None:
        """Call both sides and check the result.

        Returns:
            None if the candidate refuses another memory layout.

        Raises:
            NotComparableError: the implementation does not support the trial.
            Failed: the candidate's result is wrong or missing.
        """
        try:
            case, arguments, expected = self.call_base(trial)
            message = self.what_is_wrong(case, arguments, expected)
        except CandidateGoneError as error:
            raise CollectorError(f"{self.against} on {trial.name}: {error}") from None
        except Exception as error:  # a spec's inputs, reference or implementation that has no such case
            raise NotComparableError(f"{self.against} on {trial.name}: {type(error).__name__}: {error}") from error
        if message is not None:
            raise NotComparableError(f"{self.against} on {trial.name}: {message}")
        try:
            pair = Pair(trial, case, arguments, expected, self.call_candidate(trial, arguments))
        except Failed as failed:
            refused = isinstance(failed.__cause__, CandidateError) and failed.__cause__.kinds & _REFUSALS
            if trial.test is Test.LAYOUT and refused:
                return None
            raise
        self.check(pair)
        return pair

    def time_once(self, trial: Trial, *, is_base_first: bool) -> Pair:
        """Call both sides on the same inputs, and compare their results with each other.

        Raises:
            Failed: the candidate's result is missing, or far from the implementation's and wrong.
        """
        timed = replace(trial, test=Test.TIMED)
        case = replace(trial.case, salt=secrets.token_hex(16))
        call = partial(self.base.call, implementation=self.against, timeout_s=self._timeout_s())
        arguments = self._draw(trial, case, call)
        candidate = None if is_base_first else self.call_candidate(timed, arguments)
        base = call(arguments)
        pair = Pair(timed, case, arguments, base, candidate or self.call_candidate(timed, arguments))
        if self._is_far(pair):
            self.check(pair)
        return pair

    def check(self, pair: Pair) -> None:
        """Compare the candidate's results with the reference.

        Raises:
            Failed: they are wrong.
        """
        self.checked_count += 1
        message = self.what_is_wrong(pair.case, pair.arguments, pair.candidate)
        if message is not None:
            raise Failed(pair.trial, message)

    def settle(self, trial: Trial) -> None:
        """Check that the candidate is still quiet after its last call.

        Raises:
            Failed: it is not.
        """
        try:
            self.candidate.check_settled()
        except CandidateError as error:
            raise Failed(trial, str(error), error) from error

    def what_is_wrong(self, case: Case, arguments: Arguments, returned: Returned) -> str | None:
        """Evaluate the reference, now that the result has arrived, and apply the accuracy rules."""
        changed = set(returned.changed_inputs) - set(self.spec.mutates)
        if changed:
            return f"changes its input {', '.join(sorted(changed))}; work on a copy or return a new tensor"
        tensors = {
            name: tensor.clone().requires_grad_(name in arguments.gradients)
            for name, tensor in arguments.tensors.items()
        }
        prepared = prepare_inputs(self.spec, case, self.device, {**arguments.values, **tensors})
        try:
            baseline = CheckCache().baseline(prepared, _CANDIDATE)
            return worst_message(compare_with_reference(prepared, returned.outputs, baseline))
        except IncorrectResultError as error:
            return str(error)

    def call_candidate(self, trial: Trial, arguments: Arguments, *, is_recorded: bool = False) -> Returned:
        """Call the candidate; `is_recorded` notes the kernels on a GPU.

        Raises:
            Failed: it gives no result.
        """
        self.call_count += 1
        try:
            return self.candidate.call(arguments, timeout_s=self._timeout_s(), is_recorded=is_recorded)
        except CandidateError as error:
            raise Failed(trial, str(error), error) from error

    def _is_far(self, pair: Pair) -> bool:
        """Whether the two results differ by more than two right ones can; compares without the reference."""
        base, candidate = pair.base.outputs, pair.candidate.outputs
        if pair.candidate.changed_inputs or base.keys() != candidate.keys():
            return True
        for name, expected in base.items():
            actual = candidate[name]
            if actual.shape != expected.shape or actual.dtype != expected.dtype:
                return True
            limit = self.spec.tolerance(pair.case, str(expected.dtype).removeprefix("torch."))
            found = deviation(expected, actual)
            if found.nonfinite_count or found.errors.rmse_ratio > _FAR * limit.rmse_ratio:
                return True
            if found.errors.elementwise > _FAR * limit.elementwise:
                return True
        return False

    def _draw(self, trial: Trial, case: Case, call: Callable[[Arguments], Returned]) -> Arguments:
        inputs = make_inputs(self.spec, case, self.device)
        gradients = differentiated_names(self.spec, case, inputs)
        changed = {
            name: trial.change(name, value.detach() if isinstance(value, torch.Tensor) else value)
            for name, value in inputs.items()
        }
        tensors = {name: value for name, value in changed.items() if isinstance(value, torch.Tensor)}
        values = {name: value for name, value in changed.items() if name not in tensors}
        odd = [name for name, value in values.items() if not isinstance(value, _PLAIN)]
        if odd:
            raise CollectorError(
                f"{case.id}: input {odd[0]} is a {type(values[odd[0]]).__name__}; submit takes tensors and plain values"
            )
        arguments = Arguments(tensors, values)
        if not gradients:
            return arguments
        if case.id not in self._forms:
            self._forms[case.id] = dict(call(arguments).outputs)
        return replace(arguments, gradients=gradients, upstream=tuple(upstream_gradients(self._forms[case.id], case)))


# --- unseen inputs


def unseen_shapes(cases: Sequence[Case], listed: frozenset[str], *, count: int) -> Iterator[Trial]:
    """Cases at lengths that the spec does not list: one past a tile, odd, prime, other batch sizes.

    Args:
        cases: To change one or all dims of.
        listed: IDs of the declared cases.
        count: Number of trials.
    """
    random = secrets.SystemRandom()
    seen = set(listed)
    for attempt in range(10 * count):
        case = random.choice(cases)
        numbers = [name for name, length in case.shape if isinstance(length, int) and length > 1]
        if not numbers:
            continue
        chosen = set(numbers) if attempt % 4 == 3 else {random.choice(numbers)}
        shape = tuple(
            (name, random.choice(_other_lengths(length)) if name in chosen and isinstance(length, int) else length)
            for name, length in case.shape
        )
        changed = replace(case, shape=shape)
        if changed.id not in seen:
            seen.add(changed.id)
            yield Trial(Test.SHAPE, changed)
        if len(seen) == len(listed) + count:
            return


def _other_lengths(length: int) -> list[int]:
    tile = 1 << (length.bit_length() - 1)
    primes = [each for each in range(max(2, length // 2), length + 1) if _is_prime(each)]
    return [tile // 2 + 1, length - 1, length + 1, max(1, length // 2), *primes[-1:], *primes[:1]]


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def other_values(case: Case) -> Iterator[Trial]:
    """The case with large, tiny, equal, repeated and zero values in its tensors, and with other numbers beside them."""
    changes: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "large": lambda wide: wide * 2.0**7,
        "tiny": lambda wide: wide * 2.0**-7,
        "zeros": torch.zeros_like,
        "ties": lambda wide: (wide * 2).round() / 2,
        "shifted": lambda wide: wide + 8.0,
    }
    for name, change in changes.items():
        yield Trial(Test.VALUES, case, f"with {name} values", partial(_change_tensor, change))
    factor = secrets.SystemRandom().uniform(0.6, 0.9)
    yield Trial(Test.VALUES, case, "with other numbers", partial(_change_number, factor))


def _change_tensor(change: Callable[[torch.Tensor], torch.Tensor], _name: str, value: Any) -> Any:
    is_changed = isinstance(value, torch.Tensor) and value.is_floating_point()
    return change(value.to(torch.float64)).to(value.dtype) if is_changed else value


def _change_number(factor: float, _name: str, value: Any) -> Any:
    return value * factor if isinstance(value, float) else value


def other_layouts(case: Case, inputs: Mapping[str, Any]) -> Iterator[Trial]:
    """The case with one of its matrices in another memory layout."""
    layouts = [
        (name, arrangement)
        for name, tensor in inputs.items()
        for arrangement in Arrangement
        if isinstance(tensor, torch.Tensor) and tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1
    ]
    for name, arrangement in secrets.SystemRandom().sample(layouts, min(_MAX_LAYOUTS, len(layouts))):
        detail = f"with {name} {arrangement.replace('_', '-')} in memory"
        yield Trial(Test.LAYOUT, case, detail, partial(_rearrange, name, arrangement))


def _rearrange(name: str, arrangement: Arrangement, input_name: str, value: Any) -> Any:
    return rearranged(value, arrangement) if input_name == name else value
