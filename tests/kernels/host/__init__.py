"""CUDA C++ kernels on a machine without a GPU: compiled as C++ and run thread by thread, to check
what they compute.
"""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from roofwatch import CudaKernel

COMPILER = shutil.which("g++")
_HEADERS = Path(__file__).parent


@dataclass
class Host:
    """Takes the place of an NVIDIA GPU.

    Args:
        folder: For what is compiled.
    """

    folder: Path
    _libraries: dict[str, Any] = field(default_factory=dict)

    def launch(
        self,
        kernel: CudaKernel,
        grid: int,
        block: int,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        device: Any = None,  # noqa: ARG002  CudaKernel's signature
    ) -> None:
        """What `CudaKernel.launch` does, on tensors in the CPU's memory."""
        assert not shared_bytes
        values = [_c_value(arg) for arg in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._library(kernel).launch(grid, block, pointers)

    def _library(self, kernel: CudaKernel) -> Any:
        if kernel.expression not in self._libraries:
            assert COMPILER is not None
            file = self.folder / f"{hashlib.sha256(kernel.expression.encode()).hexdigest()[:16]}.so"
            source = (
                f'#include "{kernel.source}"\n'
                'extern "C" void launch(unsigned grid, unsigned block, void** arguments) {\n'
                f"  launch_on_host<{kernel.expression}>(grid, block, arguments);\n"
                "}\n"
            )
            options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing", "-w"]
            headers = ["-I", str(_HEADERS), "-include", "cuda_on_host.h"]
            subprocess.run(
                [COMPILER, *options, *headers, "-x", "c++", "-", "-o", str(file)],
                input=source,
                text=True,
                check=True,
            )
            self._libraries[kernel.expression] = ctypes.CDLL(str(file))
        return self._libraries[kernel.expression]


def _c_value(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor):
        assert arg.device.type == "cpu"
        return ctypes.c_void_p(arg.data_ptr())
    return ctypes.c_float(arg) if isinstance(arg, float) else ctypes.c_longlong(arg)
