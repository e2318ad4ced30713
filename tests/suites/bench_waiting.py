"""Four kernels that note when they are first called, and return once they are let go."""

import os
import time
from pathlib import Path

from plus_one import declare

FOLDER = Path(os.environ.get("ROOFWATCH_TEST_FOLDER", "."))


def waiting_kernel(number: int):
    was_called = False

    def launch(x):
        nonlocal was_called
        if not was_called:
            was_called = True
            with (FOLDER / "calls").open("a") as calls:
                calls.write(f"waiting{number}\n")
            while not (FOLDER / f"go{number}").exists():
                time.sleep(0.01)
        return x + 1

    return declare(f"waiting{number}", launch)


waiting0, waiting1, waiting2, waiting3 = map(waiting_kernel, range(4))
