"""What Nsight Compute prints where it cannot count, and what is said of it."""

from roofwatch.collector.profiling.ncu.command import last_error, saw_no_kernel, trouble_of

PERMISSION = """==PROF== Connected to process 87374 (/usr/bin/python3.11)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target \
device 0. For instructions on enabling permissions see https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 87374
==WARNING== No kernels were profiled.
"""
HELD = """==PROF== Connected to process 7508 (/usr/bin/python3.11)

==ERROR== An error was reported by the driver

==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is \
concurrently collecting profiling data.
==ERROR== Failed to profile "a_kernel" in process 7508
==PROF== Trying to shutdown target application
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled.
"""
FINE = """==PROF== Connected to process 1 (/usr/bin/python3.11)
==PROF== Profiling "a_kernel": 0%....50%....100% - 38 passes
==PROF== Disconnected from process 1
==PROF== Report: /tmp/report.ncu-rep
"""


def test_a_missing_permission_comes_with_every_way_out() -> None:
    words = trouble_of(PERMISSION)

    assert words is not None
    for way_out in ("sudo -E", "NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN"):
        assert way_out in words


def test_counters_that_another_tool_holds_come_with_how_to_pause_it() -> None:
    words = trouble_of(HELD)

    assert words is not None
    assert "dcgmi profile --pause" in words
    assert "dcgmi profile --resume" in words


def test_a_metric_that_is_not_known_is_named() -> None:
    words = trouble_of("==ERROR== Failed to find metric dram__bites.sum\n")
    assert words is not None
    assert "dram__bites.sum" in words


def test_what_the_program_itself_prints_is_no_trouble_of_the_tool() -> None:
    assert trouble_of("a test prints ERR_NVGPUCTRPERM\n" + FINE) is None
    assert last_error(FINE) is None


def test_the_last_error_is_one_of_the_tool_s_own() -> None:
    failed = "==ERROR== Could not open the device\n==ERROR== The application returned an error code (1).\n"
    assert last_error(failed) == "Could not open the device"
    assert last_error("==ERROR== The application returned an error code (11).\n") is None


def test_a_call_without_kernels_is_told_apart() -> None:
    assert saw_no_kernel("==WARNING== No kernels were profiled.\n")
    assert not saw_no_kernel(FINE)
