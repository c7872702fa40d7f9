"""Vector stores as OpenLLMetry's and other instrumentations tell of them: `db.system` in any spelling, and attributes under the store's own name.

Source: payloads of opentelemetry-instrumentation-qdrant, -chromadb and -lancedb 0.62.4, -milvus and -pinecone 0.60.0; the names of -weaviate and -marqo 0.62.4.
"""

from overrun.collector.dialects import Dialect, Field, SpanName

ORDER = 91
_STORES = (
    "qdrant",
    "pinecone",
    "chroma",
    "milvus",
    "weaviate",
    "lancedb",
    "marqo",
    "elasticsearch",
    "opensearch",
    "pgvector",
    "redis",
    "faiss",
)
_STORE = rf"(?:db\.)?(?:{'|'.join(_STORES)})\.(?:\w+\.)*"  # `db.weaviate.collections.data.insert`
_WRITES = "(?:batch_)?(?:upsert|upload|insert|update|delete|add|create|replace|set|overwrite|flush)"
DIALECT = Dialect(
    precedence=80,
    name="vectors",
    prefixes=("db.vector.", "vector_store.", *(f"{store}." for store in _STORES)),
    scopes=tuple(
        f"opentelemetry.instrumentation.{store}"
        for store in ("qdrant", "pinecone", "chromadb", "milvus", "weaviate", "lancedb", "marqo")
    ),
    fields=(Field("operation", "db.vector.operation", rank=8),),
    names=(
        SpanName(rf"{_STORE}{_WRITES}(?:_.*)?", "write", "post"),
        SpanName(
            rf"{_STORE}(?:query|search|get|fetch|recommend|discover|scroll|hybrid_search|near_text|peek|graphql|aggregate).*",
            "plain",
            "retrieval",
        ),
    ),
    text_keys=("db.query.result", "db.search.result", "db.vector.query.filter"),
)
