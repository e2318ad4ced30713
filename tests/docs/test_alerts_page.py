"""What the page of alerts shows is a file of rules that is read, and has every kind of rule and channel."""

import re
from typing import get_args

from roofwatch.ci.alerts.rules import AddressedChannel, AlertRules, IssueChannel, Rule, parse_rules
from tests.docs.markdown import ROOT, table_under

PAGE = ROOT / "docs" / "alerts.md"


def shown() -> AlertRules:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return parse_rules(text)


def kinds_of_rules() -> set[str]:
    union = get_args(get_args(Rule)[0])
    return {get_args(rule.model_fields["kind"].annotation)[0] for rule in union}


def test_the_file_that_is_shown_is_read_and_has_every_kind_of_rule() -> None:
    assert {rule.kind for rule in shown().rules} == kinds_of_rules()


def test_the_tables_have_every_kind() -> None:
    channels = {
        kind
        for channel in (AddressedChannel, IssueChannel)
        for kind in get_args(channel.model_fields["kind"].annotation)
    }

    assert {row[0].strip("`") for row in table_under(PAGE, "Channels")} == channels
    assert {row[0].strip("`") for row in table_under(PAGE, "The file")} >= kinds_of_rules()
