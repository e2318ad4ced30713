"""The colours of all figures: those of Okabe and Ito, which colour-blind people can distinguish.

Neutral parts are mid-grey, readable on light and dark pages.
"""

from roofwatch.model.verdict import Verdict

# Okabe and Ito, "Color Universal Design" (2008), without the black and the yellow that vanish on
# one of the two pages
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY_BLUE = "#56B4E9"
VERMILLION = "#D55E00"
GREY = "#888888"
# this blue is dim on a dark page, which sets a lighter one; Plotly knows no variables
PAGE_BLUE = f"var(--rw-blue, {BLUE})"
"""The blue of drawings in HTML and SVG."""

COLOUR_OF_VERDICT = {Verdict.REGRESSED: VERMILLION, Verdict.IMPROVED: PAGE_BLUE}
"""All other verdicts are grey."""
