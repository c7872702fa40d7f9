"""Forty chat completions of one deployment, one of them refused, and ten embeddings."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000
TICKS_1970 = 621_355_968 * 10**9  # 100 ns since the year 1
RESOURCE = "/SUBSCRIPTIONS/0/RESOURCEGROUPS/RG/PROVIDERS/MICROSOFT.COGNITIVESERVICES/ACCOUNTS/AOAI"


def made(n: int, operation: str, model: str, took: int) -> dict[str, object]:
    at, refused = T0 + 5 * (n % 100), n == 17
    return {
        "time": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.4460000Z"),
        "resourceId": RESOURCE,
        "tenant": "eastus",
        "location": "eastus",
        "operationName": operation,
        "category": "RequestResponse",
        "durationMs": 20 if refused else took,
        "callerIpAddress": "10.0.0.***",
        "correlationId": f"5f1c0000-0000-4000-8000-{n:012}",
        "resultSignature": "429" if refused else "200",
        "properties": json.dumps(
            {
                "apiName": "Azure OpenAI API version 2024-06-01",
                "requestTime": TICKS_1970 + at * 10**7,
                "requestLength": 3_210,
                "responseTime": TICKS_1970 + at * 10**7 + took * 10_000,
                "responseLength": 0 if refused else 5_120,
                "objectId": "",
                "streamType": "Non-Streaming",
                "modelDeploymentName": f"{model}-prod",
                "modelName": model,
                "modelVersion": "2024-08-06",
            }
        ),
    }


def make(folder: Path) -> None:
    rows = [made(n, "ChatCompletions_Create", "gpt-4o", 2_300) for n in range(40)]
    rows += [made(100 + n, "Embeddings_Create", "text-embedding-3-small", 60) for n in range(10)]
    (folder / "PT1H.json").write_text("".join(json.dumps(row) + "\r\n" for row in rows))
    with (folder / "query_data.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(
            [
                *("TimeGenerated [UTC]", "ResourceId", "Category", "OperationName", "DurationMs"),
                *("CorrelationId", "ResultSignature", "properties_s"),
            ]
        )
        for row in rows:
            at = datetime.fromisoformat(str(row["time"]).replace("0000Z", "+00:00"))
            table.writerow(
                [
                    at.strftime("%m/%d/%Y, %I:%M:%S.%f %p").replace("000 ", " "),
                    RESOURCE,
                    "RequestResponse",
                    row["operationName"],
                    row["durationMs"],
                    row["correlationId"],
                    row["resultSignature"],
                    row["properties"],
                ]
            )
