"""What is taken out of text, records and replies, and what analysis needs and stays."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError, parse_kinds, redact
from roofwatch.collector.redaction_patterns import Kind
from roofwatch.collector.runs.journal import ALONE, Journal, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import Progress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import check_suite
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import SamplingPlan
from tests.builders import (
    CASE_ID,
    make_activity,
    make_environment,
    make_measurement,
    make_profile,
    make_record,
)
from tests.collector.conftest import by_kernel, suite_of

HERE = Redaction(
    project=Path("/srv/team/project"), users=frozenset({"alice"}), hosts=frozenset({"node17"})
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/alice/env/lib/python3.11/site-packages/torch/nn/a.py(4): "
         "run", "site-packages/torch/nn/a.py(4): run"),
        ("/opt/conda/lib/python3.11/threading.py(3): wait", "python3.11/threading.py(3): wait"),
        ("/srv/team/project/kernels/swiglu.py:7", "kernels/swiglu.py:7"),
        ('File "/home/alice/x/y.py", line 3', 'File "<path>/y.py", line 3'),
        ("/tmp/torchinductor_alice/qa/cqa.py", "<path>/cqa.py"),
        ("cwd is /root", "cwd is <home>"),
        ("/app/.venv/bin:/data/sets", "<path>/bin:<path>/sets"),
        (r"C:\Users\bob\train.py", r"<path>\train.py"),
        ("written by alice on node17", "written by <user> on <host>"),
        ("mail a.b@example.org", "mail <mail>"),
        ("train.py --token=abc --api-key xyz --lr 1", "train.py --token=<secret> --api-key "
                                                      "<secret> --lr 1"),
        ("https://bob:pw@example.org/x", "https://<secret>@example.org/x"),
        ("key hf_abcdefghijklmnopqrstuvwxyz", "key <secret>"),
        ("HOME=/root PATH=/a/b:/c X=1", "<environment>"),
        ("tcp://10.2.3.4:29500", "tcp://<address>"),
        ("GPU-5c9a5380-d76d-414b-3975-82bcaebbab73", "<uuid>"),
        ("file:///home/bob/secret/run.py", "file://<path>/run.py"),
        ("file:%2F%2Fhome%2Fbob%2Fx.py", "file:<path>%2Fx.py"),
        ("'/home/bob/my data/x.py'", "'<path>/x.py'"),
        (r"C:\\Users\\bob\\x.py", r"<path>\x.py"),
        ("C:/Users/bob/x.py", r"<path>\x.py"),
        (r"\\fileserver\share\bob\x.py", r"<path>\x.py"),
        ("-I/home/bob/include ../home/bob/x ~bob/x", "-I<home>/include ..<home>/x <home>/x"),
        ("/usr/local/bob/x.py /dev/shm/bob/y "
         "/usr/lib/../../home/bob/z", "<path>/x.py <path>/y <path>/z"),
        ("scp bob@gpu3:x", "scp <mail>:x"),
        ("http://gpu3:8080/x hdfs://nn1.acme.corp/x", "http://<host>:8080/x hdfs://<host>/x"),
        ("on NODE17.acme.internal", "on <host>"),
        ("fe80::1ff:fe23:4567:890a 2001:db8::1 00:1A:2B:3C:4D:5E", "<address> <address> <address>"),
        ("GPU serial number: 1652218001234", "GPU serial number: <serial>"),
        ('{"MASTER_ADDR": "gpu-3", "username": "bob"}', '{"MASTER_ADDR": "<host>", "username": '
                                                        '"<user>"}'),
        ("SLURM_JOB_USER=bob", "SLURM_JOB_USER=<removed>"),
        ("env WHERE=lab python train.py", "env WHERE=<removed> python train.py"),
        ("Authorization: Bearer 0a1b2c", "Authorization: Bearer <secret>"),
        (r"{\"token\": \"abc\"} token: abc", r"{\"token\": \"<secret>\"} token: <secret>"),
        ("--wandb-key=abc --pwd abc --password 123456", "--wandb-key=<secret> --pwd <secret> "
                                                        "--password <secret>"),
        ("https://hooks.slack.com/services/T0/B0/X", "https://hooks.slack.com/<secret>"),
        ("https://x.blob.core.windows.net/c?sig=ab%3D&n=1", "https://x.blob.core.windows.net/c?sig=<secret>&n=1"),
        ("sshpass -p hunter ssh; docker login -p abc", "sshpass -p <secret> ssh; docker login -p "
                                                       "<secret>"),
        ("mysql -phunter db", "mysql -p<secret> db"),
        ("passwd hunter; password is hunter2", "passwd <secret>; password is <secret>"),
        ("/home/bob/my data/of mine/x.py", "<path>/x.py"),
        ("in /Users/bob/Big Model/runs and /home/bob/x.py "
         "y/z", "in <path>/runs and <path>/x.py y/z"),
        ("//fileserver/share/bob/x.py", "<path>/x.py"),
        ("joined 203.0.113.7, server 8.8.8.8, inet 9.9.9.9", "joined <address>, server <address>, "
                                                             "inet <address>"),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "<secret>"),
    ],
)  # fmt: skip
def test_whatever_identifies_somebody_is_removed(text: str, told: str) -> None:
    assert HERE.text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "char*>(int)",
        "triton_per_fused_auth_token_native_layer_norm_0",
        "token_dispatch::permute<float>",
        "Memcpy HtoD (Pageable -> Device)",
        "memory bandwidth (GB/s)",
        "[[4, 512], [512, 64]]",
        "grid(100,)",
        "driver 550.54.15, NCCL 2.22.3.1",
        "BLOCK_M=64 BLOCK_N=128 GROUP=8",
        "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#roofline",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "torch/profiler/profiler.py(821): step",
        "/usr/local/cuda/include/cuda_fp16.h(12): error: unexpected token: }",
        "tokens: 4096, num_tokens=128",
        "author: whoever; std::map<K, V>::operator[]; ad::fe::beef",
        "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "DTYPE=tl.float16 ACTIVATION=leaky_relu",
        "cuBLAS 12.8.0.1, cuDNN 9.1.0.70, from 12.8.0.1 to 13.0.2.9, torch==52.1.2.3, version "
        "64.1.2.3, 0.0.0.0",
        "mkdir -p runs; cuobjdump -ptx a -p 22; password incorrect; password for the store",
        "// begin inline asm; //TODO a/b; x //= y/z",
        "nccl:all_reduce 0000:3b:00.0 12:30:45",
    ],
)
def test_text_that_analysis_needs_is_unchanged(text: str) -> None:
    assert HERE.text(text) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.PATHS, "/data/sets/a.bin"),
        (Kind.USER, "by alice"),
        (Kind.HOSTNAME, "on node17"),
        (Kind.ARGUMENTS, "--token=abc"),
        (Kind.ENVIRONMENT, "USER=bob PATH=x SHELL=y"),
    ],
)
def test_each_kind_can_be_kept(kind: Kind, text: str) -> None:
    assert HERE.text(text) != text
    assert replace(HERE, kept_kinds=frozenset({kind})).text(text) == text


def test_an_unknown_kind_is_refused() -> None:
    assert parse_kinds(["all"]) == EVERYTHING
    with pytest.raises(RedactionError, match=r"--keep colour: unknown; .*hostname, user, paths"):
        parse_kinds(["colour"])


def test_secrets_in_the_environment_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse")

    redaction = Redaction.of_this_machine()

    assert redaction.text("login with correct-horse failed") == "login with <secret> failed"


def test_kept_kinds_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFWATCH_KEEP", "paths,user")

    redaction = Redaction.of_this_machine()

    assert redaction.kept_kinds == {Kind.PATHS, Kind.USER}


def test_names_found_in_a_document_are_removed_everywhere() -> None:
    redaction = Redaction().with_known_names('"path": "/home/carol/x" HOSTNAME=frontend-3')
    assert redaction.text("carol was on frontend-3") == "<user> was on <host>"


def test_the_argument_of_a_secret_option_is_removed() -> None:
    assert HERE.arguments(["train.py", "--auth-token", "abc", "--lr", "1"]) == [
        "train.py",
        "--auth-token",
        "<secret>",
        "--lr",
        "1",
    ]
    assert HERE.arguments(["/usr/bin/sshpass", "-p", "abc", "ssh"]) == [
        "/usr/bin/sshpass",
        "-p",
        "<secret>",
        "ssh",
    ]
    assert HERE.arguments(["serve.py", "-p", "8080"]) == ["serve.py", "-p", "8080"]


KNOBS = {
    "CUBLAS_LOGDEST_DBG": "/home/alice/log",
    "TRITON_REDIS_HOST": "cache.example.org",
    "OMP_PLACES": "cores",
}


def record_with_paths() -> RunRecord:
    message = 'File "/home/alice/k.py", line 3'
    activities = (
        make_activity('ProfilerStep "/home/alice/k.py"'),
        make_activity("void gemm<128>()"),
    )
    return make_record(
        measurements=(make_measurement(outcome=Outcome.CRASHED, message=message),),
        environment=make_environment(compile_knobs=KNOBS),
        profiles=(make_profile(CASE_ID, *activities),),
    )


def test_texts_of_a_record_are_redacted() -> None:
    redacted = redact(record_with_paths(), HERE)

    assert redacted.measurements[0].message == 'File "<path>/k.py", line 3'
    hidden = {"CUBLAS_LOGDEST_DBG": "<path>/log", "TRITON_REDIS_HOST": "<removed>"}
    assert redacted.environment.compile_knobs == KNOBS | hidden
    assert [row.name for row in redacted.profiles[0].rows] == [
        'ProfilerStep "<path>/k.py"',
        "void gemm<128>()",
    ]


def test_all_else_of_a_record_stays() -> None:
    record = record_with_paths()

    redacted = redact(record, HERE)

    original_texts = {
        "measurements": record.measurements,
        "environment": record.environment,
        "profiles": record.profiles,
    }
    assert redacted.model_copy(update=original_texts) == record


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["a", "a_", "a.", "1", "a-", "a+", "nodename_", "eyJ-", "password ", "1.", "host "]
)
def test_patterns_take_linear_time(unit: str) -> None:
    """As long as this one, a pattern that begins anew at each of its letters takes minutes."""
    word = unit * (100_000 // len(unit))

    assert Redaction().text(word) == word


TELLS = suite_of("bench_tells.py")
QUICK = SamplingPlan(warmup_ms=1, budget_ms=2)
PLAN = RunPlan(device="cpu", targets=(), block_count=1, sampling=QUICK, has_profiles=True)
TOLD = "<path>/weights.bin of <mail> with --token <secret>"


@pytest.mark.usefixtures("forked_servers")
def test_the_journal_is_redacted(fork_server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "record.json.journal"
    said: list[Progress] = []
    with Journal(path, make_header({ALONE: TELLS}, PLAN)) as journal:
        (record,) = measure([TELLS], PLAN, said.append, fork_server=fork_server, journal=journal)
        written = path.read_text()

    measured = by_kernel(record)
    messages = {kernel: measurement.message or "" for kernel, measurement in measured.items()}
    assert f"cannot read {TOLD} (bench_tells.py:" in messages["raises"]
    assert f"giving up at {TOLD}" in messages["dies"]
    assert f"cannot write {TOLD}" in messages["raises_later"]
    assert written.count("<path>/weights.bin") >= 3
    assert not [secret for secret in ("alice", "secret-project", "hunter2") if secret in written]
    [noted] = [step.text for step in said if step.is_to_stay]
    assert noted.startswith("raises_if_profiled/n=64/float32/fwd torch was not profiled: ")
    assert f"cannot trace {TOLD}" in noted
    result_lines = [step.text for step in said if step.is_result]
    assert "raises/n=64/float32/fwd torch: crashed" in result_lines
    profiled = noted.partition(" was")[0]
    assert any(line.startswith(f"{profiled}: ok, error ") for line in result_lines)
    assert result_lines[-1].startswith(f"{profiled}: "), "a time is shown when it is measured"
    assert (measured["raises_if_profiled"].outcome, record.profiles) == (Outcome.OK, ()), (
        "its times stay"
    )


@pytest.mark.usefixtures("forked_servers")
def test_the_report_of_a_check_is_redacted(fork_server: ForkServer) -> None:
    reports = check_suite(
        TELLS.source, RunPlan(kernels=("raises", "dies")), fork_server=fork_server
    ).reports

    assert [report.outcome for report in reports] == [Outcome.CRASHED] * 2
    assert all(TOLD in (report.message or "") for report in reports)
