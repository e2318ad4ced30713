"""What one run of an instruction by one warp costs, by pipe, in clocks of the multiprocessor.

A pipe that all warps share is busy for as many clocks as the multiprocessor needs for that
instruction of one warp. Sources: `rates.py`.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

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
_WIDTHS = {
    "U8": 1,
    "S8": 1,
    "U16": 2,
    "S16": 2,
    "64": 8,
    "128": 16,
    "256": 32,
}

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
        """Add the work of a piece of code that runs `times` times."""
        for count in _COUNTS:
            total = getattr(self, count) + times * getattr(work, count)
            setattr(self, count, total)
        for pipe, clocks in work.clocks.items():
            self.clocks[pipe] += times * clocks
        self.has_unknown_products |= work.has_unknown_products


_COUNTS = tuple(field.name for field in fields(Work) if field.type is float)


def work_of(instructions: Sequence[Instruction], rates: Rates) -> Work:
    """Add up what a piece of code costs one warp."""
    work = Work()
    # AMD's mnemonics are lower case, NVIDIA's upper case
    is_gcn = bool(instructions) and instructions[0].mnemonic.islower()
    add_instruction = _add_gcn if is_gcn else _add_sass
    for instruction in instructions:
        add_instruction(work, instruction, rates)
    return work


def _add_issue(work: Work, rates: Rates) -> None:
    """Let the scheduler be busy with one instruction."""
    work.clocks[ISSUE] += 1 / (rates.issue * ISSUE_EFFICIENCY)


def _transfer_clocks(thread_bytes: float, bytes_per_clock: float, rates: Rates) -> float:
    """Clocks to move some bytes of each thread of a warp."""
    warp_bytes = rates.warp_threads * thread_bytes
    return warp_bytes / bytes_per_clock


# --- NVIDIA


def _add_sass(work: Work, instruction: Instruction, rates: Rates) -> None:
    """Add the clocks and bytes of an NVIDIA instruction."""
    name = instruction.name
    modifiers = instruction.modifiers
    if name == "NOP":
        return
    work.instructions += 1
    _add_issue(work, rates)
    if name in {"LDG", "LD", "STG", "ST", "LDGSTS", "ATOM", "ATOMG", "RED", "REDG"}:
        _add_access(
            work=work,
            name=name,
            width=_width(modifiers),
            rates=rates,
        )
    elif name in {"LDL", "STL"}:
        width = _width(modifiers)
        work.local_bytes += width
        work.clocks[LOAD_STORE] += _transfer_clocks(width, rates.l1_bytes, rates)
    elif name in {"LDS", "STS", "ATOMS"}:
        _add_shared(work, _width(modifiers), rates)
    elif name in {"LDSM", "STSM"}:
        _add_shared(work, 4 * _matrix_count(modifiers), rates)
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
        # a wait for products until none, 0, is running
        operands = instruction.operands.replace(" ", "")
        work.full_waits += operands.endswith(",0x0")
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
    for word in modifiers:
        if word in _WIDTHS:
            return _WIDTHS[word]
    return 4


def _matrix_count(modifiers: Sequence[str]) -> int:
    """8x8 matrices that one instruction moves, each 4 bytes per thread."""
    for word in modifiers:
        if word in {"2", "4"}:
            return int(word)
    return 1


def _add_shared(work: Work, width: int, rates: Rates) -> None:
    clocks = _transfer_clocks(width, rates.shared_bytes, rates)
    # a narrow access takes a clock too
    work.clocks[SHARED] += max(1.0, clocks)


def _add_access(
    work: Work,
    name: str,
    width: int,
    rates: Rates,
) -> None:
    """Add an access to global memory, with `width` bytes a thread."""
    work.access_bytes += width
    clocks = _transfer_clocks(width, rates.l1_bytes, rates)
    work.clocks[LOAD_STORE] += max(1.0, clocks)
    if name in {"LDG", "LD", "ATOM", "ATOMG"}:
        work.plain_loads += 1
    elif name == "LDGSTS":
        work.async_copies += 1
    else:
        work.stores += 1


def _add_product(work: Work, instruction: Instruction, rates: Rates) -> None:
    """Add a product of the tensor cores: of a warp group, or of one warp."""
    shape = _SHAPE.search(instruction.mnemonic)
    share = 1.0
    if shape is not None:
        rows, columns, depth = map(int, shape.groups())
        # all four warps of a group issue it, for one product
        flop = 2 * rows * columns * depth / 4
        work.async_products += 1
    else:
        shapes = [word for word in instruction.modifiers if word in _SYNC_SHAPES]
        if shapes:
            products = _SYNC_SHAPES[shapes[0]]
        else:
            products = _SYNC_SHAPES[_USUAL_SHAPE]
        flop = 2 * products
        # the instruction of older devices does not reach the full rate of newer ones
        share = rates.old_tensor_share
    work.tensor_flop += flop
    dtype = _dtype_of_product(instruction)
    flop_per_clock = share * rates.tensor_flop(dtype)
    work.clocks[TENSOR] += flop / flop_per_clock


def _dtype_of_product(instruction: Instruction) -> str:
    """The dtype of an NVIDIA product, which decides its rate."""
    if instruction.name.startswith("Q") or "E4M3" in instruction.mnemonic:
        return "float8_e4m3fn"
    if instruction.name.startswith("I"):
        return "int8"
    if "TF32" in instruction.mnemonic:
        return "tf32"
    # float16 has the same rate
    return "bfloat16"


# --- AMD


def _add_gcn(work: Work, instruction: Instruction, rates: Rates) -> None:
    """Add the clocks and bytes of an AMD instruction."""
    name = instruction.mnemonic
    if name in {"s_nop", "s_endpgm"}:
        return
    work.instructions += 1
    access = _GCN_ACCESS.match(name)
    if access is not None:
        _add_gcn_access(
            work=work,
            access=access,
            instruction=instruction,
            rates=rates,
        )
    elif name.startswith("ds_"):
        _add_lds(work, name, rates)
    elif name.startswith("s_barrier"):
        work.barriers += 1
    elif product := _GCN_PRODUCT.match(name):
        rows, columns, depth = map(int, product.groups())
        flop = 2 * rows * columns * depth
        flop_per_clock = rates.tensor_flop(_dtype_of_mfma(name))
        work.tensor_flop += flop
        work.clocks[TENSOR] += flop / flop_per_clock
        _add_issue(work, rates)
    elif name.startswith("v_"):
        _add_vector(work, name, rates)


def _add_vector(work: Work, name: str, rates: Rates) -> None:
    """Add an instruction of the vector units."""
    is_special = _GCN_SPECIAL.match(name) is not None
    if is_special:
        lanes = rates.special_lanes
    else:
        lanes = rates.fma_lanes
    if _GCN_DOUBLE.match(name):
        lanes = rates.double_lanes
    # an operand comes from another lane of the warp
    if name.endswith("_dpp"):
        work.shuffles += 1
    clocks = rates.warp_threads / lanes
    # one vector pipe: its clocks are what the scheduler has to give
    work.clocks[ISSUE] += clocks / ISSUE_EFFICIENCY
    if is_special:
        work.clocks[SPECIAL] += clocks


def _add_gcn_access(
    work: Work,
    access: re.Match[str],
    instruction: Instruction,
    rates: Rates,
) -> None:
    """Add an access to global or local memory."""
    width = _gcn_width(access[3])
    clocks = _transfer_clocks(width, rates.l1_bytes, rates)
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
    """Bytes a lane, from the last word of the mnemonic."""
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
    """Add an access to shared memory, or an exchange between lanes."""
    match = _GCN_LDS.match(name)
    if match is None:
        # exchanges between lanes go through the same unit, 4 bytes a lane
        width = 4
        work.shuffles += "permute" in name or "swizzle" in name
    else:
        width = int(match[3]) // 8
        # `ds_read2_b32` makes two accesses
        if match[2]:
            width *= 2
    work.clocks[SHARED] += _transfer_clocks(width, rates.shared_bytes, rates)


def _dtype_of_mfma(name: str) -> str:
    """The dtype of an AMD product, which decides its rate."""
    if "fp8" in name or "bf8" in name or "f8f6f4" in name:
        return "float8_e4m3fn"
    if "_i8" in name or "_i32_" in name:
        return "int8"
    if name.endswith("_f32"):
        return "float32"
    return "bfloat16"
