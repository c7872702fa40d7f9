"""One search, and one write, of each store that is asked over HTTP: by its path, or by its host where the path is anybody's; and what is none."""

from pathlib import Path

from tests.corpus.otlp import CLIENT, resource, span, write

SEARCHES = (
    "http://10.0.0.7:6333/collections/docs/points/query/batch",
    "https://x1.eu-west-1.aws.cloud.qdrant.io:6333/collections/docs",
    "https://docs-ab12cd.svc.us-east1-gcp.pinecone.io/query",
    "https://docs-ab12cd.svc.pinecone.io/records/namespaces/main/search",
    "http://weaviate:8080/v1/graphql",
    "https://my.weaviate.network/v1/objects/Doc/1",
    "http://db:19530/v2/vectordb/entities/search",
    "https://in03-1.api.gcp-us-west1.zillizcloud.com/v1/vector/query",
    "http://db:8000/api/v2/tenants/t/databases/d/collections/0b1c/query",
    "http://db:8000/api/v1/collections/0b1c/get",
    "http://es-0:9200/docs/_search",
    "https://search-docs-x.us-east-1.es.amazonaws.com/_msearch",
    "http://vespa-container:8080/search/",
    "https://gcp-us-central1.turbopuffer.com/v2/namespaces/docs/query",
    "https://docs.search.windows.net/indexes/docs/docs/search?api-version=2024-07-01",
    "https://docs.search.windows.net/indexes('docs')/docs/search.post.search",
    "https://1.us-central1-1.vdb.vertexai.goog/v1/projects/p/locations/l/indexEndpoints/7:findNeighbors",
    "https://bedrock-agent-runtime.us-east-1.amazonaws.com/knowledgebases/K1/retrieve",
    "https://api.openai.com/v1/vector_stores/vs_1/search",
    "http://db:8108/collections/docs/documents/search",
    "http://db:7700/indexes/docs/search",
    "https://x.supabase.co/rest/v1/rpc/match_documents",
    "http://solr:8983/solr/docs/select",
)
WRITES = (
    "http://10.0.0.7:6333/collections/docs/points/delete",
    "https://docs-ab12cd.svc.pinecone.io/vectors/upsert",
    "http://db:19530/v2/vectordb/entities/insert",
    "http://db:8000/api/v2/tenants/t/databases/d/collections/0b1c/upsert",
    "http://weaviate:8080/v1/batch/objects",
    "http://es-0:9200/_bulk",
)
NONE = (
    "http://api/v1/graphql",
    "http://shop/orders/search-history",
    "http://chromatic.example/query",
    "http://proxy/v1/route?next=/collections/a/points/search",
    "http://users/indexes",
)


def make(folder: Path) -> None:
    spans = [span(1, "POST /ask", 0, 10_000, "server root")]
    asked = [
        (url, word)
        for word, urls in (("search", SEARCHES), ("write", WRITES), ("none", NONE))
        for url in urls
    ]
    for n, (url, word) in enumerate(asked):
        spans.append(
            span(
                1,
                "POST",
                100 * n,
                50,
                key=(word, n),
                parent="root",
                kind=CLIENT,
                attributes={"http.request.method": "POST", "url.full": url, "case": word},
            )
        )
    # Micrometer and old names split the address: the host stands apart.
    spans += [
        span(
            1,
            "http post",
            5_000,
            50,
            "client apart < root",
            {
                "http.method": "POST",
                "http.target": "/query",
                "net.peer.name": "docs-1.svc.pinecone.io",
                "case": "search",
            },
        ),
        span(
            1,
            "http post",
            5_100,
            50,
            "client micrometer < root",
            {
                "method": "POST",
                "uri": "/v1/graphql",
                "outcome": "SUCCESS",
                "client.name": "weaviate",
                "case": "search",
            },
        ),
    ]
    write(folder / "traces.json", resource("rag", spans))
