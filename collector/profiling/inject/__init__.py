"""Goes before a profiled program's PYTHONPATH; uses only the standard library, and no other module
of ours.
"""
