"""Compiles a case in each of the configurations that may be chosen for it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from roofwatch.collector.compile.static import compile_autotuned, compile_case
from roofwatch.collector.jobs.case_call import failure_of
from roofwatch.model.errors import ToolchainError
from roofwatch.model.results import StaticFacts
from roofwatch.model.tuning import ConfiguredCode
from roofwatch.spec import Case, Implementation, KernelSpec


def compile_configurations(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    configurations: Sequence[Mapping[str, str | int | float | bool | None]],
) -> tuple[ConfiguredCode, ...]:
    """Compile given configurations, or else those of the autotuned functions.

    Empty if there are neither.

    Raises:
        TargetError: the target is unknown.
        ToolchainError: a compiler or disassembler is missing.
        Exception: any exception that an implementation raises without configurations.
    """
    if configurations:
        return tuple(
            _compile(
                spec=spec,
                implementation=implementation,
                case=case,
                target=target,
                configuration=configuration,
            )
            for configuration in configurations
        )
    codes: list[ConfiguredCode] = []
    for tuned, facts in compile_autotuned(
        spec=spec,
        implementation=implementation,
        case=case,
        target=target,
    ):
        code = ConfiguredCode(
            function=tuned.name,
            configuration=tuned.configuration,
            facts=(facts,),
        )
        # one call may launch the function with several specialisations
        last = None
        if codes:
            last = codes[-1]
        if (
            last is None
            or last.function != code.function
            or last.configuration != code.configuration
        ):
            codes.append(code)
        else:
            codes[-1] = code.model_copy(update={"facts": (*last.facts, facts)})
    return tuple(codes)


def _compile(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    configuration: Mapping[str, str | int | float | bool | None],
) -> ConfiguredCode:
    """Compile a case in one configuration; a refusal is a result too."""
    parameters = inspect.signature(implementation.launch).parameters
    # a table may be older than the launcher
    unknown = tuple(name for name in configuration if name not in parameters)
    arguments = {name: configuration[name] for name in configuration if name not in unknown}
    launch = partial(implementation.launch, **arguments)
    try:
        facts = compile_case(
            spec=spec,
            implementation=replace(implementation, launch=launch),
            case=case,
            targets=(target,),
        )
    except ToolchainError:
        raise
    except Exception as error:  # noqa: BLE001  a launcher may refuse a configuration
        failure = failure_of(error)
        facts = [
            StaticFacts(
                case_id=case.id,
                implementation=implementation.name,
                function=implementation.name,
                target=target,
                outcome=failure.outcome,
                message=failure.message,
            )
        ]
    return ConfiguredCode(
        configuration=dict(configuration),
        facts=tuple(facts),
        unknown=unknown,
    )
