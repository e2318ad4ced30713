"""The GPUs, kernels and planted changes of the made-up history."""

from dataclasses import dataclass

COMMIT_COUNT = 120


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    memory_gib: int
    power_limit_w: float
    kind: str
    compute_capability: str
    target: str
    memory_per_s: float
    """Measured ceilings."""
    bfloat16_per_s: float
    float8_per_s: float


GPUS = (
    Gpu(
        name="NVIDIA H100",
        memory_gib=80,
        power_limit_w=700,
        kind="cuda",
        compute_capability="9.0",
        target="sm_90",
        memory_per_s=2.9e12,
        bfloat16_per_s=6.6e14,
        float8_per_s=1.28e15,
    ),
    Gpu(
        name="NVIDIA B200",
        memory_gib=180,
        power_limit_w=1_000,
        kind="cuda",
        compute_capability="10.0",
        target="sm_100",
        memory_per_s=6.9e12,
        bfloat16_per_s=1.55e15,
        float8_per_s=3.1e15,
    ),
    Gpu(
        name="AMD MI300X",
        memory_gib=192,
        power_limit_w=750,
        kind="hip",
        compute_capability="9.4",
        target="gfx942",
        memory_per_s=4.2e12,
        bfloat16_per_s=5.9e14,
        float8_per_s=1.1e15,
    ),
)


@dataclass(frozen=True)
class Kernel:
    name: str
    family: str
    dtype: str
    shapes: tuple[str, ...]
    share: float
    """Share of the measured ceiling that our implementation reaches."""
    rival: str

    @property
    def is_compute_bound(self) -> bool:
        return self.family in {"matmul", "moe", "attention"}


KERNELS = (
    Kernel(
        name="rms_norm",
        family="normalisation",
        dtype="bfloat16",
        shapes=("n=8192", "n=16384", "n=5120"),
        share=0.86,
        rival="torch",
    ),
    Kernel(
        name="layer_norm",
        family="normalisation",
        dtype="bfloat16",
        shapes=("n=8192", "n=12288"),
        share=0.83,
        rival="torch",
    ),
    Kernel(
        name="softmax",
        family="reduction",
        dtype="bfloat16",
        shapes=("n=4096", "n=128256"),
        share=0.66,
        rival="torch",
    ),
    Kernel(
        name="swiglu",
        family="activation",
        dtype="bfloat16",
        shapes=("n=14336", "n=28672"),
        share=0.9,
        rival="torch",
    ),
    Kernel(
        name="quantize_fp8",
        family="quantisation",
        dtype="float8_e4m3fn",
        shapes=("n=8192", "n=16384"),
        share=0.78,
        rival="torch",
    ),
    Kernel(
        name="gemm",
        family="matmul",
        dtype="bfloat16",
        shapes=("m=4096", "m=8192"),
        share=0.93,
        rival="cublas",
    ),
    Kernel(
        name="gemm_fp8",
        family="matmul",
        dtype="float8_e4m3fn",
        shapes=("m=4096", "m=8192", "m=512"),
        share=0.71,
        rival="cublas",
    ),
    Kernel(
        name="fused_moe",
        family="moe",
        dtype="bfloat16",
        shapes=("m=4096", "m=256"),
        share=0.58,
        rival="torch",
    ),
    Kernel(
        name="flash_attention",
        family="attention",
        dtype="bfloat16",
        shapes=("t=4096", "t=16384"),
        share=0.57,
        rival="cudnn",
    ),
    Kernel(
        name="paged_attention",
        family="attention",
        dtype="bfloat16",
        shapes=("t=8192", "t=32768"),
        share=0.6,
        rival="torch",
    ),
)


@dataclass(frozen=True)
class PlantedStep:
    """A change of one kernel at one commit."""

    commit_number: int
    kernel: str
    factor: float
    subject: str
    gpus: frozenset[str] = frozenset(gpu.name for gpu in GPUS)
    shapes: tuple[str, ...] = ()
    """All if empty."""
    repaired_at: int = COMMIT_COUNT
    is_confirmed: bool = True
    """A pair measured it again."""
    configuration: dict[str, int] | None = None
    """Of the machine code from then on."""

    def is_present(self, kernel: Kernel, number: int) -> bool:
        """Whether the code of a kernel has the change at a commit."""
        is_repaired = number >= self.repaired_at
        return kernel.name == self.kernel and number >= self.commit_number and not is_repaired


PLANTED = (
    PlantedStep(
        commit_number=30,
        kernel="softmax",
        factor=0.83,
        subject="Read each row of softmax once (#1254)",
    ),
    PlantedStep(
        commit_number=44,
        kernel="flash_attention",
        factor=1.22,
        subject="Split the softmax of flash_attention in two passes (#1268)",
        repaired_at=79,
    ),
    PlantedStep(
        commit_number=90,
        kernel="fused_moe",
        factor=1.14,
        subject="Sort tokens by expert on the device (#1301)",
        gpus=frozenset({"NVIDIA H100", "NVIDIA B200"}),
        is_confirmed=False,
    ),
    PlantedStep(
        commit_number=103,
        kernel="rms_norm",
        factor=1.08,
        subject="Compute rms_norm in one pass over padded rows (#1312)",
        gpus=frozenset({"NVIDIA H100"}),
    ),
    PlantedStep(
        commit_number=112,
        kernel="gemm_fp8",
        factor=1.31,
        subject="Use tiles of 128x256x32 in gemm_fp8 (#1317)",
        gpus=frozenset({"NVIDIA B200"}),
        shapes=("m=4096", "m=8192"),
        configuration={
            "BLOCK_M": 128,
            "BLOCK_N": 256,
            "BLOCK_K": 32,
            "num_warps": 4,
        },
    ),
    PlantedStep(
        commit_number=112,
        kernel="quantize_fp8",
        factor=1.09,
        subject="Use tiles of 128x256x32 in gemm_fp8 (#1317)",
        gpus=frozenset({"NVIDIA B200"}),
    ),
    PlantedStep(
        commit_number=115,
        kernel="swiglu",
        factor=0.92,
        subject="Vectorise the loads of swiglu (#1320)",
    ),
    PlantedStep(
        commit_number=COMMIT_COUNT - 1,
        kernel="layer_norm",
        factor=1.17,
        subject="Fuse the residual into layer_norm (#1331)",
        gpus=frozenset({"NVIDIA H100"}),
        is_confirmed=False,
    ),
)
