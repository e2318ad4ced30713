"""What a cubin tells a processor to do."""

import re
import subprocess
from pathlib import Path

import triton

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)")


def instructions(cubin: bytes, folder: Path) -> list[str]:
    """The instructions' names with their suffixes, such as `LDG.E.128.CONSTANT`."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    listing = subprocess.run(
        [triton.knobs.nvidia.cuobjdump.path, "-sass", str(file)], capture_output=True, text=True, check=True
    ).stdout
    return _INSTRUCTION.findall(listing)
