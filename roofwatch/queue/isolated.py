"""The process in which a runner carries out a command: isolated, then `roofwatch`.

python -m roofwatch.queue.isolated NETWORK FOLDER WRITABLE[:WRITABLE] COMMAND...
"""

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path

from roofwatch.collector.workers.program_sandbox import isolate_program

EXIT_NOT_ISOLATED = 125
"""The machine denies a layer of the isolation."""


def main() -> None:
    """Isolate this process, and become `roofwatch COMMAND...` in a folder."""
    network, folder, writable, *command = sys.argv[1:]
    if network != "unisolated":
        try:
            isolate_program(
                writable.split(":"),
                # HOME is the job's
                home=Path(pwd.getpwuid(os.getuid()).pw_dir),
                has_network=network == "network",
            )
        except OSError as error:
            print(f"roofwatch: cannot isolate the job: {error}", file=sys.stderr)
            raise SystemExit(EXIT_NOT_ISOLATED) from None
    # if the machine runs out of memory, the kernel ends the job and not the runner
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.chdir(folder)
    roofwatch = [sys.executable, "-P", "-m", "roofwatch", *command]
    os.execv(sys.executable, roofwatch)  # noqa: S606  no shell is meant


if __name__ == "__main__":
    main()
