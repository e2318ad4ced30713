"""Steps planted in the noise of histories, and the oracles that are told it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.history_limits import around_running_median, print_steps_in_histories

COUNT = 123


def test_where_noise_hides_no_step_ours_and_every_oracle_find_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    history = 1_000 * np.exp(rng.normal(0, 3e-4, COUNT))
    stepped = history.copy()
    stepped[60:] *= 1.05
    real = tmp_path / "data" / "real"
    real.mkdir(parents=True)
    (real / "gpu_raw.jsonl").write_text(json.dumps({"id": "quiet", "values": history.tolist()}))
    rows = [
        {
            "values": values.tolist(),
            "annotations": {"truth": steps},
            "directions": dict.fromkeys(map(str, steps), 1),
            "tags": {"noise_of": "quiet", "steps": [0.05] * len(steps)},
        }
        for values, steps in ((stepped, [60]), (history, []))
    ]
    (real / "gpu_injected.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    print_steps_in_histories(tmp_path, rng)

    given, made = capsys.readouterr().out.splitlines()[-2:]
    assert given.count("1.00 (1.00 / 1.00), 0.00") == made.count("1.00 (1.00 / 1.00), 0.00") == 4


def test_what_lies_around_the_running_median_has_no_step() -> None:
    logs = np.random.default_rng(2).normal(0, 0.01, COUNT)
    logs[60:] += 1.0

    around = around_running_median(logs)

    assert np.abs(around).max() < 0.05
    assert around.std() == pytest.approx(0.01, rel=0.2)
