"""Reads a disassembly, or AMD's assembly text, into instructions."""

import re
from dataclasses import dataclass

_SASS = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+"
    r"(?:@(?P<predicate>!?U?P[0-9T]+)\s+)?(?P<mnemonic>[A-Z][A-Z0-9_.x]*)(?P<operands>[^;]*)",
    re.MULTILINE,
)
_SASS_TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
_BRANCHES = frozenset({"BRA", "JMP", "CALL"})
_DISPATCHES = frozenset({"BRX", "JMX"})
_SASS_CONSTANT_TRUE = frozenset({"PT", "UPT"})

_GCN_LABEL = re.compile(r"^(?P<label>[\w.$]+):")
_GCN = re.compile(r"^\s+(?P<mnemonic>[a-z][a-z0-9]*_[a-z0-9_]+)(?P<operands>[^\n;]*)")
_GCN_JUMPS = ("s_branch", "s_cbranch_")
_GCN_ENDS = ("s_endpgm", "s_setpc_b64")


@dataclass(frozen=True)
class Instruction:
    mnemonic: str
    operands: str = ""
    target: int | None = None
    """Index of the instruction that a branch goes to."""
    is_conditional: bool = False
    """It has a predicate: a branch may fall through, an exit may not happen."""
    is_end: bool = False
    """Nothing follows: an exit, a return, or a branch to an unknown place."""

    @property
    def name(self) -> str:
        """The mnemonic without modifiers."""
        return self.mnemonic.partition(".")[0]

    @property
    def is_dispatch(self) -> bool:
        """A branch to an entry of a table: warps of a block go different ways."""
        return self.name in _DISPATCHES

    @property
    def modifiers(self) -> list[str]:
        return self.mnemonic.split(".")[1:]


def parse_sass(listing: str) -> list[Instruction]:
    """Parse the output of nvdisasm; targets of branches become indices."""
    matches = list(_SASS.finditer(listing))
    if not matches:
        return []
    # a piece of a longer listing has addresses that start anywhere; targets count from its start
    first = int(matches[0]["address"], 16)
    index_at = {int(match["address"], 16): index for index, match in enumerate(matches)}
    instructions: list[Instruction] = []
    for match in matches:
        mnemonic = match["mnemonic"]
        operands = match["operands"].strip()
        is_conditional = _is_conditional(match["predicate"], operands)
        target: int | None = None
        name = mnemonic.partition(".")[0]
        if name in _BRANCHES:
            branch = _SASS_TARGET.search(operands)
            if branch is not None:
                address = int(branch[1], 16)
                target = index_at.get(address, index_at.get(first + address))
        is_end = name in {"EXIT", "RET", "BRX", "JMX"} or (name == "BRA" and target is None)
        # a call comes back, and ptxas also writes the way out of a loop as a call
        is_conditional |= name == "CALL"
        instructions.append(
            Instruction(
                mnemonic=mnemonic,
                operands=operands,
                target=target,
                is_conditional=is_conditional,
                is_end=is_end,
            )
        )
    return instructions


def _is_conditional(predicate: str | None, operands: str) -> bool:
    """Whether a branch may fall through."""
    if predicate is not None and predicate not in _SASS_CONSTANT_TRUE:
        return True
    # `BRA.U !UP0, 0x160` has its condition among the operands
    condition = operands.partition(",")[0].strip().lstrip("!")
    is_register = re.fullmatch(r"U?P\d", condition) is not None
    return is_register and "," in operands


def parse_amdgcn(assembly: str, symbol: str) -> list[Instruction]:
    """Parse the instructions of one function in AMD's assembly text."""
    index_of: dict[str, int] = {}
    raw: list[tuple[str, str]] = []
    is_inside = False
    for line in assembly.splitlines():
        label = _GCN_LABEL.match(line)
        if label is not None:
            if label["label"] == symbol:
                is_inside = True
            elif label["label"].startswith(".Lfunc_end") and is_inside:
                # the labels of other functions follow
                break
            index_of[label["label"]] = len(raw)
            continue
        match = _GCN.match(line)
        if is_inside and match is not None:
            operands = match["operands"].strip()
            raw.append((match["mnemonic"], operands))
    instructions: list[Instruction] = []
    for mnemonic, operands in raw:
        target: int | None = None
        if mnemonic.startswith(_GCN_JUMPS):
            target = index_of.get(operands)
        instructions.append(
            Instruction(
                mnemonic=mnemonic,
                operands=operands,
                target=target,
                is_conditional=mnemonic.startswith("s_cbranch"),
                is_end=mnemonic.startswith(_GCN_ENDS),
            )
        )
    return instructions
