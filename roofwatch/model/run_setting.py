"""Software and machine of a run, from its environment. Values only."""

from typing import Any

from roofwatch.model.history import RunSetting

_VERSIONS = ("torch_version", "triton_version", "cuda_version", "python_version")
_MACHINE = (
    "os",
    "cpu_name",
    "core_count",
    "thread_count",
    "device_count",
    "clock_mode",
    "locked_sm_clock_mhz",
    "is_persistence_on",
    "is_ecc_on",
    "is_mig_on",
)


def setting_of(environment: Any, harness_version: str) -> RunSetting:
    """Summarise what a run was measured with.

    Args:
        environment: Of a record or of the database: both have the same fields.
        harness_version: Version of the measuring code.
    """
    toolchain: dict[str, str] = {}
    for name in _VERSIONS:
        version = getattr(environment, name)
        if version is not None:
            toolchain[name.removesuffix("_version")] = str(version)
    for name, value in environment.compile_knobs.items():
        toolchain[name] = str(value)
    machine: list[tuple[str, str]] = []
    for name in _MACHINE:
        value = getattr(environment, name)
        if value is not None:
            machine.append((name.replace("_", " "), str(value)))
    return RunSetting(
        harness_version=harness_version,
        driver_version=environment.driver_version,
        compute_capability=environment.compute_capability,
        toolchain=tuple(sorted(toolchain.items())),
        machine=tuple(machine),
    )
