"""How is the tail drawn before and after a fix? An exceedance plot: what share of requests takes longer, both axes in powers of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from overrun.analysis.whatif.prediction import Curve
from overrun.dashboard.plot import Spec, axis, label, layout, legend, line, note
from overrun.dashboard.theme import Theme, say_ms, say_tick

_SHARES: Final = (
    (1.0, "all"),
    (0.5, "50 %"),
    (0.1, "10 %"),
    (0.05, "5 %"),
    (0.01, "1 %"),
    (0.001, "0.1 %"),
    (0.0001, "0.01 %"),
)
_TICKS: Final = tuple(base * 10.0**power for power in range(6) for base in (1.0, 2.0, 5.0))


# How other predictions are told apart: by their dashes, not by colours that stand for stages.
_DASHES: Final = ("dot", "dashdot", "longdash")


def exceedance(
    curve: Curve,
    limit_ms: float | None,
    percentile: float,
    theme: Theme,
    own_limits: int = 0,
    others: Sequence[tuple[str, Curve]] = (),
) -> Spec:
    """The measured curve solid, the predicted one dashed; the judged percentile and the limit as lines (with `own_limits`: the common one). `others` are
    the predictions of further fixes, by their titles."""
    drawn = [
        ("measured", curve.exceeded, curve.before_ms, theme.muted, "solid"),
        ("predicted", curve.exceeded, curve.after_ms, theme.accent, "dash"),
        *(
            (label(title, 40), other.exceeded, other.after_ms, theme.ink, dash)
            for (title, other), dash in zip(others, _DASHES, strict=False)
        ),
    ]
    known = [ms for _, _, values, _, _ in drawn for ms in values if ms > 0.0]
    low, high = (min(known), max(known)) if known else (1.0, 1000.0)
    low = max(low, high / 1e4)
    high = max(high, (limit_ms or 0.0) * 1.05)
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [max(ms, low) for ms in values],
            "y": list(shares),
            "line": {"color": colour, "width": 2.6, "dash": dash},
            "hoverinfo": "text",
            "hovertext": [
                f"{name}: {100.0 * share:.3g} % take longer than {say_ms(ms)}"
                for ms, share in zip(values, shares, strict=True)
            ],
        }
        for name, shares, values, colour, dash in drawn
    ]
    least = min((share for share in curve.exceeded if share > 0.0), default=1e-3)
    judged = 1.0 - percentile / 100.0
    shares = [(share, name) for share, name in _SHARES if share >= least * 0.99]
    marks = [ms for ms in _TICKS if low <= ms <= high * 1.02]
    shape = layout(theme, height=390, left=58, right=16, top=30)
    shape |= {
        "showlegend": True,
        "legend": legend(theme, y=1.06),
        "xaxis": axis(
            theme,
            type="log",
            range=[math.log10(low), math.log10(high * 1.1)],
            tickvals=marks,
            ticktext=[say_tick(ms) for ms in marks],
        ),
        "yaxis": axis(
            theme,
            type="log",
            range=[math.log10(least * 0.9), 0.04],
            tickvals=[share for share, _ in shares],
            ticktext=[name for _, name in shares],
            title={"text": "share of requests slower", "font": {"size": 12, "color": theme.muted}},
        ),
        "shapes": [line(0, 1, judged, judged, theme.muted, 1, dash="dot", xref="paper")]
        if judged >= least
        else [],
        "annotations": [],
    }
    if limit_ms:
        shape["shapes"].append(
            line(limit_ms, limit_ms, 0, 1, theme.ink, 1.5, dash="dash", yref="paper")
        )
        words = f"{'common ' if own_limits else ''}limit {say_tick(limit_ms)}"
        shape["annotations"].append(
            note(math.log10(limit_ms), 1.0, words, theme, yref="paper", yshift=1)
            | {"yanchor": "bottom"}
        )
    return {"data": data, "layout": shape}
