"""Identity of the code behind an imported value: what its kernel imports, and its machine code."""

from dataclasses import dataclass

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
