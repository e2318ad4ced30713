"""Properties are checked on the same examples every time, and however slow the machine is."""

from hypothesis import settings

settings.register_profile("judgement", derandomize=True, deadline=None)
settings.load_profile("judgement")
