"""How long it takes to store one record: `PYTHONPATH=. python bench/ingest.py [--cases 2000] [--rounds 5]`.

Each round stores a full record of a new run in the embedded server, with cases that are known after the first round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.full_record import make_record
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record

TARGET_S = 3.0
"""For 2,000 cases on two cores."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        seconds = []
        for number in range(arguments.rounds + 1):
            record = make_record(number, arguments.cases)
            started = time.monotonic()
            ingest_record(engine, record)
            seconds.append(time.monotonic() - started)
    first, *others = seconds
    print(f"{arguments.cases} cases: first {first:.2f} s, then median {statistics.median(others):.2f} s", end="")
    print(f", {statistics.median(others) / TARGET_S:.2f} of the target of {TARGET_S:.0f} s")


if __name__ == "__main__":
    main()
