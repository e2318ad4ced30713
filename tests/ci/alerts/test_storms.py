"""What people are sent when many things happen at once, as whole lists of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from roofwatch.ci.alerts.channels import to_title
from roofwatch.ci.alerts.kinds import conditions_at
from roofwatch.ci.alerts.lifecycle import next_steps
from roofwatch.ci.alerts.metric_conditions import newest_levels
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import MetricRule
from roofwatch.ci.alerts.rules_file import AlertRules, parse_rules
from roofwatch.model.alert import Alert, Delivery
from roofwatch.model.stored_results import CaseOption, MeasuredCase, RunnerRun
from tests.builders import NOON, PROJECT, make_commit_ref
from tests.dashboard.values import make_measured_case

KERNEL_COUNT = 30
RULES = """
messages_per_hour = {limit}
[channels]
chat = {{ kind = "apprise", url_env = "CHAT" }}
mail = {{ kind = "apprise", url_env = "MAIL" }}
[[rules]]
name = "rates"
kind = "throughput"
metric = "flop_per_s"
drops_by = "5%"
runs = 1
cool_down_hours = 0
channels = ["chat", "mail"]
[[rules]]
name = "memory rates"
kind = "throughput"
metric = "memory_bytes_per_s"
drops_by = "5%"
runs = 1
cool_down_hours = 0
channels = ["chat"]
[[rules]]
name = "times"
kind = "level"
metric = "median_ns"
grows_by = "5%"
runs = 1
cool_down_hours = 0
channels = ["chat"]
"""
KERNELS = [f"kernel_{number:02}" for number in range(KERNEL_COUNT)]
H100 = "NVIDIA H100, driver 580"


@dataclass
class Machine:
    """Runs of one machine, and the messages of an evaluation after each."""

    rules: AlertRules
    runs: dict[str, list[RunnerRun]] = field(default_factory=dict)
    """By runner class."""
    results: dict[UUID, list[MeasuredCase]] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    sent_counts: dict[str, int] = field(default_factory=dict)

    def measure(self, factors: Sequence[float], runner_class: str = H100) -> list[str]:
        """Measure all kernels an hour later, slower by factors; return what is sent."""
        deliveries = self.deliveries(factors, runner_class)
        return [f"{told.channel}: {to_title(told)}" for told in deliveries]

    def deliveries(self, factors: Sequence[float], runner_class: str = H100) -> list[Delivery]:
        number = sum(map(len, self.runs.values()))
        now = NOON + timedelta(hours=number)
        run = RunnerRun(
            run_id=uuid4(),
            device_name="NVIDIA H100",
            started_at=now,
            harness_version="1",
            commit=make_commit_ref(number),
        )
        self.runs.setdefault(runner_class, []).append(run)
        self.results[run.run_id] = [
            make_measured_case(f"{kernel}/n=1/float32/fwd", median_ns=10_000.0 * factor)
            for kernel, factor in zip(KERNELS, factors, strict=False)
        ]
        state = ProjectState(
            project=PROJECT,
            runs=self.runs,
            results=lambda run_id: self.results[run_id],
            cases={case.case_id: case for case in map(option_of, KERNELS)},
        )
        conditions = [
            condition for rule in self.rules.rules for condition in conditions_at(rule, state, now)
        ]
        endings: dict[str, str | None] = {}
        for rule in self.rules.rules:
            assert isinstance(rule, MetricRule)
            endings |= newest_levels(rule, state, now)
        steps = next_steps(
            PROJECT,
            list(self.alerts.values()),
            conditions,
            rules=self.rules,
            endings=endings,
            now=now,
            sent_counts=self.sent_counts,
        )
        self.alerts |= {step.alert.cause: step.alert for step in steps}
        return [delivery for step in steps for delivery in step.deliveries]


def option_of(kernel: str) -> CaseOption:
    costs = {"flop_per_s": 1e6, "memory_bytes_per_s": 64_000.0, "bus_bytes_per_s": None}
    return CaseOption(f"{kernel}/n=1/float32/fwd", kernel, "float32", "memory", (), costs)


STEADY = [1.0] * KERNEL_COUNT
SLOWER = [1.1] * KERNEL_COUNT


def machine(limit: int = 20) -> Machine:
    fresh = Machine(parse_rules(RULES.format(limit=limit)))
    for _ in range(5):
        assert fresh.measure(STEADY) == []
    return fresh


def test_a_slower_machine_is_one_message_in_each_channel() -> None:
    """It was 31 chat messages, 30 mails and 31 webhooks."""
    storm = machine()

    fired = storm.deliveries(SLOWER)
    again = storm.measure(SLOWER)
    resolved = storm.measure(STEADY)

    title = (
        "[example/project] warning: 30 kernels together, the worst: kernel_00: {metric} on "
        "NVIDIA H100"
    )
    time = "time grew 10.0%, 10 µs to 11 µs, in 1 case"
    rate = "compute rate fell 9.1%, 100 GFLOP/s to 90.9 GFLOP/s, in 1 case"
    assert [f"{told.channel}: {to_title(told)}" for told in fired] == [
        f"mail: {title.format(metric=rate)}",
        f"chat: {title.format(metric=time)}",
    ]
    assert [len(told.alert.message.changes) for told in fired] == [10, 10]
    assert again == []
    assert len(resolved) == 2
    assert all("resolved: 30 kernels together" in message for message in resolved)


def test_a_resolution_has_the_new_value_with_its_commit() -> None:
    """It said: back within limits, or no rule covers it."""
    storm = machine()
    storm.deliveries(SLOWER)

    resolved = storm.deliveries(STEADY)

    commit = make_commit_ref(6)
    texts = [told.alert.message.facts[0].text for told in resolved]
    assert f"back within limits: 100 GFLOP/s at {commit.short_sha} " in texts[0]
    assert f"back within limits: 10 µs at {commit.short_sha} " in texts[1]


def test_each_flip_of_a_flapping_kernel_sends_as_many_messages() -> None:
    storm = machine()
    one_slower = [1.5, *STEADY[1:]]

    messages = [storm.measure(factors) for factors in (one_slower, STEADY, one_slower, STEADY)]

    slower = "kernel_00: time grew 50.0%, 10 µs to 15 µs, in 1 case on NVIDIA H100"
    assert [len(sent) for sent in messages] == [2, 2, 2, 2]
    assert f"chat: [example/project] warning: {slower}" in messages[0]
    assert f"chat: [example/project] warning: resolved: {slower}" in messages[1]


def test_a_new_driver_is_no_alert_for_each_kernel() -> None:
    """Values of another runner class are not compared: the new driver begins its own history."""
    storm = machine()
    updated = "NVIDIA H100, driver 590"

    sent = [storm.measure(SLOWER, updated) for _ in range(5)]

    assert sent == [[]] * 5


def test_unrelated_alerts_beyond_the_limit_of_an_hour_are_one_summary() -> None:
    """Each kernel becomes slower at a commit of its own, while nobody evaluates the rules."""
    storm = machine(limit=3)
    rules, storm.rules = storm.rules, AlertRules(messages_per_hour=3)
    factors = list(STEADY)
    for number in range(8):
        factors[number] = 1.2 + number / 100
        assert storm.measure(factors) == []
    storm.rules = rules

    sent = storm.deliveries(factors)

    titles = [to_title(told) for told in sent if told.channel == "mail"]
    assert len(titles) == 3
    assert titles[-1].endswith("alerts in one message: the limit is 3 messages an hour")
    summary = next(told for told in sent if "in one message" in to_title(told))
    assert len([fact for fact in summary.alert.message.facts if fact.name == "Alert"]) >= 4


def test_what_comes_when_the_limit_is_reached_is_told_later() -> None:
    storm = machine(limit=1)
    one, two = [1.5, *STEADY[1:]], [1.5, 1.5, *STEADY[2:]]
    conditions_sent = {"chat": 1, "mail": 1}

    storm.sent_counts = conditions_sent
    assert storm.measure(one) == []
    storm.sent_counts = {}
    later = storm.measure(two)

    assert {message.partition(":")[0] for message in later} == {"chat", "mail"}
