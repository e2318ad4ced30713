"""Runs of a project on some runners or branches alone: narrowed in the statement, before the newest are taken."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, and_, select, true
from sqlalchemy.orm import aliased

from roofwatch.db.schema.runs import ProjectRow, RunRow


@dataclass(frozen=True)
class Narrowing:
    """What is left of the runs of a project."""

    project: str
    runner_classes: Collection[str] = ()
    """Any where none is named."""
    branches: Collection[str] = ()
    """Under the name of one of which the run's commit was measured; likewise."""

    def admits(self, run: Any, environment: Any) -> ColumnElement[bool]:
        """Condition on a run and its environment, by whatever name the statement has them."""
        conditions: list[ColumnElement[bool]] = [true()]
        if self.runner_classes:
            conditions.append(environment.runner_class.in_(self.runner_classes))
        if self.branches:
            measured = aliased(RunRow)
            of_branches = select(measured.commit_id).where(
                measured.project_id == project_id(self.project), measured.branch.in_(self.branches)
            )
            conditions.append(run.commit_id.in_(of_branches))
        return and_(*conditions)


def project_id(project: str) -> ScalarSelect[int]:
    """Of the project with this name, as a value: so the runs of a project are found by their index."""
    own = aliased(ProjectRow)
    return select(own.id).where(own.name == project).scalar_subquery()
