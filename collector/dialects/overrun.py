"""Our own attributes, for what the conventions cannot say. They come first: whoever sets them means them."""

from overrun.collector.dialects import Dialect, Field, Metric

ORDER = 0
DIALECT = Dialect(
    precedence=99,
    name="overrun",
    prefixes=("overrun.",),
    fields=(
        Field("route", "overrun.route", rank=-10),
        Field("prefix_hash", "overrun.prefix_hash"),
        Field("depends_on", "overrun.depends_on"),
        Field("workload", "overrun.workload"),
        Field("turn", "overrun.turn", "int"),
    ),
    metrics=(
        Metric("overrun.predictor.p90_coverage", "predictor_p90_coverage"),
        Metric("overrun.predictor.error_reduction", "predictor_error_reduction"),
    ),
)
