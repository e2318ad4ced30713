"""The columns of metrics: a new row in the table of metrics needs no revision of its own."""

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import CheckConstraint, Column, Connection, Double, inspect

from roofwatch.db.schema.measurements import MeasurementRow
from roofwatch.model.metrics import STORED

_TABLE = MeasurementRow.__tablename__


def list_missing(connection: Connection) -> list[str]:
    """The metrics without a column; none if there is no table yet."""
    inspector = inspect(connection)
    if not inspector.has_table(_TABLE):
        return []
    columns = {column["name"] for column in inspector.get_columns(_TABLE)}
    return [metric.key for metric in STORED if metric.key not in columns]


def add_missing(connection: Connection) -> None:
    """Add the columns that are missing, and write their checks again.

    Older code ignores the columns: they may be NULL.
    """
    missing = list_missing(connection)
    operations = Operations(MigrationContext.configure(connection))
    for key in missing:
        operations.add_column(_TABLE, Column(key, Double))
    existing = {check["name"] for check in inspect(connection).get_check_constraints(_TABLE)}
    for name, condition in _checks_of(missing).items():
        # of all metrics, so it is there without the new ones
        if name in existing:
            operations.drop_constraint(name, _TABLE, type_="check")
        operations.create_check_constraint(name, _TABLE, condition)


def _checks_of(metrics: list[str]) -> dict[str, str]:
    """The conditions of the models that name one of the metrics, by name of the constraint."""
    conditions: dict[str, str] = {}
    for constraint in MeasurementRow.__table__.constraints:  # type: ignore[attr-defined]
        if not isinstance(constraint, CheckConstraint):
            continue
        condition = str(constraint.sqltext)
        if any(metric in condition for metric in metrics):
            conditions[str(constraint.name)] = condition
    return conditions
