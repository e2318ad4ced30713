"""Processes that would each load torch, Triton or the command line's packages first, forked from one that has.

A test that starts ten of them would otherwise load the same for twenty seconds. What is forked is as separate as a
process that was started anew: it has its own environment, folder, descriptors and exit status.
"""
