"""What the autotuner tried for one function: times over two parameters."""

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from roofwatch.collector.record.measurement import Autotuning
from roofwatch.dashboard.charts.style import BLUE, lay_out
from roofwatch.dashboard.wording import escaped, shortened

_MAX_VALUES = 16
"""Maximum values of a parameter on an axis."""


def landscape_figure(tuned: Autotuning) -> go.Figure | None:
    """Draw the best time for each pair of values of two parameters, as a multiple of the fastest.

    The parameters are the two between whose values the log time differs most. None if fewer than two numeric
    parameters vary.
    """
    tried = pd.DataFrame([{**one.configuration, "": one.time_ns} for one in tuned.timings if one.time_ns is not None])
    log_time = np.log(tried.pop("")) if len(tried) else pd.Series(dtype=float)
    numeric = [name for name in tried.select_dtypes("number") if 1 < tried[name].nunique() <= _MAX_VALUES]
    numeric.sort(key=lambda name: (-log_time.groupby(tried[name]).transform("mean").var(), name))
    if len(numeric) < 2:
        return None
    across, down = numeric[:2]
    best = log_time.groupby([tried[down], tried[across]]).min().unstack()
    relative = np.exp(best - log_time.min())
    relative.index, relative.columns = relative.index.astype(str), relative.columns.astype(str)
    figure = px.imshow(relative, text_auto=".2f", aspect="auto", color_continuous_scale=[BLUE, "#D9E9F3"])
    figure.update_coloraxes(showscale=False)
    figure.update_traces(xgap=2, ygap=2, hovertemplate=None)
    return lay_out(
        figure,
        height=140 + 36 * len(relative),
        xaxis={"title": escaped(shortened(str(across), length=40)), "type": "category"},
        yaxis={"title": escaped(shortened(str(down), length=40)), "type": "category", "autorange": "reversed"},
    )
