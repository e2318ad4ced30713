"""Identity of code: of an imported value, and of the implementations that one job measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from roofwatch.model.case_key import CaseKey, kernel_of

_BETWEEN = ":"


@dataclass(frozen=True)
class CodeIdentity:
    """Digests of a kernel's code at one commit; None is unknown."""

    sources: str | None = None
    """Of all files that the kernel imports."""
    machine_code: str | None = None
    """Of all functions that the kernel's cases compile to, for all targets."""

    @classmethod
    def parse(cls, text: str | None) -> "CodeIdentity":
        """Read what `text` wrote."""
        sources, _, machine_code = (text or "").partition(_BETWEEN)
        return cls(sources=sources or None, machine_code=machine_code or None)

    @property
    def text(self) -> str | None:
        """One text for both; None if both are unknown."""
        if self.machine_code is not None:
            return f"{self.sources or ''}{_BETWEEN}{self.machine_code}"
        return self.sources


@dataclass(frozen=True)
class RunCode:
    """What one side of a pair ran, and where."""

    implementation_digests: Mapping[str, str]
    """Of all that each implementation may use, by `kernel/implementation`."""
    requirements: Mapping[str, str]
    """Installed packages with their versions."""
    environment: object
    """Equal for equal environments."""

    def is_same(self, other: "RunCode", key: CaseKey) -> bool:
        """Whether a case runs the same code on both sides, by all that is recorded: what differs
        between its times then comes from the machine.

        False if a side does not say what the implementation uses.
        """
        case_id, implementation = key
        name = f"{kernel_of(case_id)}/{implementation}"
        digest = self.implementation_digests.get(name)
        if digest is None or digest != other.implementation_digests.get(name):
            return False
        has_same_packages = self.requirements == other.requirements
        return has_same_packages and self.environment == other.environment
