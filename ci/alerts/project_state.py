"""What rules of alerts are evaluated on: the state of a project. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode
from uuid import UUID

from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.alerts.rules import KernelRule
from roofwatch.ci.alerts.tables import matches
from roofwatch.ci.history.recent import KernelSuspicion
from roofwatch.model.alert import Link
from roofwatch.model.case_key import kernel_of
from roofwatch.model.grouping import group_by
from roofwatch.model.stored_results import CaseOption, MeasuredCase, RunnerRun
from roofwatch.model.triage import TriagedRegression


@dataclass(frozen=True)
class ProjectState:
    """What rules are evaluated on."""

    project: str
    regressions: Sequence[TriagedRegression] = ()
    """With what people decided about each."""
    possible_changes: Sequence[KernelSuspicion] = ()
    """What no pair has decided yet."""
    runs: Mapping[str, Sequence[RunnerRun]] = field(default_factory=dict)
    """By runner class, the newest commit last."""
    results: Callable[[UUID], Sequence[MeasuredCase]] = field(default=lambda _: ())
    """Reads the measurements of a run."""
    imported: Callable[[UUID], Sequence[tuple[str, str, str, float]]] = field(default=lambda _: ())
    """Reads the values that a run imported: case id, implementation, metric and value."""
    cases: Mapping[str, CaseOption] = field(default_factory=dict)
    """By case id, those of recent runs."""
    commits: Mapping[str, str | None] = field(default_factory=dict)
    """The sha of each tag or commit that rules compare with."""
    ownership: Ownership = field(default_factory=Ownership)
    dashboard_url: str | None = None
    """Without it, messages have no links."""

    @property
    def devices(self) -> dict[str, list[str]]:
        """Runner classes of each device."""
        return group_by(self.runs, self.device_of)

    def device_of(self, runner_class: str) -> str:
        """Name of the device that a runner class has now; the class itself without any run."""
        runs = self.runs.get(runner_class)
        if not runs:
            return runner_class
        return runs[-1].device_name

    def costs_of(self, case_id: str) -> Mapping[str, float | None]:
        """Work of one launch by the metric of its rate, from the newest run: another cost model
        changes no rate.
        """
        case = self.cases.get(case_id)
        if case is None:
            return {}
        return case.costs

    def covers(
        self,
        rule: KernelRule,
        case_id: str,
        implementation: str | None = None,
    ) -> bool:
        """Whether a rule is about a case, and about an implementation if one is named."""
        if implementation is not None and matches(implementation, rule.exclude_implementations):
            return False
        kernel = kernel_of(case_id)
        case = self.cases.get(case_id)
        if case is None:  # no recent run has it, so its family and tags are unknown
            return rule.covers_case(kernel, "", ())
        return rule.covers_case(kernel, case.family, case.tags)

    def link(self, name: str, view: str, **query: str) -> tuple[Link, ...]:
        """Link to a view of the dashboard, if its address is configured."""
        if self.dashboard_url is None:
            return ()
        parameters = urlencode({"project": self.project, **query})
        url = f"{self.dashboard_url.rstrip('/')}/{view}?{parameters}"
        return (Link(name, url),)
