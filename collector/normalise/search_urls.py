"""Is an HTTP request a search, or a write, of a vector store or a search engine? By its path, or by the host where the path shows nothing.

Paths and hosts are those of the products' own API references: Qdrant, Chroma, Weaviate, Milvus and Zilliz, Pinecone, turbopuffer, LanceDB Cloud, Marqo,
Elasticsearch, OpenSearch, Solr, Vespa, Typesense, Meilisearch, Algolia, Azure AI Search, Vertex AI, Amazon Bedrock, OpenAI's vector stores, Supabase.
"""

from typing import Final

_END: Final = r"/?(?:[?#]|$)"
_QDRANT: Final = r"/collections/[^/]+/points"
_CHROMA: Final = r"/api/v[0-9]+/(?:tenants/[^/]+/databases/[^/]+/)?collections/[^/]+"
_MILVUS: Final = r"/v[0-9]+/(?:vectordb/entities|vector)"
_FINDS: Final = (
    rf"{_QDRANT}/(?:search|query|recommend|discover|scroll|count|facet)(?:/(?:batch|groups|matrix/[a-z]+))?",
    rf"{_CHROMA}/(?:query|get|search|count)",
    rf"{_MILVUS}/(?:(?:advanced_|hybrid_)?search|query|get)",
    r"/records/namespaces/[^/]+/search",
    r"/v[0-9]+/namespaces/[^/]+/(?:query|multi_query)",
    r"/v1/table/[^/]+/query",
    r"/(?:_search|_msearch|_knn_search|_mget|_count|_async_search)(?:/(?:template|scroll))?",
    r"/solr/[^/]+/(?:select|query)",
    r"/collections/[^/]+/documents/search|/multi_search",
    r"/indexes/[^/]+/(?:search|similar|recommend|query|queries|docs/search)",
    r"/indexes\('[^']+'\)/docs/search\.post\.search",
    r"/[^/]*:(?:findNeighbors|readIndexDatapoints)|/servingConfigs/[^/]+:search",
    r"/knowledgebases/[^/]+/retrieve",
    r"/vector_stores/[^/]+/search",
    r"/rest/v1/rpc/match_[a-z0-9_]+",
    r"/(?:vector|similarity|semantic|hybrid|nearest|knn)[_-]?(?:search|query)",
)
_WRITES: Final = (
    rf"{_QDRANT}/(?:batch|delete|payload(?:/[a-z]+)?|vectors(?:/[a-z]+)?)",
    rf"{_CHROMA}/(?:add|upsert|update|delete)",
    rf"{_MILVUS}/(?:insert|upsert|delete)",
    r"/vectors/(?:upsert|update|delete)|/records/namespaces/[^/]+/upsert",
    r"/v1/batch/objects",
    r"/v1/table/[^/]+/(?:insert|merge_insert|delete|update)",
    r"/_(?:bulk|doc|create|update|update_by_query|delete_by_query)(?:/[^/?#]+)?",
    r"/solr/[^/]+/update(?:/json)?",
    r"/collections/[^/]+/documents(?:/import)?",
    r"/indexes/[^/]+/docs/index|/indexes\('[^']+'\)/docs/search\.index",
)
# Parts of a URL before the question mark: RE2's syntax, for columns and for Python alike.
SEARCH_PATHS: Final = rf"^[^?#]*(?:{'|'.join(_FINDS)}){_END}"
WRITE_PATHS: Final = rf"^[^?#]*(?:{'|'.join(_WRITES)}){_END}"
_PRODUCTS: Final = (
    r"qdrant|weaviate|milvus|zilliz(?:cloud)?|pinecone|chroma(?:db)?|trychroma|turbopuffer|elasticsearch|opensearch|elastic-cloud|vespa(?:-cloud)?|typesense"
    r"|meilisearch|marqo|algolia(?:net)?|solr|lancedb"
)
# A product's name as a word of the host, of a service in a cluster or of a cloud (`qdrant-0.vectors.svc`, `eu.gcp.cloud.qdrant.io`).
_HOST: Final = rf"(?:[^/?#@]*[.@-])?(?:(?:{_PRODUCTS})(?:[.:-][^/?#]*)?|[^/?#]*\.(?:search\.windows\.net|(?:aoss|es)\.amazonaws\.com)(?::[0-9]+)?)"
SEARCH_HOSTS: Final = rf"(?i)^(?:[a-z][a-z0-9+.-]*://)?{_HOST}(?:[/?#]|$)"
# Where a client's span says whom it asks. URLs have the host, too.
HOST_KEYS: Final = ("server.address", "net.peer.name", "http.host", "peer.hostname", "client.name")
