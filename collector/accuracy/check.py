"""Check one case of one implementation, as declared, in another layout or with other values."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from roofwatch.collector.accuracy.accuracy import (
    compare_with_reference,
    name_of,
    require_same_bits,
    worst_message,
)
from roofwatch.collector.accuracy.baseline import (
    BASELINE_NAME,
    Baseline,
    CheckCache,
    measure_baseline,
    run_once,
)
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
    prepare_without_reference,
)
from roofwatch.collector.accuracy.fairness import UnfairError, limits_of_few
from roofwatch.collector.accuracy.gpu_rounding import GpuRounding
from roofwatch.collector.accuracy.layouts import in_layout
from roofwatch.collector.accuracy.memory_guard import GUARD, MemoryWatch
from roofwatch.collector.accuracy.regimes import in_regime
from roofwatch.collector.suite import forget_failed_imports
from roofwatch.collector.user_code import frame_in_user_code, kernel_error, short_path
from roofwatch.model.check_report import (
    MAY_REFUSE,
    Arrangement,
    CheckReport,
    Errors,
    Layout,
    TensorReport,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.regime import Regime
from roofwatch.spec import Case, Implementation, KernelSpec, Language, UnsupportedError

_REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
_DEPENDENT = "not tried: the torch code is wrong at these values in every layout"
_MAX_REFUSAL_CHARACTERS = 300
AsOnGpu = Callable[[], AbstractContextManager[None]]


class _NotTriedError(Exception):
    """Other values of a case that a right implementation may fail at."""


def check_case(
    spec: KernelSpec,
    case: Case,
    implementation: Implementation,
    cache: CheckCache,
    *,
    launch: Callable[..., Any] | None = None,
    device: str = "cpu",
    layout: Layout | None = None,
    regime: Regime | None = None,
    as_on_gpu: AsOnGpu = nullcontext,
) -> CheckReport:
    """Compare the outputs and gradients of exactly this case, or of it in another layout or with
    other values, with the float64 reference.

    `launch` replaces that of the implementation, for example by its compiled form. Within
    `as_on_gpu`, tensors say that they are on a GPU.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises, unless it
        refuses a layout.
    """
    # Triton's interpreter runs programs one after another, so a second run is always equal
    is_interpreted = implementation.language is Language.TRITON and device == "cpu"
    executor = "device"
    if is_interpreted:
        executor = "interpreter"
    report = CheckReport(
        case_id=case.id,
        implementation=implementation.name,
        executor=executor,
        layout=layout,
        regime=regime,
        outcome=Outcome.OK,
    )
    is_guessed_size = MAY_REFUSE in case.tags
    try:
        prepared = cache.prepare(spec, case, device)
    except UnsupportedError as error:
        if not is_interpreted or layout is not None or regime is not None:
            raise
        return _without_reference(
            report=report,
            prepared=prepare_without_reference(spec, case, device),
            implementation=implementation,
            launch=launch,
            as_on_gpu=as_on_gpu,
            reason=f"{type(error).__name__}: {error}",
        )
    except Exception as error:
        if not is_guessed_size:
            raise
        reason = f"not tried: {type(error).__name__}: {error}"[:_MAX_REFUSAL_CHARACTERS]
        return report.model_copy(update={"outcome": Outcome.UNSUPPORTED, "message": reason})
    try:
        if regime is not None:
            prepared, baseline = _in_fair_regime(
                prepared=prepared,
                implementation=implementation,
                cache=cache,
                regime=regime,
            )
        elif layout is not None:
            prepared, baseline = _in_layout(
                prepared=prepared,
                implementation=implementation,
                cache=cache,
                layout=layout,
            )
        else:
            baseline = cache.baseline(prepared, implementation)
    except _NotTriedError as error:
        reason = f"not tried: {error}"[:_MAX_REFUSAL_CHARACTERS]
        return report.model_copy(update={"outcome": Outcome.UNSUPPORTED, "message": reason})
    may_refuse = layout is not None or is_guessed_size
    is_repeated = implementation.is_deterministic and not is_interpreted
    is_repeated = is_repeated and layout is None and regime is None
    outcome = Outcome.OK
    message: str | None = None
    tensors: tuple[TensorReport, ...] = ()
    watch = MemoryWatch()
    try:
        with GUARD.watching(watch):
            if is_interpreted:
                actual = _run_in_interpreter(
                    prepared=prepared,
                    implementation=implementation,
                    launch=launch,
                    as_on_gpu=as_on_gpu,
                )
            else:
                actual = run_once(prepared, implementation, launch)
        tensors = compare_with_reference(prepared, actual, baseline)
        message = worst_message(tensors)
        if message is None and is_repeated:
            require_same_bits(actual, run_once(prepared, implementation, launch))
        if message is not None and _has_dependent_inputs(prepared, implementation, layout):
            outcome = Outcome.UNSUPPORTED
            message = _DEPENDENT
    except IncorrectResultError as error:
        message = str(error)
    except Exception as error:
        if watch.faults:
            message = f"then {type(error).__name__}: {error}"
        elif may_refuse and _is_refusal(error, implementation):
            outcome, message = _refused(error)
        else:
            raise
    if watch.faults:
        # the cause of everything else that is wrong
        message = "; ".join(filter(None, (watch.faults[0].message, message)))
    if outcome is Outcome.OK and message is not None:
        outcome = Outcome.INCORRECT
    launch_count = watch.launch_count
    # what an implementation would have done after its refusal is not known
    if outcome is Outcome.UNSUPPORTED:
        launch_count = 0
    return report.model_copy(
        update={
            "outcome": outcome,
            "message": message,
            "baseline_missing": baseline.missing,
            "tensors": tensors,
            "faults": watch.faults,
            "launch_count": launch_count,
            "unknown_pointer_count": watch.unknown_pointer_count,
        }
    )


def _without_reference(
    report: CheckReport,
    prepared: PreparedCase,
    implementation: Implementation,
    launch: Callable[..., Any] | None,
    as_on_gpu: AsOnGpu,
    reason: str,
) -> CheckReport:
    """Watch the accesses of an implementation whose results cannot be compared."""
    unsupported = report.model_copy(update={"outcome": Outcome.UNSUPPORTED, "message": reason})
    watch = MemoryWatch()
    try:
        with GUARD.watching(watch):
            _run_in_interpreter(
                prepared=prepared,
                implementation=implementation,
                launch=launch,
                as_on_gpu=as_on_gpu,
            )
    except Exception:  # noqa: BLE001  a user's code raises anything
        if not watch.faults:
            return unsupported
    seen = unsupported.model_copy(
        update={
            "faults": watch.faults,
            "launch_count": watch.launch_count,
            "unknown_pointer_count": watch.unknown_pointer_count,
        }
    )
    if watch.faults:
        wrong = {"outcome": Outcome.INCORRECT, "message": watch.faults[0].message}
        return seen.model_copy(update=wrong)
    return seen


def _run_in_interpreter(
    prepared: PreparedCase,
    implementation: Implementation,
    launch: Callable[..., Any] | None,
    as_on_gpu: AsOnGpu,
) -> dict[str, torch.Tensor]:
    """Run as on a CPU; if the launcher cannot do that, as on a GPU."""
    try:
        return run_once(prepared, implementation, launch)
    except IncorrectResultError:
        raise
    except Exception as error:  # noqa: BLE001  a launcher raises many types
        forget_failed_imports()
        try:
            with as_on_gpu():
                return run_once(prepared, implementation, launch)
        except Exception as on_gpu_error:
            # within a kernel, the launcher had passed what it cannot do on a CPU
            if kernel_error(on_gpu_error) is not on_gpu_error:
                raise on_gpu_error from None
            raise error from None


def _has_dependent_inputs(
    prepared: PreparedCase,
    implementation: Implementation,
    layout: Layout | None,
) -> bool:
    """Whether torch code gives another result than the reference at the values of an expanded
    input, dense ones too: it reads an input from which the spec derived that one.
    """
    if layout is None or layout.arrangement is not Arrangement.EXPANDED:
        return False
    if implementation.language is not Language.TORCH:
        return False
    inputs = {name: _dense(value) for name, value in prepared.inputs.items()}
    dense = replace(
        prepared,
        inputs=inputs,
        upstream=replace(prepared.upstream, lay_out=torch.Tensor.contiguous),
    )
    outputs = run_once(dense, implementation)
    reports = compare_with_reference(dense, outputs, Baseline())
    return worst_message(reports) is not None


def _dense(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone(memory_format=torch.contiguous_format)
    return copy.requires_grad_(value.requires_grad)


def _in_layout(
    prepared: PreparedCase,
    implementation: Implementation,
    cache: CheckCache,
    layout: Layout,
) -> tuple[PreparedCase, Baseline]:
    """The case in another layout, with the baseline to compare it with."""
    if layout.arrangement is not Arrangement.EXPANDED:
        return in_layout(prepared, layout), cache.baseline(prepared, implementation)
    # its values differ, so it has a reference and a baseline of its own
    change = partial(in_layout, layout=layout)
    return cache.vary(
        prepared=prepared,
        implementation=implementation,
        change=change,
        name=f"{layout.tensor} expanded",
    )


def _in_fair_regime(
    prepared: PreparedCase,
    implementation: Implementation,
    cache: CheckCache,
    regime: Regime,
) -> tuple[PreparedCase, Baseline]:
    """The case with other values, and its baseline.

    Raises:
        _NotTriedError: a right implementation may fail there.
    """
    change = partial(in_regime, regime=regime)
    try:
        varied, baseline = cache.vary(
            prepared=prepared,
            implementation=implementation,
            change=change,
            name=regime,
        )
        # it runs on the same CPU as the spec's torch implementation, and no more accurately
        is_rival = implementation.language is Language.TORCH and bool(baseline.dtypes)
        least_limits = _least_limits(varied, baseline, as_gpu=not is_rival)
    except UnfairError as error:
        raise _NotTriedError(str(error)) from error
    except Exception as error:  # a reference that does not allow these values
        raise _NotTriedError(f"the reference: {type(error).__name__}: {error}") from error
    return varied, replace(baseline, least_limits=least_limits)


def _least_limits(prepared: PreparedCase, baseline: Baseline, *, as_gpu: bool) -> dict[str, Errors]:
    """The limits that a right implementation needs at other values, with `as_gpu` of one that
    rounds as a GPU does, where PyTorch on a CPU need not be accurate.

    Raises:
        UnfairError: a right implementation may fail.
    """
    for name, expected in prepared.expected.items():
        if bool(expected.isnan().any()):
            raise UnfairError(f"{name} of the reference has NaN")
    accurate = _accurate_baseline(prepared, baseline, as_gpu=as_gpu)
    return limits_of_few(
        prepared=prepared,
        dtypes=accurate.dtypes,
        compare=lambda case, outputs: compare_with_reference(case, outputs, baseline),
    )


def _accurate_baseline(prepared: PreparedCase, baseline: Baseline, *, as_gpu: bool) -> Baseline:
    """A baseline within the tolerance.

    Raises:
        UnfairError: PyTorch is not accurate enough at these values.
    """
    launch = prepared.spec.reference
    eager = f"the reference in {prepared.case.dtype}"
    if baseline.dtypes:
        launch = prepared.spec.implementations[BASELINE_NAME].launch
        eager = "the torch implementation"
    else:
        # without one, the reference in the case's own dtype shows what can be expected
        baseline = measure_baseline(prepared, launch, eager)
    try:
        _require_accurate(prepared, baseline, eager)
    except UnfairError:
        if prepared.device != "cpu" or not as_gpu:
            raise
        with GpuRounding():
            baseline = measure_baseline(prepared, launch, eager)
        _require_accurate(prepared, baseline, eager)
    return baseline


def _require_accurate(prepared: PreparedCase, baseline: Baseline, eager: str) -> None:
    """Refuse a regime in which torch itself is beyond the spec's tolerance."""
    if baseline.missing is not None:
        raise UnfairError(baseline.missing)
    if baseline.errors.keys() != prepared.expected.keys():
        raise UnfairError(f"{eager} has NaN or infinity where the reference has none")
    for name, errors in baseline.errors.items():
        limit = prepared.spec.tolerance(prepared.case, name_of(baseline.dtypes[name]))
        if errors.elementwise > limit.elementwise or errors.rmse_ratio > limit.rmse_ratio:
            raise UnfairError(f"{eager} is not accurate enough for {name}")


def _is_refusal(error: Exception, implementation: Implementation) -> bool:
    """Whether an implementation refused a layout rather than failed; torch refuses with a
    RuntimeError.
    """
    if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return False
    return isinstance(error, _REFUSALS) or (
        implementation.language is Language.TORCH and type(error) is RuntimeError
    )


def _refused(error: Exception) -> tuple[Outcome, str]:
    """The outcome of a refused layout, which must say what to do instead."""
    reason = str(error).strip() or _asserted_layout(error)
    if reason is None:
        return (
            Outcome.INCORRECT,
            f"refuses with {type(error).__name__} without a message; say what to call instead",
        )
    return Outcome.UNSUPPORTED, f"refuses: {reason[:_MAX_REFUSAL_CHARACTERS]}"


def _asserted_layout(error: Exception) -> str | None:
    """A bare assertion that a tensor is contiguous, which says what to call instead."""
    frame = frame_in_user_code(error)
    if frame is None or frame.line is None or "is_contiguous" not in frame.line:
        return None
    return f"{frame.line} ({short_path(frame.filename)}:{frame.lineno})"
