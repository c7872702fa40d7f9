"""What real senders sent (see record.py) is read as it was meant."""

from contextlib import closing
from pathlib import Path

from overrun.analysis.front.file_import import import_files
from overrun.collector.config import load
from overrun.collector.store.database import open_store

FOLDER = Path(__file__).parent


def test_plain_http_of_node_is_network_and_containers(tmp_path: Path) -> None:
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
    assert found == [
        ("GET", "client", "plain", "network", None, 200, 5, 5),
        ("GET", "server", "container", "other", "/chat", 200, 5, 5),
        ("POST", "client", "plain", "network", None, 200, 5, 5),
        ("POST", "server", "container", "other", "/v1/chat/completions", 200, 5, 5),
    ]
