"""The device and the environment of a run, without host name, user name or paths."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

from roofwatch.collector.device.nvml import NvmlDevice, NvmlError
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Environment

_NAME = re.compile(r"cpu|cuda(?::(\d+))?")


def choose_device(requested: str | None) -> str:
    """Choose the device of a process, by torch's name; None takes a GPU if torch sees one, else the
    CPU.

    Raises:
        CollectorError: the device does not exist.
    """
    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    name = _NAME.fullmatch(requested)
    if name is None:
        raise CollectorError(
            f"--device {requested}: choose cpu or cuda; the default is a GPU if there is one"
        )
    if requested == "cpu":
        return requested
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
    else:
        count = 0
    # the reason tells whether to install another torch
    if not count:
        reason = (
            "no driver, a driver that does not fit this build, or CUDA_VISIBLE_DEVICES hides them"
        )
        if torch.version.cuda is None and torch.version.hip is None:
            reason = "this build is for CPUs only"
        raise CollectorError(
            f"--device {requested}: torch sees no GPU here ({reason}); "
            "--device cpu measures without one"
        )
    if int(name[1] or 0) >= count:
        raise CollectorError(
            f"--device {requested}: torch sees {count} GPUs here, the last one is cuda:{count - 1}"
        )
    return requested


_KNOB_PREFIXES = (
    "TRITON_",
    "TORCHINDUCTOR_",
    "PTXAS_",
    "OMP_",
    "MKL_",
    "CUDA_LAUNCH_BLOCKING",
    "CUBLAS_",
)
_NOT_KNOBS = ("_DIR", "_PATH", "_HOME")


def collect_environment(device: str) -> Environment:
    """Describe this machine and toolchain, with `cpu` or `cuda` (torch's name for AMD GPUs too)."""
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
    # a CPU has none of the facts below
    if not device.startswith("cuda"):
        return Environment(
            **common,
            device_kind="cpu",
            device_name=cpu_name(),
            device_memory_bytes=_total_memory_bytes(),
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    device_kind = "cuda"
    if torch.version.hip:
        device_kind = "hip"
    return Environment(
        **common,
        device_kind=device_kind,
        device_name=properties.name,
        device_memory_bytes=properties.total_memory,
        device_count=torch.cuda.device_count(),
        compute_capability=f"{properties.major}.{properties.minor}",
        **_nvml_facts(device_uuid(device)),
    )


def device_uuid(device: str) -> str | None:
    """UUID of the GPU that torch uses, or its PCI address if torch does not report the UUID; None
    on a CPU.
    """
    if not device.startswith("cuda"):
        return None
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if getattr(properties, "uuid", None) is not None:
        return str(properties.uuid)
    if hasattr(properties, "pci_bus_id"):
        bus_id = properties.pci_bus_id
        device_id = properties.pci_device_id
        return f"{properties.pci_domain_id:08X}:{bus_id:02X}:{device_id:02X}.0"
    return None


def cpu_name() -> str:
    """The name of the CPU as Linux gives it."""
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
    except ImportError:  # not a dependency of CPU builds of torch
        return None
    return str(triton.__version__)


def _compile_knobs() -> dict[str, str]:
    """Environment variables that change compiled code or its timing; folders do not."""
    return {
        name: value[:200]
        for name, value in sorted(os.environ.items())
        if name.startswith(_KNOB_PREFIXES) and not name.endswith(_NOT_KNOBS)
    }


def _nvml_facts(uuid: str | None) -> dict[str, Any]:
    """Facts of the device; none without NVML."""
    try:
        with NvmlDevice(uuid) as device:
            return device.facts()
    except NvmlError:
        return {}
