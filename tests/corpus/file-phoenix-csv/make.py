"""Phoenix's spans, as `get_spans_dataframe().to_csv()` writes them: a column for every attribute, empty cells where a span has none."""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)
COLUMNS = (
    *("context.span_id", "name", "span_kind", "parent_id", "start_time", "end_time"),
    *("status_code", "status_message", "events", "context.trace_id", "attributes.llm.model_name"),
    *("attributes.llm.token_count.prompt", "attributes.llm.token_count.completion"),
    *("attributes.openinference.span.kind", "attributes.input.value"),
)


def make(folder: Path) -> None:
    with (folder / "spans.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for number in range(40):
            begin = T0 + timedelta(seconds=5 * number)
            trace, root, call = f"{number + 1:032x}", f"a{number:015x}", f"b{number:015x}"
            table.writerow(
                {
                    "context.span_id": root,
                    "context.trace_id": trace,
                    "name": "query",
                    "span_kind": "CHAIN",
                    "start_time": str(begin),
                    "end_time": str(begin + timedelta(seconds=3)),
                    "status_code": "OK",
                    "events": "[]",
                    "attributes.openinference.span.kind": "CHAIN",
                    "attributes.input.value": "a question, with a comma\nand a line",
                }
            )
            table.writerow(
                {
                    "context.span_id": call,
                    "context.trace_id": trace,
                    "parent_id": root,
                    "name": "ChatCompletion",
                    "span_kind": "LLM",
                    "start_time": str(begin + timedelta(seconds=1)),
                    "end_time": str(begin + timedelta(seconds=2.8)),
                    "status_code": "OK",
                    "events": f"[{{'name': 'First Token Stream Event', 'timestamp': '{(begin + timedelta(seconds=1.4)).isoformat()}'}}]",
                    "attributes.llm.model_name": "gpt-4o",
                    "attributes.llm.token_count.prompt": "700.0",
                    "attributes.llm.token_count.completion": "80.0",
                    "attributes.openinference.span.kind": "LLM",
                }
            )
