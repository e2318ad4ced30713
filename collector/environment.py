"""Fingerprint of what a run was measured on: device, driver, toolchain. No host name, user name or path."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from roofwatch.collector.device.nvml import DeviceFacts, NvmlDevice, NvmlError
from roofwatch.collector.record.machine import Environment

_KNOB_PREFIXES = ("TRITON_", "TORCHINDUCTOR_", "PTXAS_", "OMP_", "MKL_", "CUDA_LAUNCH_BLOCKING", "CUBLAS_")
_NOT_KNOBS = ("_DIR", "_PATH", "_HOME")


def collect_environment(device: str) -> Environment:
    """Describe this machine and toolchain.

    Args:
        device: `cpu` or `cuda` (torch's name for NVIDIA and AMD GPUs alike).
    """
    common = {
        "cpu_name": cpu_name(),
        "core_count": os.cpu_count() or 1,
        "thread_count": torch.get_num_threads(),
        "os": f"{platform.system()} {platform.release()}",
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "triton_version": _triton_version(),
        "cuda_version": torch.version.cuda or torch.version.hip,
        "compile_knobs": _compile_knobs(),
    }
    if not device.startswith("cuda"):
        return Environment(
            **common, device_kind="cpu", device_name=cpu_name(), device_memory_bytes=_total_memory_bytes()
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts = _nvml_facts(device_uuid(device))
    return Environment(
        **common,
        device_kind="hip" if torch.version.hip else "cuda",
        device_name=properties.name,
        device_memory_bytes=properties.total_memory,
        device_count=torch.cuda.device_count(),
        power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        compute_capability=f"{properties.major}.{properties.minor}",
        is_persistence_on=facts.is_persistence_on,
        is_ecc_on=facts.is_ecc_on,
        is_mig_on=facts.is_mig_on,
    )


def device_uuid(device: str) -> str | None:
    """Of the GPU that torch uses, whatever CUDA_VISIBLE_DEVICES makes of its number; None of a CPU."""
    if not device.startswith("cuda"):
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return None if uuid is None else str(uuid)


def cpu_name() -> str:
    """Model name as the kernel reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown CPU"


def _total_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:  # a CPU build of torch does not bring it
        return None
    return str(triton.__version__)


def _compile_knobs() -> dict[str, str]:
    """Environment settings that change compiled code or its timing; folders are left out, they change neither."""
    return {
        name: value[:200]
        for name, value in sorted(os.environ.items())
        if name.startswith(_KNOB_PREFIXES) and not name.endswith(_NOT_KNOBS)
    }


def _nvml_facts(uuid: str | None) -> DeviceFacts:
    try:
        with NvmlDevice(uuid) as device:
            return device.facts()
    except NvmlError:
        return DeviceFacts()
