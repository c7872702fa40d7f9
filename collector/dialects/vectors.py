"""Vector stores as OpenLLMetry's and other instrumentations tell of them: `db.system` in any spelling, and attributes under the store's own name.

Source: payloads of opentelemetry-instrumentation-qdrant 0.62.4; the other stores from opentelemetry-semantic-conventions-ai, untested.
"""

from collector.dialects import Dialect, Field, SpanName

ORDER = 91
_STORES = ("qdrant", "pinecone", "chroma", "milvus", "weaviate", "lancedb", "marqo", "elasticsearch", "opensearch", "pgvector", "redis", "faiss")
_WRITES = "upsert|upload_points|upload_collection|upload_records|insert|update|delete|add|add_documents|create_collection|set_payload|overwrite_payload"
DIALECT = Dialect(
    precedence=80,
    name="vectors",
    prefixes=("db.vector.", "vector_store.", *(f"{store}." for store in _STORES)),
    scopes=tuple(f"opentelemetry.instrumentation.{store}" for store in ("qdrant", "pinecone", "chromadb", "milvus", "weaviate", "lancedb", "marqo")),
    fields=(Field("operation", "db.vector.operation", rank=8),),
    names=(
        SpanName(rf"(?:{'|'.join(_STORES)})\.(?:\w+\.)*(?:{_WRITES})", "write", "post"),
        SpanName(rf"(?:{'|'.join(_STORES)})\.(?:\w+\.)*(?:query|search|get|fetch|query_points|query_batch|search_batch|recommend|hybrid_search|near_text|peek).*",
                 "plain", "retrieval"),
    ),
    text_keys=("db.query.result", "db.search.result", "db.vector.query.filter"),
)
