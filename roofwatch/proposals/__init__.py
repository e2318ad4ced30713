"""Benchmark files that roofwatch writes for kernels which it finds in a repository."""
