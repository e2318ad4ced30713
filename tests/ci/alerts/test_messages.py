"""Messages of alerts, safe against untrusted text."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from roofwatch.ci.alerts.channels import to_markdown, to_text, to_title
from roofwatch.model.alert import AlertEvent, Delivery, Fact, Link, Message, ReportedValue
from roofwatch.regressions.alerting import trial_delivery
from tests.builders import PROJECT

HOSTILE = (
    "@everyone <!channel> <@U1> [x](https://evil.example) `code` **b** <img src=x "
    "onerror=alert(1)> "
    "www.evil.example\r\nBcc: all@example.com\x1b[31m\u202e|"
)


def delivery(text: str = HOSTILE, event: AlertEvent = AlertEvent.FIRED) -> Delivery:
    message = Message(
        title=f"rms_norm {text}",
        facts=(Fact("Evidence", text),),
        owners=("@example/kernels", "not an owner @all"),
        links=(Link("Trend", "https://dash.example/trends?kernel=a"),),
    )
    trial = trial_delivery("chat")
    return replace(
        trial,
        event=event,
        alert=replace(trial.alert, message=message, rules=(text,), project=PROJECT),
    )


@pytest.mark.parametrize("write", [to_title, to_text])
def test_hostile_text_is_inert_in_plain_text(write: object) -> None:
    text = write(delivery())  # type: ignore[operator]  # one of two functions

    ours = text.replace("https://dash.example/trends?kernel=a", "")
    assert not set("@<>`[") & set(re.sub(r"^\[example/project\] ", "", ours))
    assert "://" not in ours
    assert "www.evil" not in ours
    assert all(character.isprintable() for line in text.splitlines() for character in line)


def test_hostile_text_is_code_in_markdown() -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).render(to_markdown(delivery()))

    outside = re.sub(r"<code>.*?</code>", "", rendered, flags=re.DOTALL)
    assert "evil" not in outside
    assert "everyone" not in outside
    assert "<img" not in outside
    assert "@example/kernels" in outside
    assert "not an owner" not in outside


def test_a_title_names_what_happened_to_the_alert() -> None:
    assert (
        to_title(delivery("x", AlertEvent.RESOLVED))
        == "[example/project] info: resolved: rms_norm x"
    )
    assert "still firing: " in to_title(delivery("x", AlertEvent.REMINDED))
    assert "not acknowledged: " in to_title(delivery("x", AlertEvent.ESCALATED))


def test_a_message_that_may_have_arrived_before_says_so() -> None:
    assert "may be a repetition" in to_text(replace(delivery("x"), is_uncertain=True))
    assert "may be a repetition" not in to_text(delivery("x"))


def test_a_message_says_how_to_acknowledge_it() -> None:
    change = ReportedValue(
        "gemm",
        "gemm/m=1/f16/fwd",
        "triton",
        "H100, driver 580",
        "flop_per_s",
        "FLOP/s",
        6e14,
        5.4e14,
        -0.1,
    )
    told = delivery("x")
    message = replace(told.alert.message, devices=("NVIDIA H100",), changes=(change,))
    text = to_text(replace(told, alert=replace(told.alert, message=message)))

    assert "Device: NVIDIA H100" in text
    assert "gemm/m=1/f16/fwd · triton: compute rate 600 TFLOP/s to 540 TFLOP/s (-10.0%)" in text
    assert f"roofwatch alert acknowledge {told.alert.alert_id} --person NAME" in text


def test_a_test_message_looks_like_a_test_without_an_alert() -> None:
    """It said to acknowledge an alert that does not exist."""
    trial = trial_delivery("chat")

    assert to_title(trial) == "[roofwatch] TEST, nothing happened: the channel chat works"
    assert to_text(trial) == "To do: nothing; this message shows that the channel works"


def test_a_limit_is_told_as_a_limit() -> None:
    change = ReportedValue(
        kernel="gemm",
        case_id="gemm/m=1/f16/fwd",
        implementation="triton",
        runner_class="H100",
        metric="flop_per_s",
        unit="FLOP/s",
        before=6e14,
        after=5.4e14,
        relative_change=-0.1,
        is_limit=True,
    )
    told = delivery("x")
    message = replace(told.alert.message, changes=(change,))
    text = to_text(replace(told, alert=replace(told.alert, message=message)))

    assert "triton: compute rate is 540 TFLOP/s, the limit is 600 TFLOP/s (-10.0%)" in text
