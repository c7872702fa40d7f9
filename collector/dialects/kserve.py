"""KServe's model server in Python, around any model. Its runtime for language models answers with vLLM's page instead.

Source: a page of kserve 0.21.0. What it takes before and after a prediction has no indicator here.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 94
DIALECT = Dialect(
    name="kserve",
    metrics=(Metric("request_predict_seconds", "inference"),),
    model_labels=("model_name",),
)
