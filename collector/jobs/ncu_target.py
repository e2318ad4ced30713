"""The process that Nsight Compute profiles: it makes one call of one case between profiler start
and stop.

Inputs, warm-up and autotuning are not counted. As in a worker, all our modules are imported before
the suite.
"""

import contextlib
from pathlib import Path

import torch

from roofwatch.collector.jobs.case_call import compiled, failure_of, prepare_call
from roofwatch.collector.jobs.kernel_info import find_case
from roofwatch.collector.profiling.ncu_count import ANSWER, NcuJob
from roofwatch.collector.suite import load_suite
from roofwatch.model.machine import Outcome
from roofwatch.model.worker_protocol import Failure


def main(job_file: str) -> None:
    """Do the job in a file and write the answer."""
    job = NcuJob.model_validate_json(Path(job_file).read_bytes())
    job.answer.write_bytes(ANSWER.dump_json(_run(job)))


def _run(job: NcuJob) -> Failure | None:
    """Warm up, then call the implementation while Nsight Compute listens."""
    on_gpu = job.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        return Failure(outcome=Outcome.UNSUPPORTED, message="torch sees no GPU here")
    try:
        spec, case, implementation = find_case(
            specs=load_suite(job.source),
            case_id=job.case_id,
            implementation=job.implementation,
        )
        if implementation.is_compiled:
            launch = compiled(implementation)
        else:
            launch = implementation.launch
        call = prepare_call(
            launch=launch,
            spec=spec,
            case=case,
            device=job.device,
        )
        for _ in range(job.warm_up_count):
            call()
        if on_gpu:
            torch.cuda.synchronize()
        with torch.cuda.profiler.profile() if on_gpu else contextlib.nullcontext():
            call()
            if on_gpu:
                torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  whatever a kernel raises is the outcome of the case
        return failure_of(error)
    return None
