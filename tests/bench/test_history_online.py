"""Steps that come up in the noise of histories, and the oracles that are told it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.history_online import print_online_in_histories

COUNT = 123


def test_where_noise_hides_no_step_all_are_soon_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    history = 1_000 * np.exp(rng.normal(0, 3e-4, COUNT))
    real = tmp_path / "data" / "real"
    real.mkdir(parents=True)
    (real / "gpu_raw.jsonl").write_text(json.dumps({"id": "quiet", "values": history.tolist()}))
    (real / "gpu_injected.jsonl").write_text(json.dumps({"tags": {"noise_of": "quiet"}}))

    print_online_in_histories(tmp_path, rng)

    told = capsys.readouterr().out.splitlines()[-1]
    assert told.count(" 1.00 / 1.00 ") == 3
    assert told.endswith("| 0.0, 0.0, 0.0 |")
