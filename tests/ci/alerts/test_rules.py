"""Files of rules."""

import pytest

from roofwatch.ci.alerts.rules import parse_rules
from roofwatch.ci.messages import AlertError

CHANNEL = '[channels]\nchat = { kind = "apprise", url_env = "CHAT" }\n'
RULE = '[[rules]]\nname = "slower"\nkind = "regression"\nchannels = ["chat"]\n'


def test_a_file_with_every_kind_of_rule_is_read() -> None:
    rules = parse_rules(
        CHANNEL
        + RULE
        + '[[rules]]\nname = "floor"\nkind = "level"\nchannels = ["chat"]\nmetric = "flop_per_s"\nat_least = 1e12\n'
        + '[[rules]]\nname = "error"\nkind = "level"\nchannels = ["chat"]\nmetric = "rmse_ratio"\ngrown_by = 0.5\n'
        + '[[rules]]\nname = "silent"\nkind = "silence"\nchannels = ["chat"]\nafter_hours = 48\n'
        + '[[owners]]\nkernels = ["flash_*"]\nowners = ["@example/attention"]\n'
    )

    assert [rule.kind for rule in rules.rules] == ["regression", "level", "level", "silence"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rules", "not TOML"),
        (RULE, r"rule 'slower': unknown channel 'chat'; there is: none"),
        (CHANNEL + RULE + RULE, "two rules have the same name"),
        (
            CHANNEL + RULE + "min_relative_change = -1\n",
            r"rules\[0\]\.regression\.min_relative_change: .*greater than or equal to 0",
        ),
        (CHANNEL + RULE + "colour = 1\n", r"rules\[0\]\.regression\.colour: Extra inputs are not permitted"),
        (CHANNEL + RULE.replace("regression", "mood"), r"rules\[0\]: .*'regression'"),
        (CHANNEL + RULE + "escalate_after_hours = 4\n", "escalate_after_hours and escalate_to need each other"),
        (
            '[channels]\nx = { kind = "webhook" }\n',
            r"channels\.x\.webhook: name where the address is: either",
        ),
        ('[channels]\nx = { kind = "pigeon" }\n', r"channels\.x: .*'github'"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(AlertError, match=message):
        parse_rules(text)


def test_an_address_in_the_file_is_refused_without_showing_it() -> None:
    secret = "https://hooks.example.com/T0KEN"

    with pytest.raises(AlertError, match=r"channels\.x\.webhook\.url: Extra inputs") as caught:
        parse_rules(f'[channels]\nx = {{ kind = "webhook", url = "{secret}" }}\n')

    assert "T0KEN" not in str(caught.value)
