"""What one run of an instruction by one warp costs, by pipe, in clocks of the multiprocessor.

A pipe that all warps share is busy for as many clocks as the multiprocessor needs for that
instruction of one warp. Sources: `rates.py`.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from roofwatch.collector.compile.cycles.parse import Instruction
from roofwatch.collector.compile.cycles.rates import ISSUE_EFFICIENCY, Rates

ISSUE = "issue"
FMA = "fma"
ALU = "alu"
SPECIAL = "special functions"
DOUBLE = "float64"
LOAD_STORE = "load/store"
SHARED = "shared memory"
TENSOR = "tensor"

_FMA_NAMES = re.compile(r"F(ADD|MUL|FMA|SWZADD)|H(ADD2|MUL2|FMA2)|FFMA2|FADD2|FMUL2|BF\w+")
_INTEGER_MULTIPLY = re.compile(r"U?IMAD|IMUL|IDP|VIMAD")
_SPECIAL_NAMES = re.compile(r"MUFU|F2F|F2I|I2F|FRND|POPC|FLO|BREV")
_DOUBLE_NAMES = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)")
_SYNC_PRODUCT = re.compile(r"[HIBDQO]MMA")
_GROUP_PRODUCT = re.compile(r"[HIQB]GMMA")
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
_SYNC_SHAPES = {
    "16816": 16 * 8 * 16,
    "1688": 16 * 8 * 8,
    "16832": 16 * 8 * 32,
    "884": 8 * 8 * 4,
}
_USUAL_SHAPE = "16816"
_UNIFORM = re.compile(r"U[A-Z]|S2U?R|R2UR|CS2R|L?DCU?$|ULDC|LDC")
_CONTROL = re.compile(r"BRA|BSSY|BSYNC|EXIT|NOP|WARPSYNC|DEPBAR|BAR|SYNCS|CALL|RET|WARPGROUP|FENCE")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}

_GCN_ACCESS = re.compile(r"(global|buffer|flat|scratch)_(load|store)_(?:lds_)?(\w+)")
_GCN_BYTES = re.compile(r"(?:dword|b)(?:x?(\d+))?")
_GCN_LDS = re.compile(r"ds_(read|write|load|store)(2?)(?:st64)?_?\w*?_b(\d+)")
_GCN_SPECIAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_|v_mul_(lo|hi)_|v_mad_[ui]64")
_GCN_PRODUCT = re.compile(r"v_(?:s?mfma|smfmac|wmma)\w*_[fi]\d+_(\d+)x(\d+)x(\d+)")
_GCN_DOUBLE = re.compile(r"v_\w+_f64")


@dataclass
class Work:
    """What one warp runs, once; counts may be fractions, as blocks have frequencies."""

    instructions: float = 0.0
    clocks: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By pipe."""
    tensor_flop: float = 0.0
    """Of one warp; a product of a warp group counts a quarter for each of its warps."""
    async_products: float = 0.0
    has_unknown_products: bool = False
    """Products whose shape is not in the instruction (tcgen05)."""
    access_bytes: float = 0.0
    """Global memory by plain or asynchronous copies, per thread."""
    plain_loads: float = 0.0
    """Loads into registers, for whose data the warp waits."""
    async_copies: float = 0.0
    local_bytes: float = 0.0
    """Local memory, per thread."""
    barriers: float = 0.0
    shuffles: float = 0.0
    full_waits: float = 0.0
    """Waits for every asynchronous product that was issued."""
    stores: float = 0.0

    def add(self, work: "Work", times: float = 1.0) -> None:
        self.instructions += times * work.instructions
        for pipe, clocks in work.clocks.items():
            self.clocks[pipe] += clocks * times
        self.tensor_flop += times * work.tensor_flop
        self.async_products += times * work.async_products
        self.has_unknown_products |= work.has_unknown_products
        self.access_bytes += times * work.access_bytes
        self.plain_loads += times * work.plain_loads
        self.async_copies += times * work.async_copies
        self.local_bytes += times * work.local_bytes
        self.barriers += times * work.barriers
        self.shuffles += times * work.shuffles
        self.full_waits += times * work.full_waits
        self.stores += times * work.stores


def work_of(instructions: Sequence[Instruction], rates: Rates) -> Work:
    """Add up what a piece of code costs one warp."""
    work = Work()
    cost = _add_gcn if instructions and instructions[0].mnemonic.islower() else _add_sass
    for instruction in instructions:
        cost(work, instruction, rates)
    return work


# --- NVIDIA


def _add_sass(work: Work, instruction: Instruction, rates: Rates) -> None:
    name, modifiers = instruction.name, instruction.modifiers
    if name == "NOP":
        return
    work.instructions += 1
    work.clocks[ISSUE] += 1 / (rates.issue * ISSUE_EFFICIENCY)
    if name in {"LDG", "LD", "STG", "ST", "LDGSTS", "ATOM", "ATOMG", "RED", "REDG"}:
        _add_access(work=work, name=name, width=_width(modifiers), rates=rates)
    elif name in {"LDL", "STL"}:
        width = _width(modifiers)
        work.local_bytes += width
        work.clocks[LOAD_STORE] += rates.warp_threads * width / rates.l1_bytes
    elif name in {"LDS", "STS", "LDSM", "STSM", "ATOMS"}:
        width = _width(modifiers) if name[-1] == "S" else 4 * _matrix_count(modifiers)
        work.clocks[SHARED] += max(1.0, rates.warp_threads * width / rates.shared_bytes)
    elif name == "SHFL":
        work.shuffles += 1
        work.clocks[SHARED] += 1.0
    elif name.startswith(("UTMALDG", "UBLKCP")):
        work.async_copies += 1
    elif _GROUP_PRODUCT.fullmatch(name) or _SYNC_PRODUCT.fullmatch(name):
        _add_product(work, instruction, rates)
    elif name.startswith("UTC") and name.endswith("MMA"):
        # their shape is in a descriptor, which the code does not show
        work.has_unknown_products = True
    elif name == "BAR":
        work.barriers += 1
    elif name == "WARPGROUP" and "DEPBAR" in modifiers:
        work.full_waits += instruction.operands.replace(" ", "").endswith(",0x0")
    elif _CONTROL.match(name) or _UNIFORM.match(name):
        # counted as instructions, and no unit is busy with them
        return
    else:
        pipe, clocks = _arithmetic(name, rates)
        work.clocks[pipe] += clocks


def _arithmetic(name: str, rates: Rates) -> tuple[str, float]:
    """Return the pipe of an arithmetic instruction, and its clocks."""
    if _SPECIAL_NAMES.fullmatch(name):
        return SPECIAL, rates.warp_threads / rates.special_lanes
    if _DOUBLE_NAMES.fullmatch(name):
        return DOUBLE, rates.warp_threads / rates.double_lanes
    if _FMA_NAMES.fullmatch(name):
        return FMA, rates.warp_threads / rates.fma_lanes
    # integer products run on half of the FMA pipe; as moves they do too
    if _INTEGER_MULTIPLY.match(name):
        return FMA, rates.warp_threads / min(rates.fma_lanes, 64)
    return ALU, rates.warp_threads / rates.alu_lanes


def _width(modifiers: Sequence[str]) -> int:
    """Bytes of an access per thread."""
    return next((_WIDTHS[word] for word in modifiers if word in _WIDTHS), 4)


def _matrix_count(modifiers: Sequence[str]) -> int:
    """8x8 matrices that one instruction moves, each 4 bytes per thread."""
    return next((int(word) for word in modifiers if word in {"2", "4"}), 1)


def _add_access(work: Work, name: str, width: int, rates: Rates) -> None:
    work.access_bytes += width
    clocks = max(1.0, rates.warp_threads * width / rates.l1_bytes)
    work.clocks[LOAD_STORE] += clocks
    if name in {"LDG", "LD", "ATOM", "ATOMG"}:
        work.plain_loads += 1
    elif name == "LDGSTS":
        work.async_copies += 1
    else:
        work.stores += 1


def _add_product(work: Work, instruction: Instruction, rates: Rates) -> None:
    shape = _SHAPE.search(instruction.mnemonic)
    share = 1.0
    if shape is not None:
        rows, columns, depth = map(int, shape.groups())
        # all four warps of a group issue it, for one product
        flop = 2 * rows * columns * depth / 4
        work.async_products += 1
    else:
        words = [word for word in instruction.modifiers if word in _SYNC_SHAPES]
        flop = 2 * _SYNC_SHAPES[words[0] if words else _USUAL_SHAPE]
        share = rates.old_tensor_share
    work.tensor_flop += flop
    rate = rates.tensor_flop(_dtype_of_product(instruction)) * share
    work.clocks[TENSOR] += flop / rate


def _dtype_of_product(instruction: Instruction) -> str:
    if instruction.name.startswith("Q") or "E4M3" in instruction.mnemonic:
        return "float8_e4m3fn"
    if instruction.name.startswith("I"):
        return "int8"
    return "tf32" if "TF32" in instruction.mnemonic else "bfloat16"


# --- AMD


def _add_gcn(work: Work, instruction: Instruction, rates: Rates) -> None:
    name = instruction.mnemonic
    if name in {"s_nop", "s_endpgm"}:
        return
    work.instructions += 1
    access = _GCN_ACCESS.match(name)
    if access is not None:
        _add_gcn_access(work, access, instruction, rates)
    elif name.startswith("ds_"):
        _add_lds(work, name, rates)
    elif name.startswith("s_barrier"):
        work.barriers += 1
    elif product := _GCN_PRODUCT.match(name):
        rows, columns, depth = map(int, product.groups())
        flop = 2 * rows * columns * depth
        work.tensor_flop += flop
        work.clocks[TENSOR] += flop / rates.tensor_flop(_dtype_of_mfma(name))
        work.clocks[ISSUE] += 1 / (rates.issue * ISSUE_EFFICIENCY)
    elif name.startswith("v_"):
        is_special = _GCN_SPECIAL.match(name) is not None
        lanes = rates.special_lanes if is_special else rates.fma_lanes
        if _GCN_DOUBLE.match(name):
            lanes = rates.double_lanes
        if name.endswith("_dpp"):
            work.shuffles += 1
        # one vector pipe: its clocks are what the scheduler has to give
        work.clocks[ISSUE] += rates.warp_threads / (lanes * ISSUE_EFFICIENCY)
        if is_special:
            work.clocks[SPECIAL] += rates.warp_threads / lanes


def _add_gcn_access(
    work: Work, access: re.Match[str], instruction: Instruction, rates: Rates
) -> None:
    width = _gcn_width(access[3])
    clocks = rates.warp_threads * width / rates.l1_bytes
    work.clocks[LOAD_STORE] += max(1.0, clocks)
    # local memory: spilled registers and arrays
    if access[1] == "scratch":
        work.local_bytes += width
        return
    work.access_bytes += width
    is_to_lds = "_lds_" in instruction.mnemonic or instruction.operands.endswith(" lds")
    if access[2] == "store":
        work.stores += 1
    elif is_to_lds:
        work.async_copies += 1
    else:
        work.plain_loads += 1


def _gcn_width(word: str) -> int:
    if "byte" in word or "d16" in word:
        return 1
    if "short" in word:
        return 2
    match = _GCN_BYTES.match(word)
    if match is None or match[1] is None:
        return 4
    count = int(match[1])
    # `dwordx4` counts words, `b128` bits
    if word.startswith("dword"):
        return 4 * count
    return count // 8


def _add_lds(work: Work, name: str, rates: Rates) -> None:
    match = _GCN_LDS.match(name)
    if match is None:
        work.shuffles += "permute" in name or "swizzle" in name
        work.clocks[SHARED] += rates.warp_threads * 4 / rates.shared_bytes
        return
    width = int(match[3]) // 8 * (2 if match[2] else 1)
    work.clocks[SHARED] += rates.warp_threads * width / rates.shared_bytes


def _dtype_of_mfma(name: str) -> str:
    if "fp8" in name or "bf8" in name or "f8f6f4" in name:
        return "float8_e4m3fn"
    if "_i8" in name or "_i32_" in name:
        return "int8"
    return "float32" if name.endswith("_f32") else "bfloat16"
