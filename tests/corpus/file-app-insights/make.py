"""Application Insights, as `az monitor app-insights query` prints rows: a table with columns and rows, attributes as JSON in a string, times in ms."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)
COLUMNS = (
    *("timestamp", "id", "operation_Id", "operation_ParentId", "name", "duration", "success"),
    *("resultCode", "itemType", "type", "target", "cloud_RoleName", "customDimensions"),
)


def make(folder: Path) -> None:
    rows = []
    for number in range(50):
        begin = T0 + timedelta(seconds=6 * number)
        trace, root, call, search = (
            f"{number + 1:032x}",
            f"a{number:015x}",
            f"b{number:015x}",
            f"c{number:015x}",
        )

        def row(at: float, *told: object, begin: datetime = begin) -> list[object]:
            return [(begin + timedelta(milliseconds=at)).isoformat().replace("+00:00", "Z"), *told]

        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.system": "az.ai.openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": "800",
            "gen_ai.usage.output_tokens": "120",
        }
        rows += [
            row(
                0,
                root,
                trace,
                trace,
                "POST /chat",
                3_000.0,
                "True",
                "200",
                "request",
                None,
                None,
                "chat-api",
                "{}",
            ),
            row(
                50,
                search,
                trace,
                root,
                "GET my-index",
                400.5,
                "True",
                "200",
                "dependency",
                "HTTP",
                "search.windows.net",
                "chat-api",
                json.dumps(
                    {"http.url": "https://shop.search.windows.net/indexes/docs/docs/search"}
                ),
            ),
            row(
                500,
                call,
                trace,
                root,
                "chat gpt-4o",
                2_450.0,
                "True",
                "0",
                "dependency",
                "GenAI | az.ai.openai",
                "oai.example.net",
                "chat-api",
                json.dumps(told),
            ),
        ]
    columns = [{"name": name, "type": "string"} for name in COLUMNS]
    (folder / "insights.json").write_text(
        json.dumps({"tables": [{"name": "PrimaryResult", "columns": columns, "rows": rows}]})
    )
