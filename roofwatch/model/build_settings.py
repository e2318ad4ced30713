"""How a repository is built for measuring: the table `[build]` of its configuration file."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def separated_by_commas(value: object) -> object:
    """Split the text of an environment variable at its commas; a file has a list."""
    if not isinstance(value, str):
        return value
    # An empty entry is a comma too many.
    return [part.strip() for part in value.split(",") if part.strip()]


class BuildSettings(BaseModel):
    """The configuration file of the measured commit decides; without one there, that of the work
    tree.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    command: Annotated[str, Field(min_length=1)] | None = None
    """Shell command that installs the packages of `{source}`, the files of a commit, into the
    folder `{prefix}`; unset, pip installs each distribution that compiles something.
    """
    inputs: Annotated[tuple[str, ...], BeforeValidator(separated_by_commas)] = ()
    """Patterns of the files that a build depends on, such as `csrc/**`; unset, all files.
    Separated by commas in the environment.
    """
    isolated: bool = False
    """Give each commit an environment of its own, with the packages that it requires."""
