"""Submit every attack and every honest candidate of tests/data/submit, and count the verdicts.

Run: python bench/submit_attacks.py [REPEATS] [PATTERN]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from roofwatch.collector.errors import CollectorError
from roofwatch.measurement.submissions import Request
from roofwatch.measurement.submit import submit

CANDIDATES = Path(__file__).parent.parent / "tests" / "data" / "submit"
SPEC = "bench_candidates.py"


def make_repository(folder: Path) -> Path:
    """Commit the spec into a new repository."""
    folder.mkdir()
    shutil.copy(CANDIDATES / SPEC, folder)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "--message", "The spec")):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return folder


def main(repeats: int, pattern: str) -> int:
    """Print a row per candidate; the status is 1 if an attack is faster or an honest candidate is rejected."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="roofwatch-attacks-") as name:
        os.environ["ROOFWATCH_DATA_DIR"] = f"{name}/data"
        repository = make_repository(Path(name) / "repository")
        for file in sorted(CANDIDATES.glob(pattern)):
            if file.name == SPEC:
                continue
            verdicts: Counter[str] = Counter()
            reason, longest_s = "", 0.0
            for _ in range(repeats):
                shutil.rmtree(f"{name}/data", ignore_errors=True)
                candidate = repository / "candidate.py"
                shutil.copyfile(file, candidate)
                kernel = "accumulate" if "in_place" in file.name else "centred"
                began_s = time.monotonic()
                try:
                    result = submit(Request(candidate, repository / SPEC, kernel=kernel))
                    verdict, reason = str(result.verdict), result.reason
                except CollectorError as error:
                    verdict, reason = "refused", str(error)
                longest_s = max(longest_s, time.monotonic() - began_s)
                verdicts[verdict] += 1
            wrong = {"faster"} if file.name.startswith("attack") else {"incorrect", "invalid", "refused", "error"}
            bad += sum(verdicts[verdict] for verdict in wrong)
            counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            print(f"{file.stem:32} {counts:44} {longest_s:5.1f} s  {reason[:100]}", flush=True)
    print(f"{bad} wrong verdicts")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2] if len(sys.argv) > 2 else "*.py"))
