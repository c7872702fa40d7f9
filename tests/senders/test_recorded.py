"""What real senders sent (see record.py) is read as it was meant."""

from contextlib import closing
from pathlib import Path

from overrun.analysis.front.file_import import import_files
from overrun.collector.config import load
from overrun.collector.store.database import open_store

FOLDER = Path(__file__).parent


def test_plain_http_of_node_is_network_and_a_request_to_a_model_is_a_call(tmp_path: Path) -> None:
    """@opentelemetry/sdk-node 0.223: a caller, a server, its call to a model server, and that server; no instrumentation knows of a model call."""
    db = tmp_path / "js.db"
    import_files(
        [FOLDER / "otel-js.traces.pb"],
        load(flags={"collector.db": str(db)}),
        url=None,
        progress=lambda done, of: None,
    )
    with closing(open_store(db, create=False)) as store:
        found = (
            store.cursor()
            .execute(
                """select name, kind, role, stage, route, http_status, count(*), count(distinct trace_id)
                   from v_spans group by all order by name, kind, route"""
            )
            .fetchall()
        )
        calls = (
            store.cursor()
            .execute(
                """select count(*), count(distinct trace_id), count(output_tokens), count(ttft_ms) from v_llm_calls"""
            )
            .fetchall()
        )
    assert found == [
        ("GET", "client", "plain", "network", None, 200, 5, 5),
        ("GET", "server", "container", "other", "/chat", 200, 5, 5),
        ("POST", "client", "model_request", "network", None, 200, 5, 5),
        ("POST", "server", "container", "other", "/v1/chat/completions", 200, 5, 5),
    ]
    # Nothing else reports them, so they are the calls, and the traces are requests.
    assert calls == [(5, 5, 0, 0)]
