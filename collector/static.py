"""Compile what an implementation launches, for devices that are not there, and read the facts off the binary.

The implementation is called on CPU tensors while Triton believes that the target's device is present: every launch
is compiled with just the argument specialisation that it would get at run time (divisibility by 16, equality to 1,
constexprs), and none is run. Source: `JITFunction.warmup` does the same for a device that is there.

Binaries are compiled without line information, so that comments and moves leave the machine code's hash equal.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from collector.accuracy import (
    differentiable,
    differentiated_names,
    make_inputs,
    outputs_by_name,
)
from collector.record import Outcome, StaticFacts
from collector.targets import DEFAULT_TARGETS, parse_target
from roofwatch.spec import Case, Implementation, KernelSpec

_OPTION_NAMES = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "enable_fp_fusion")
_MAX_MESSAGE = 2_000
_LINE_INFORMATION = "TRITON_DISABLE_LINE_INFO"


@dataclass
class _Launch:
    """One jitted function as it was launched; `kernel` is None where it did not compile."""

    function: str
    configuration: dict[str, str | int | float | bool | None]
    kernel: Any = None
    error: str | None = None


@dataclass
class _Capture:
    launches: list[_Launch] = field(default_factory=list)


class _TargetDriver:
    """What Triton asks of a driver until it launches: which device there is."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def compile_case(
    spec: KernelSpec, implementation: Implementation, case: Case, targets: Sequence[str] = DEFAULT_TARGETS
) -> list[StaticFacts]:
    """Compile every jitted function that one call of the case launches, for each target.

    In the `bwd` direction only what the backward pass launches counts; the forward pass has its own case.

    Raises:
        Exception: whatever the implementation raises outside of Triton's compiler.
    """
    facts: list[StaticFacts] = []
    # nothing reads the numbers, only sizes, strides and alignment count
    inputs = make_inputs(spec, case, "cpu", only_integers=True)
    for target in targets:
        if target in implementation.unsupported_targets:
            facts.append(
                StaticFacts(
                    case_id=case.id,
                    implementation=implementation.name,
                    function=implementation.name,
                    target=target,
                    outcome=Outcome.UNSUPPORTED,
                    message=f"{target} {implementation.unsupported_targets[target]}",
                )
            )
            continue
        launches = _capture(spec, implementation, case, target, inputs)
        if not launches:
            facts.append(
                StaticFacts(
                    case_id=case.id,
                    implementation=implementation.name,
                    function=implementation.name,
                    target=target,
                    outcome=Outcome.UNSUPPORTED,
                    message="launches no Triton kernel",
                )
            )
        facts.extend(_facts(case, implementation, target, launch) for launch in _distinct(launches))
    return facts


def _capture(
    spec: KernelSpec, implementation: Implementation, case: Case, target: str, inputs: dict[str, Any]
) -> list[_Launch]:
    with _compiling_for(target) as capture:
        outputs = outputs_by_name(implementation.launch(**inputs))
        names = differentiated_names(spec, case, inputs)
        if names:
            capture.launches.clear()
            roots = differentiable(outputs)
            torch.autograd.grad(
                roots,
                [inputs[name] for name in names],
                [torch.empty_like(output) for output in roots],
                allow_unused=True,
            )
    return capture.launches


@contextlib.contextmanager
def _compiling_for(target: str) -> Iterator[_Capture]:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    capture = _Capture()
    original_run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001  Triton's signature
        launch = _Launch(self.fn.__name__, {name: _plain(kwargs[name]) for name in _OPTION_NAMES if name in kwargs})
        capture.launches.append(launch)
        self.device_caches.clear()  # keyed by device number, which says nothing here
        try:
            launch.kernel = original_run(self, *args, grid=grid, warmup=True, **kwargs)
            launch.configuration.update(_configuration(self, args, kwargs, launch.kernel))
        except Exception as error:  # noqa: BLE001  the compiler raises many types; each is one target's outcome
            launch.error = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        finally:
            self.device_caches.clear()
        return launch.kernel

    def first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
        # which configuration wins can only be measured on the device; the first that may run stands for all
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        chosen = self.prune_configs(kwargs)[0] if len(self.configs) > 1 else self.configs[0]
        if chosen.pre_hook is not None:
            chosen.pre_hook({**self.nargs, **kwargs, **chosen.all_kwargs()})
        return self.fn.run(*args, **kwargs, **chosen.all_kwargs())

    wanted = parse_target(target)
    target_driver = _TargetDriver(GPUTarget(wanted.backend, wanted.arch, wanted.warp_size))
    with (
        _replaced(JITFunction, "run", compile_only),
        _replaced(Autotuner, "run", first_configuration),
        _replaced(driver, "_active", target_driver),
        _without_line_information(),
    ):
        yield capture


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _without_line_information() -> Iterator[None]:
    original = os.environ.get(_LINE_INFORMATION)
    os.environ[_LINE_INFORMATION] = "1"
    try:
        yield
    finally:
        if original is None:
            del os.environ[_LINE_INFORMATION]
        else:
            os.environ[_LINE_INFORMATION] = original


def _plain(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _configuration(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kernel: Any
) -> dict[str, str | int | float | bool | None]:
    given = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    constants = {
        parameter.name: _plain(given.get(parameter.name, parameter.default))
        for parameter in function.params
        if parameter.is_constexpr
    }
    options = {name: _plain(getattr(kernel.metadata, name)) for name in _OPTION_NAMES if hasattr(kernel.metadata, name)}
    return {**constants, **options}


def _distinct(launches: list[_Launch]) -> list[_Launch]:
    """One of each function and way of compiling it, numbered where a function is compiled in several ways."""
    kept: dict[tuple[str, str], _Launch] = {}
    for launch in launches:
        identity = launch.kernel.hash if launch.kernel is not None else str(launch.error)
        kept.setdefault((launch.function, identity), launch)
    seen: dict[str, int] = {}
    for launch in kept.values():
        seen[launch.function] = seen.get(launch.function, 0) + 1
        if seen[launch.function] > 1:
            launch.function = f"{launch.function}#{seen[launch.function]}"
    return list(kept.values())


def _facts(case: Case, implementation: Implementation, target: str, launch: _Launch) -> StaticFacts:
    common: dict[str, Any] = {
        "case_id": case.id,
        "implementation": implementation.name,
        "function": launch.function,
        "target": target,
        "configuration": launch.configuration,
    }
    if launch.kernel is None:
        return StaticFacts(**common, outcome=Outcome.COMPILE_ERROR, message=launch.error)
    read: Callable[[Any], dict[str, int | None]] = _nvidia_facts if "cubin" in launch.kernel.asm else _amd_facts
    binary: bytes = launch.kernel.asm["cubin" if "cubin" in launch.kernel.asm else "hsaco"]
    code = machine_code(binary)
    return StaticFacts(
        **common,
        outcome=Outcome.OK,
        **read(launch.kernel),
        shared_bytes=int(launch.kernel.metadata.shared),
        code_bytes=len(code),
        code_hash=hashlib.sha256(code).hexdigest(),
    )


_RESOURCE_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)")


def _nvidia_facts(kernel: Any) -> dict[str, int | None]:
    """Registers and local memory by `cuobjdump -res-usage`: what the driver would report after loading."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        listing = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = _RESOURCE_USAGE.search(listing)
    if found is None:
        raise ValueError(f"cuobjdump gave no resource usage but {listing[:200]!r}")
    return {
        "registers": int(found["registers"]),
        # spilled registers live on the stack; cuobjdump counts bytes only
        "local_bytes": int(found["stack"]) + int(found["local"]),
    }


def _amd_facts(kernel: Any) -> dict[str, int | None]:
    """Registers, spills and scratch by the directives and metadata that the assembler text carries."""
    text = kernel.asm["amdgcn"]

    def directive(name: str) -> int:
        found = re.search(rf"^\s*\.{name}:?\s+(\d+)\s*$", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"the amdgcn text has no .{name}")
        return int(found[1])

    return {
        "registers": directive("vgpr_count"),
        "spilled_registers": directive("vgpr_spill_count") + directive("sgpr_spill_count"),
        "local_bytes": directive("private_segment_fixed_size"),
    }


def machine_code(binary: bytes) -> bytes:
    """The instructions and constants of a cubin or hsaco: its `.text*` and bank-2-and-up `.nv.constant*` sections in
    file order, without the names, symbols and notes around them.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.

    Source: ELF-64 object file format, version 1.5; section names by cuobjdump and llvm-readelf.
    """
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table_offset,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, entry_count, names_index = struct.unpack_from("<HHH", binary, 0x3A)

    def section(index: int) -> tuple[int, int, int, int]:
        name, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", binary, table_offset + index * entry_size)
        return name, kind, offset, size

    _, _, names_offset, _ = section(names_index)
    code = bytearray()
    for index in range(entry_count):
        name_offset, kind, offset, size = section(index)
        start = names_offset + name_offset
        name = binary[start : binary.index(b"\0", start)].decode()
        if kind == 1 and re.match(r"\.text|\.nv\.constant[1-9]", name):  # 1: program data
            code += binary[offset : offset + size]
    return bytes(code)
