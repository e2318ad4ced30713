"""Files of rules and of code owners."""

import pytest

from roofwatch.ci.alerts.ownership import KernelOwners, Ownership, parse_codeowners
from roofwatch.ci.alerts.rules import MetricRule, RegressionRule
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.ci.messages import AlertError

CHANNEL = '[channels]\nchat = { kind = "apprise", url_env = "CHAT" }\n'
RULE = '[[rules]]\nname = "slower"\nkind = "regression"\nchannels = ["chat"]\n'
THROUGHPUT = RULE.replace("regression", "throughput") + 'metric = "flop_per_s"\n'


def test_a_file_with_every_kind_of_rule_is_read() -> None:
    rules = parse_rules(
        CHANNEL
        + RULE
        + 'min_relative_change = "2.5%"\n'
        + '[[rules]]\nname = "floor"\nkind = "level"\nchannels = ["chat"]\nmetric = '
        '"flop_per_s"\nat_least = 1e12\n'
        + '[[rules]]\nname = "error"\nkind = "level"\nchannels = ["chat"]\nmetric = '
        '"rmse_ratio"\ngrows_by = "50%"\n'
        + '[[rules]]\nname = "silent"\nkind = "silence"\nchannels = ["chat"]\nafter_hours = 48\n'
        + '[[rules]]\nname = "attention TFLOP/s, H100"\nkind = "throughput"\nchannels = ["chat"]\n'
        + 'metric = "flop_per_s"\ndrops_by = "5%"\nagainst = "14 days"\nfamilies = '
        '["attention"]\nover = "geomean"\n'
        + '[[owners]]\nkernels = ["flash_*"]\nowners = ["@example/attention"]\n'
    )

    assert [rule.kind for rule in rules.rules] == [
        "regression",
        "level",
        "level",
        "silence",
        "throughput",
    ]
    slower, drop = rules.rules[0], rules.rules[-1]
    assert isinstance(slower, RegressionRule)
    assert slower.min_relative_change == 0.025
    assert isinstance(drop, MetricRule)
    assert (drop.name, drop.drops_by, drop.against_days) == ("attention TFLOP/s, H100", 0.05, 14)


@pytest.mark.parametrize(
    ("metric", "limit", "value"),
    [
        ("flop_per_s", 'at_least = "600 TFLOP/s"', 6e14),
        ("memory_bytes_per_s", 'at_least = "2.5TB/s"', 2.5e12),
        ("tokens_per_s", 'at_least = "50 ktokens/s"', 5e4),
        ("median_ns", 'at_most = "2 ms"', 2e6),
        ("peak_allocated_bytes", 'at_most = "48 KiB"', 49_152),
        ("utilisation", 'at_least = "70 %"', 0.7),
    ],
)
def test_a_limit_may_have_a_unit(metric: str, limit: str, value: float) -> None:
    (rule,) = parse_rules(CHANNEL + THROUGHPUT.replace("flop_per_s", metric) + limit + "\n").rules

    assert isinstance(rule, MetricRule)
    assert rule.limit == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rules", "not TOML"),
        (RULE, r"rule 'slower': channels: unknown channel 'chat'; there is: none"),
        (CHANNEL + RULE + RULE, "two rules have the name 'slower'"),
        (
            CHANNEL + RULE + "min_relative_change = 5\n",
            "rule 'slower': min_relative_change: .* such as \"5%\"",
        ),
        (
            CHANNEL + RULE + 'min_relative_change = "-1%"\n',
            "rule 'slower': min_relative_change: .* such as \"5%\"",
        ),
        (
            CHANNEL + THROUGHPUT + 'drops_by = "500%"\n',
            "rule 'slower': drops_by: must be less than 1",
        ),
        (
            CHANNEL + THROUGHPUT.replace("flop_per_s", "utilisation") + "at_least = 70\n",
            'such as "70%"',
        ),
        (CHANNEL + RULE + "colour = 1\n", "rule 'slower': colour: unknown key"),
        (
            CHANNEL + RULE + "cooldown_hours = 1\n",
            "rule 'slower': cooldown_hours: unknown key; .*'cool_down_hours'",
        ),
        (CHANNEL + RULE + 'kernels = "flash_*"\n', "rule 'slower': kernels: must be a list"),
        (
            CHANNEL + RULE.replace("regression", "regresion"),
            "rule 'slower': unknown kind; did you mean 'regression'?",
        ),
        ("rules = [5]\n", "rule 1: must be a table"),
        (
            CHANNEL + RULE + "escalate_after_hours = 4\n",
            "escalate_after_hours and escalate_to need each other",
        ),
        (
            CHANNEL + THROUGHPUT.replace("flop_per_s", "flops_per_s"),
            "metric: unknown metric; .*'flop_per_s'",
        ),
        (
            CHANNEL + THROUGHPUT + 'at_least = "2 ms"\n',
            "at_least: .*write a number and one of FLOP/s",
        ),
        (CHANNEL + THROUGHPUT, "higher is better for flop_per_s: set either at_least or drops_by"),
        (
            CHANNEL + THROUGHPUT.replace("flop_per_s", "median_ns") + 'drops_by = "5%"\n',
            "set either at_most or grows_by",
        ),
        (
            CHANNEL + THROUGHPUT + 'at_least = 1e9\nagainst = "14 days"\n',
            "against is only for drops_by",
        ),
        (
            CHANNEL + THROUGHPUT + 'drops_by = "5%"\nagainst = "change"\nover = "geomean"\n',
            "judges each case",
        ),
        (
            CHANNEL + THROUGHPUT + 'drops_by = "5%"\nagainst = "14 dayz"\n',
            "rule 'slower': against: '14 dayz' is no time: write \"14 days\"",
        ),
        (
            '[channels]\nx = { kind = "webhook" }\n',
            r"channel 'x': name where the address is: either",
        ),
        (
            '[channels]\nx = { kind = "apprise", url_env = "X", secret_env = "Y" }\n',
            "secret_env is only for webhooks",
        ),
        (
            '[channels]\nx = { kind = "pigeon" }\n',
            r"channel 'x': unknown kind; the kinds are .*github",
        ),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(AlertError, match=message):
        parse_rules(text)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(AlertError) as caught:
        parse_rules(
            CHANNEL + RULE + 'cooldown_hours = 4\nkernels = "gemm"\nescalate_to = ["nobody"]\n'
        )

    for word in ("cool_down_hours", "must be a list", "unknown channel 'nobody'"):
        assert word in str(caught.value)


def test_an_address_in_the_file_is_refused_without_showing_it() -> None:
    secret = "https://hooks.example.com/T0KEN"

    with pytest.raises(AlertError, match=r"channel 'x': url: unknown key") as caught:
        parse_rules(f'[channels]\nx = {{ kind = "webhook", url = "{secret}" }}\n')

    assert "T0KEN" not in str(caught.value)


def owners_of(text: str, path: str) -> tuple[str, ...]:
    return Ownership(codeowners=parse_codeowners(text), source_paths={"kernel": path}).owners_of(
        ["kernel"]
    )


EXAMPLE = """
*       @default
*.js    @js-owner # an inline comment
/docs/  @docs @writers
apps/github
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ("@default",)),
        ("a/b/deep.js", ("@js-owner",)),
        ("docs/a/b.md", ("@docs", "@writers")),
        ("apps/github/a.py", ()),
    ],
)
def test_the_last_matching_pattern_owns_a_file(path: str, owners: tuple[str, ...]) -> None:
    assert owners_of(EXAMPLE, path) == owners


@pytest.mark.parametrize(
    "line",
    [
        "!*.py @other",
        "[ab].py @other",
        r"\#a.py @other",
        "*.py other",
        "*.py @other nobody",
        "# *.py @other",
    ],
)
def test_a_line_that_is_not_valid_is_skipped_alone(line: str) -> None:
    assert owners_of(f"* @owner\n{line}\n", "a.py") == ("@owner",)


def test_a_kernel_is_owned_by_its_source_file_unless_the_table_says_otherwise() -> None:
    ownership = Ownership(
        table=(KernelOwners(kernels=("flash_*",), owners=("@attention",)),),
        codeowners=parse_codeowners("/kernels/ @kernels"),
        source_paths={"rms_norm": "kernels/rms_norm.py", "flash_mla": "kernels/flash_mla.py"},
    )

    assert ownership.owners_of(["rms_norm", "flash_mla", "rms_norm", "unknown"]) == (
        "@kernels",
        "@attention",
    )
