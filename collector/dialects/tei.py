"""Hugging Face text-embeddings-inference. Its queue and times are of embeddings, apart from those of engines that generate. Metrics only.

Source: huggingface/text-embeddings-inference router/src (metrics in seconds). A request may hold several texts: `te_embed_*` are of one text,
`te_request_*` of a request. Untested against a real sender.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 27
DIALECT = Dialect(
    name="tei",
    metrics=(
        Metric("te_queue_size", "embedding_queue_depth"),
        Metric("te_batch_current_size", "embedding_running"),
        Metric("te_request_duration", "embedding_e2e"),
        Metric("te_embed_duration", "embedding_e2e"),
        Metric("te_request_queue_duration", "embedding_queue"),
        Metric("te_embed_queue_duration", "embedding_queue"),
        Metric("te_request_inference_duration", "embedding_inference"),
        Metric("te_embed_inference_duration", "embedding_inference"),
        Metric("te_request_tokenization_duration", "tokenize"),
        Metric("te_request_input_length", "embedding_length", sum_as="embedding_tokens"),
        Metric("te_request_success", "embedding_finished"),
        Metric("te_request_failure", "embedding_aborts"),
    ),
)
