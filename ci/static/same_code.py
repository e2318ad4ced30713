"""Whether two runs had one toolchain, and ran the same machine code. Pure."""

from collections.abc import Iterable

from roofwatch.ci.judge.pairing import Pairing
from roofwatch.model.case_key import CaseKey
from roofwatch.model.machine import Environment
from roofwatch.model.results import StaticFacts


def toolchain_of(environment: Environment) -> dict[str, str]:
    """Return compiler versions and settings that hold for all functions of a run."""
    if environment.triton_version is None:
        versions = {}
    else:
        versions = {"triton": environment.triton_version}
    return {**versions, **environment.compile_knobs}


def has_one_toolchain(base: Environment, head: Environment) -> bool:
    """Whether equal sources mean equal code: compilers, their settings and torch are the same."""
    is_one_torch = base.torch_version == head.torch_version
    return is_one_torch and toolchain_of(base) == toolchain_of(head)


def is_same_machine_code(pairing: Pairing, key: CaseKey) -> bool:
    """Return whether the same machine code of an implementation ran on a GPU on both sides."""
    environment = pairing.head.environment
    # the interpreter and other releases of Triton run something else than this code
    if environment.device_kind == "cpu":
        return False
    if pairing.base.environment.triton_version != environment.triton_version:
        return False
    base, head = pairing.of(key)
    base_code = machine_code(pairing.base.environment, base.code)
    head_code = machine_code(environment, head.code)
    if not head_code:
        return False
    if base_code != head_code:
        return False
    return None not in head_code.values()


def machine_code(
    environment: Environment,
    functions: Iterable[StaticFacts],
) -> dict[tuple[str, str], str | None]:
    """Code hash of each compiled function by target and name, None if it failed.

    If the device's target was compiled, only its code counts; otherwise that of all targets.
    """
    codes = {(facts.target, facts.function): facts.code_hash for facts in functions}
    target = environment.compile_target
    # code for other targets did not run here
    of_device = {key: code for key, code in codes.items() if key[0] == target}
    return of_device or codes
