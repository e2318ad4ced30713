"""One matrix product for all kernels: as exact as its operands on every target."""

import triton
import triton.language as tl

# Triton decides the same way, at the same moment, whether a decorated function is compiled or interpreted.
_IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def dot(a, b, acc):
    """`a @ b + acc` with a float32 accumulator.

    Float32 operands keep their precision: Triton's default on NVIDIA would round them to TF32, which has ten bits
    of mantissa. Three TF32 products restore it on the tensor cores; AMD multiplies float32 matrices as they are.
    """
    if _IS_INTERPRETED:
        # the interpreter holds bfloat16 as its bit pattern and would multiply the patterns as integers
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    elif a.dtype == tl.float32 and tl.target_info.is_cuda():
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc
