"""Start processes quickly: they are forked from a process that has already loaded torch, Triton and
other packages.

Each is as separate as a new process, with its own environment, folder, descriptors and exit status.
"""
