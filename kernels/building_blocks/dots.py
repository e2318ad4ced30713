"""One matrix product for all kernels: as exact as its operands on every target."""

import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.fp8 import from_e4m3, halved_in_e4m3fnuz
from roofwatch.kernels.target import IS_INTERPRETED


@triton.jit
def dot(a, b, acc):
    """`a @ b + acc` with a float32 accumulator.

    Float32 operands keep their precision: Triton's default on NVIDIA would round them to TF32, which has ten bits
    of mantissa. Three TF32 products restore it on the tensor cores; AMD multiplies float32 matrices as they are.
    """
    if IS_INTERPRETED:
        # the interpreter holds bfloat16 as its bit pattern and would multiply the patterns as integers
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    elif a.dtype == tl.float32 and tl.target_info.is_cuda():
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.jit
def dot_8_bit(a, b, acc):
    """`a @ b + acc` of int8 with an int32 accumulator, or of e4m3 with a float32 one.

    Bytes (uint8) hold e4m3 for targets that have none (fp8.py). CDNA 3 multiplies a sibling of it; elsewhere
    the bytes are multiplied as float16. Hopper's tensor cores add fp8 products with some 14 bits; every 128 of them are
    added to acc outside of the tensor cores. Source: DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section
    3.3.2.
    """
    if a.dtype == tl.int8:
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    elif a.dtype == tl.uint8 and not IS_INTERPRETED and tl.target_info.is_hip_cdna3():
        halved_a = halved_in_e4m3fnuz(a).to(tl.float8e4b8, bitcast=True)
        halved_b = halved_in_e4m3fnuz(b).to(tl.float8e4b8, bitcast=True)
        acc += tl.dot(halved_a, halved_b) * 4.0
    elif a.dtype == tl.uint8:
        acc = dot(from_e4m3(a), from_e4m3(b), acc)
    else:
        n_imprecise: tl.constexpr = min(a.shape[1], 128)
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=n_imprecise)
    return acc
