"""Redacted copies of real files: names of machines and people are gone, measurements stay."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.outbox.artefact_folder import redact_file
from roofwatch.collector.profiling.profile_file import read_profile, redact_profile
from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError
from roofwatch.model.errors import ProfileError

DATA = Path(__file__).parents[2] / "data" / "profiles"

SECRETS: dict[str, tuple[str, ...]] = {
    "alexnet_a100.json.gz": (),
    "bert_small_h100.json.gz": (
        "a39ca6b8f513", "/app/moca", "/tmp/tmpnscmpj6q", "/root", "started_by", "docker.io", "absl-py",
    ),
    "copy_blocked_details.csv": ("127.0.0.1", "python3.11", '"6153"'),
    "cupti_profiler_a100.json.gz": (),
    "gemm_mi300.json": (),
    "multi_stream_events_a100.json.gz": ("3727853:3727853 Cupti",),
    "nccl_ddp_a100.json.gz": ("/tmp/tmpu3g3sevh", "2910249:2910249 Cupti"),
    "nsfw_vit_h100.json.gz": (
        "aa2954385ef7", "/app/moca", "/tmp/tmp0hvl7uc7", "/root", "started_by", "docker.io", "absl-py",
    ),
    "power_iteration.sqlite": (
        "94b8b7b3215f", "/content", "172.28.0", "1gleq0JJdzYGGG5y", "cc48301118ce562b", "COLAB_", "HOME=",
        "5c9a5380-d76d", "9293a492-51a5", "jupyter-noteboo", "docker-init", "quadd_session", "/root",
        "169.254.169.253", "gpu-t4-s-", "colab-fileshim", "/tmp/nvidia", "mp.kaggle.net",
    ),
    "resnet50_v100_torch19.json.gz": ("yangu", "/home/", "anaconda3"),
    "sgemm_metrics.csv": ("127.0.0.1", "a.out", '"17333"'),
    "sgemm_raw_page.csv": ("127.0.0.1", "a.out"),
    "simple_add_a100.json": (),
    "triton_a100.json.gz": ("bcoutinho", "/tmp/torchinductor", "1670242:1670242 Cupti"),
}  # fmt: skip
"""Names of machines, people and folders in each file of `tests/data/profiles`."""

PATHS_OF_PACKAGES = {
    "resnet50_v100_torch19.json.gz": (
        b"site-packages/torch/optim/optimizer.py(216): zero_grad;resnet50_profiler_api.py(49)"
    ),
}
"""Paths in call stacks that must stay."""


def content(path: Path) -> bytes:
    packed = path.read_bytes()
    return gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed


def test_the_secrets_are_those_of_every_file_that_can_be_redacted() -> None:
    kept = {"README.md", "manifest.json", "expected.json", "sgemm_profile.ncu-rep"}
    assert SECRETS.keys() == {path.name for path in DATA.iterdir()} - kept
    for name, secrets in SECRETS.items():
        original = content(DATA / name)
        assert [secret for secret in secrets if secret.encode() not in original] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_survives_without_a_change_of_the_analysis(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    redact_profile(DATA / name, copy, Redaction())

    redacted = content(copy)
    assert [secret for secret in SECRETS[name] if secret.encode() in redacted] == []
    assert PATHS_OF_PACKAGES.get(name, b"") in redacted
    assert analysed(copy) == analysed(DATA / name)


def analysed(path: Path) -> dict[str, Any]:
    """The summary of a file; the folder of `traceName` is redacted."""
    profile = read_profile(path)
    top_level = profile.get("top_level", {})
    if "traceName" in top_level:
        profile["top_level"] = top_level | {"traceName": Path(top_level["traceName"]).name}
    return profile


def test_values_with_a_telling_key_are_redacted_wherever_they_occur(tmp_path: Path) -> None:
    arguments = {
        "hostname": "gpu-7",
        "user_name": "bob",
        "api_token": "abc",
        "HOME": "somewhere",
        "SLURM_JOB_ID": "42 on rack 3",
        "argv": ["train.py", "--password", "hunter2", "--lr", "1"],
        "env": {"AWS_REGION": "eu-7", "OMP_NUM_THREADS": "2"},
        "stream": 7,
    }
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "by bob on gpu-7",
        "ts": 1,
        "dur": 1,
        "args": arguments,
    }
    trace, copy = tmp_path / "trace.json", tmp_path / "copy.json"
    trace.write_text(json.dumps({"traceEvents": [event]}))

    redact_profile(trace, copy, Redaction())

    (redacted,) = json.loads(copy.read_text())["traceEvents"]
    assert redacted == event | {
        "name": "by <user> on <host>",
        "args": {
            "hostname": "<host>",
            "user_name": "<user>",
            "api_token": "<secret>",
            "HOME": "<removed>",
            "SLURM_JOB_ID": "<removed>",
            "argv": ["train.py", "--password", "<secret>", "--lr", "1"],
            "env": {"AWS_REGION": "<removed>", "OMP_NUM_THREADS": "2"},
            "stream": 7,
        },
    }


@pytest.mark.parametrize(
    "name", ["triton_a100.json.gz", "sgemm_metrics.csv", "power_iteration.sqlite"]
)
def test_a_file_that_keeps_everything_reads_the_same(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    done = redact_profile(DATA / name, copy, Redaction(kept_kinds=EVERYTHING))
    assert done.removed == ()
    assert read_profile(copy) == read_profile(DATA / name)
    assert [secret for secret in SECRETS[name] if secret.encode() not in content(copy)] == []


def test_output_of_the_program_before_the_table_is_emptied(tmp_path: Path) -> None:
    original = tmp_path / "original.csv"
    original.write_bytes(
        b"loss of alice's run: 3\n==PROF== Connected to /home/alice/a.out\n"
        + content(DATA / "sgemm_metrics.csv")
    )
    copy = tmp_path / "copy.csv"
    redact_profile(original, copy, Redaction())
    assert "alice" not in copy.read_text()
    assert read_profile(copy) == read_profile(original)


def test_nothing_that_was_removed_is_left_in_unused_pages(tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    redact_profile(DATA / "power_iteration.sqlite", copy, Redaction())
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM PROCESSES").fetchone() == (0,)


def test_a_report_of_nsight_compute_is_refused_with_the_way_that_works(tmp_path: Path) -> None:
    with pytest.raises(
        RedactionError, match=r"cannot be redacted.*--page raw --csv, and redact that"
    ):
        redact_profile(DATA / "sgemm_profile.ncu-rep", tmp_path / "copy", Redaction())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["alexnet_a100.json.gz", "power_iteration.sqlite"])
def test_a_file_that_is_cut_short_is_refused_without_a_copy(name: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes((DATA / name).read_bytes()[:20_000])
    with pytest.raises(ProfileError, match="not a whole"):
        redact_file(cut, tmp_path / "copy", Redaction())
    assert [path.name for path in tmp_path.iterdir()] == ["cut"]
