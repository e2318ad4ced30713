"""What `roofwatch profile` puts before the PYTHONPATH of a program: it needs the standard library alone, whatever
Python the program runs under, and no other module of ours.
"""
