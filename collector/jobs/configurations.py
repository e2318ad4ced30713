"""Compiles a case in each of the configurations that may be chosen for it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from roofwatch.collector.compile.static import compile_autotuned, compile_case
from roofwatch.collector.jobs.case_call import failure_of
from roofwatch.model.errors import ToolchainError
from roofwatch.model.results import StaticFacts
from roofwatch.model.tuning import ConfiguredCode
from roofwatch.spec import Case, Implementation, KernelSpec


def compile_configurations(
    spec: KernelSpec, implementation: Implementation, case: Case, target: str
) -> tuple[ConfiguredCode, ...]:
    """Compile the configurations of the spec, or else those of the autotuned functions.

    Empty if there are neither.

    Raises:
        TargetError: the target is unknown.
        ToolchainError: a compiler or disassembler is missing.
        Exception: any exception that an implementation without `configs=` raises.
    """
    if implementation.configs:
        return tuple(_of_spec(spec, implementation, case, target))
    codes: list[ConfiguredCode] = []
    for tuned, facts in compile_autotuned(spec, implementation, case, target):
        code = ConfiguredCode(
            function=tuned.name, configuration=tuned.configuration, facts=(facts,)
        )
        # one call may launch the function with several specialisations
        is_known = codes and codes[-1].configuration == code.configuration
        if is_known and codes[-1].function == code.function:
            codes[-1] = code.model_copy(update={"facts": (*codes[-1].facts, facts)})
        else:
            codes.append(code)
    return tuple(codes)


def _of_spec(
    spec: KernelSpec, implementation: Implementation, case: Case, target: str
) -> Iterator[ConfiguredCode]:
    for configuration in implementation.configs:
        launch = partial(implementation.launch, **configuration)
        try:
            facts = compile_case(spec, replace(implementation, launch=launch), case, (target,))
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
        yield ConfiguredCode(configuration=dict(configuration), facts=tuple(facts))
