"""Call a candidate and an implementation of the spec on the same unpredictable inputs, and check
the results.

Where the implementation itself is wrong or refuses, the candidate is not tried.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from roofwatch.collector.accuracy.accuracy import compare_with_reference, dtype_name, worst_message
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.deviation import deviation
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
    UpstreamGradients,
    differentiated_names,
    make_inputs,
    prepare_inputs,
)
from roofwatch.collector.accuracy.fairness import UnfairError, limits_of_few
from roofwatch.collector.accuracy.variations import Test, Trial
from roofwatch.collector.workers.candidate import CandidateProcess
from roofwatch.collector.workers.candidate_protocol import (
    Arguments,
    CandidateError,
    CandidateGoneError,
    CandidateLateError,
    Returned,
)
from roofwatch.model.check_report import Errors, TensorReport
from roofwatch.model.errors import CollectorError
from roofwatch.spec import Case, Direction, Implementation, KernelSpec, Language
from roofwatch.spec.tolerance import EXACT_DTYPES

_CANDIDATE = Implementation(
    name="candidate",
    language=Language.TORCH,
    launch=lambda: None,
    directions=frozenset(Direction),
)
_REFUSALS = frozenset(
    {"ValueError", "TypeError", "NotImplementedError", "AssertionError", "RuntimeError"}
)
_PLAIN = (bool, int, float, str, type(None))
_ERRORS = ("elementwise", "rmse_ratio")
_FAR = 3.0
"""Two right results may be apart by twice the tolerance."""


class NotComparableError(CollectorError):
    """The implementation of the spec is wrong, fails or refuses, so the candidate was not tried."""


class ImplementationLateError(CollectorError):
    """The implementation of the spec, or what follows its call, takes longer than there is time."""


@dataclass(frozen=True)
class PairedCalls:
    """Both sides' calls on the same inputs."""

    case: Case
    """With the salt of its inputs."""
    arguments: Arguments
    base: Returned
    candidate: Returned
    least_limits: Mapping[str, Errors] = field(default_factory=dict)
    """Of results of few elements at values that the spec does not draw."""


@dataclass
class Bench:
    """Both processes, and what their calls need."""

    spec: KernelSpec
    device: str
    base: CandidateProcess
    """Loaded the spec."""
    candidate: CandidateProcess
    against: str
    """Implementation of the spec that is compared with."""
    timeout_s: Callable[[], float]
    """Returns the time limit of a call."""
    trial: Trial = field(init=False)
    """The current one."""
    base_ns: float = 0.0
    """Time of the implementation's last call."""
    call_count: int = 0
    checked_count: int = 0
    _forms: dict[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    """Outputs of the implementation by case, for the form of the upstream gradients."""
    _upstream: UpstreamGradients = field(init=False)
    """Of the last draw."""
    _prepared: PreparedCase | None = None
    """The reference's side of the last draw, once it was evaluated."""

    def call_base(
        self,
        trial: Trial,
        implementation: str | None = None,
    ) -> tuple[Case, Arguments, Returned]:
        """Draw inputs and call the implementation.

        Raises:
            NotComparableError: the spec has no such case, or the implementation fails.
            CollectorError: its process has ended.
        """
        self.trial = trial
        try:
            case, arguments = self._draw(trial)
        except CollectorError:
            raise
        except Exception as error:  # of the spec's inputs
            raise NotComparableError(
                f"the inputs of {trial.name}: {type(error).__name__}: {error}"
            ) from error
        return case, arguments, self._call_base(arguments, implementation or self.against)

    def try_once(self, trial: Trial) -> bool:
        """Call both sides and check the result.

        Returns:
            False if the candidate refuses another memory layout.

        Raises:
            NotComparableError: the implementation does not support the trial.
            ImplementationLateError: there is not enough time to check a result.
            CandidateError: the candidate's result is wrong or missing.
        """
        case, arguments, base = self.call_base(trial)
        base_s = base.elapsed_ns / 1e9
        # the reference computes the same in float64, so it would take even longer
        if base_s > self.timeout_s():
            raise ImplementationLateError(f"{self.against} on {trial.name} takes {base_s:.0f} s")
        least_limits: Mapping[str, Errors] = {}
        try:
            message = self.what_is_wrong(case, arguments, base)
            if message is None and trial.test in {Test.VALUES, Test.TIES}:
                least_limits = self._least_limits(case, arguments, base)
        except UnfairError as error:
            message = str(error)
        except Exception as error:  # of the reference
            raise NotComparableError(
                f"the reference on {trial.name}: {type(error).__name__}: {error}"
            ) from error
        if message is not None:
            raise NotComparableError(f"{self.against} on {trial.name}: {message}")
        try:
            candidate = self.call_candidate(arguments)
        except CandidateError as error:
            if trial.test is Test.LAYOUT and error.kinds & _REFUSALS:
                return False
            raise
        self.check(
            PairedCalls(
                case=case,
                arguments=arguments,
                base=base,
                candidate=candidate,
                least_limits=least_limits,
            )
        )
        return True

    def time_once(self, trial: Trial, *, is_base_first: bool) -> PairedCalls:
        """Call both sides on the same inputs, and compare their results with each other.

        Raises:
            CandidateError: the candidate's result is missing, or far from the implementation's and
            wrong.
        """
        self.trial = replace(trial, test=Test.TIMED)
        case, arguments = self._draw(trial)
        # the order alternates: the second call finds a warm cache
        candidate = None
        if not is_base_first:
            candidate = self.call_candidate(arguments)
        base = self._call_base(arguments, self.against)
        pair = PairedCalls(
            case=case,
            arguments=arguments,
            base=base,
            candidate=candidate or self.call_candidate(arguments),
        )
        # the reference takes long, so it only settles a doubt
        if self._is_far(pair):
            self.check(pair)
        return pair

    def check(self, pair: PairedCalls) -> None:
        """Compare the candidate's results with the reference.

        Raises:
            CandidateError: they are wrong.
        """
        self.checked_count += 1
        message = _other_form(pair) or self.what_is_wrong(
            case=pair.case,
            arguments=pair.arguments,
            returned=pair.candidate,
            least_limits=pair.least_limits,
        )
        self._prepared = None
        if message is not None:
            raise CandidateError(message)

    def exchange_ns(self, pair: PairedCalls) -> float:
        """Time of a call of the implementation's process that does everything but run the
        implementation.
        """
        return self._call_base(pair.arguments, None).elapsed_ns

    def what_is_wrong(
        self,
        case: Case,
        arguments: Arguments,
        returned: Returned,
        *,
        least_limits: Mapping[str, Errors] | None = None,
    ) -> str | None:
        """Evaluate the reference, now that the result has arrived, and apply the accuracy rules."""
        changed = set(returned.changed_inputs) - set(self.spec.mutates)
        if changed:
            return (
                f"changes its input {', '.join(sorted(changed))}; work on a copy or return a "
                f"new tensor"
            )
        try:
            prepared = self._prepare(case, arguments)
            return worst_message(self._compare(prepared, returned.outputs, least_limits))
        except IncorrectResultError as error:
            return str(error)

    def call_candidate(self, arguments: Arguments, *, is_recorded: bool = False) -> Returned:
        """Call the candidate; `is_recorded` notes the kernels on a GPU.

        Raises:
            CandidateError: it gives no result.
        """
        self.call_count += 1
        return self.candidate.call(
            arguments,
            timeout_s=self.timeout_s(),
            is_recorded=is_recorded,
        )

    def _least_limits(
        self,
        case: Case,
        arguments: Arguments,
        base: Returned,
    ) -> Mapping[str, Errors]:
        """The limits that a right kernel needs at values that the spec does not draw.

        Raises:
            UnfairError: a right kernel may fail.
        """
        if self.trial.test is Test.TIES and not EXACT_DTYPES.isdisjoint(
            map(dtype_name, base.outputs.values())
        ):
            raise UnfairError("equal values may be chosen in any order")
        dtypes = {name: tensor.dtype for name, tensor in base.outputs.items()}
        prepared = self._prepare(case, arguments)
        return limits_of_few(prepared, dtypes, self._compare)

    def _prepare(self, case: Case, arguments: Arguments) -> PreparedCase:
        """The reference's side of a trial: the inputs that the judge drew itself."""
        # not by equality: the salt of each draw does not count
        if case is not self._upstream.case:
            self._begin(case)
        if self._prepared is not None:
            return self._prepared
        tensors = {
            name: tensor.clone().requires_grad_(name in arguments.gradients)
            for name, tensor in arguments.tensors.items()
        }
        self._prepared = prepare_inputs(
            spec=self.spec,
            case=case,
            device=self.device,
            inputs={**arguments.values, **tensors},
            upstream=self._upstream,
        )
        return self._prepared

    def _begin(self, case: Case) -> None:
        """Forget the last draw: the device may not have memory for two."""
        self._upstream = UpstreamGradients(case)
        self._prepared = None

    def _compare(
        self,
        prepared: PreparedCase,
        outputs: Mapping[str, torch.Tensor],
        least_limits: Mapping[str, Errors] | None = None,
    ) -> tuple[TensorReport, ...]:
        """Compare outputs of the candidate, whose process computes no baseline of its own."""
        baseline = CheckCache().baseline(prepared, _CANDIDATE)
        baseline = replace(baseline, least_limits=least_limits or {})
        return compare_with_reference(prepared, outputs, baseline)

    def _is_far(self, pair: PairedCalls) -> bool:
        """Whether the two results differ by more than two right ones can; compares without the
        reference.
        """
        # a changed input is never right, whatever the result
        if pair.candidate.changed_inputs or _other_form(pair):
            return True
        for name, expected in pair.base.outputs.items():
            actual = pair.candidate.outputs[name]
            limit = self.spec.tolerance(pair.case, dtype_name(expected))
            difference = deviation(expected, actual)
            is_beyond = any(
                getattr(difference.errors, error_name) > _FAR * getattr(limit, error_name)
                for error_name in _ERRORS
            )
            if difference.nonfinite_count or is_beyond:
                return True
        return False

    def _call_base(self, arguments: Arguments, implementation: str | None) -> Returned:
        """Call the spec's implementation, whose failure is no fault of the candidate."""
        try:
            base = self.base.call(
                arguments,
                implementation=implementation,
                timeout_s=self.timeout_s(),
            )
        except CandidateError as error:
            message = f"{implementation} on {self.trial.name}: {error}"
            if isinstance(error, CandidateLateError):
                raise ImplementationLateError(message) from None
            # a process that is gone is no fault of the code
            if isinstance(error, CandidateGoneError):
                raise CollectorError(message) from None
            raise NotComparableError(message) from None
        self.base_ns = base.elapsed_ns
        return base

    def _draw(self, trial: Trial) -> tuple[Case, Arguments]:
        """Draw inputs that nobody could know in advance, and upstream gradients for them."""
        case = replace(trial.case, salt=secrets.token_hex(16))
        self._begin(case)
        inputs = make_inputs(self.spec, case, self.device)
        gradients = differentiated_names(self.spec, case, inputs)
        changed: dict[str, Any] = {}
        for name, value in inputs.items():
            plain = value
            if isinstance(value, torch.Tensor):
                plain = value.detach()
            changed[name] = trial.change(name, plain)
        tensors = {
            name: value for name, value in changed.items() if isinstance(value, torch.Tensor)
        }
        values = {name: value for name, value in changed.items() if name not in tensors}
        for name, value in values.items():
            # objects of other types could carry code into the judge's process
            if not isinstance(value, _PLAIN):
                raise CollectorError(
                    f"{case.id}: input {name} is a {type(value).__name__}; submit takes "
                    f"tensors and plain values"
                )
        arguments = Arguments(tensors, values)
        if not gradients:
            return case, arguments
        if case.id not in self._forms:
            self._forms[case.id] = self._call_base(arguments, self.against).outputs
        upstream = tuple(self._upstream.of(self._forms[case.id]))
        with_gradients = replace(
            arguments,
            gradients=gradients,
            upstream=upstream,
        )
        return case, with_gradients


def _other_form(pair: PairedCalls) -> str | None:
    """How the form of the candidate's results differs from that of the implementation's."""
    base_forms = _forms_of(pair.base)
    candidate_forms = _forms_of(pair.candidate)
    if base_forms == candidate_forms:
        return None
    base_text = _forms_text(base_forms)
    return f"returns {_forms_text(candidate_forms)}; the implementation returns {base_text}"


def _forms_of(returned: Returned) -> dict[str, str]:
    """Dtype and shape of each output."""
    return {
        name: f"{dtype_name(tensor)} {list(tensor.shape)}"
        for name, tensor in returned.outputs.items()
    }


def _forms_text(forms: dict[str, str]) -> str:
    return ", ".join(f"{name} {form}" for name, form in forms.items())
