"""The same 40 chats in logs of CloudFront, IIS, a Go service and Rails."""

import gzip
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000
CLOUDFRONT = "date time x-edge-location cs-method cs(Host) cs-uri-stem sc-status cs(User-Agent) time-taken cs-protocol-version"
IIS = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port c-ip cs(User-Agent) sc-status sc-substatus time-taken"


def make(folder: Path) -> None:
    edge = [f"#Version: 1.0\n#Fields: {CLOUDFRONT}\n"]
    iis = [f"#Software: Microsoft Internet Information Services 10.0\r\n#Fields: {IIS}\r\n"]
    service, rails = [], []
    for n in range(40):
        failed = n % 10 == 9
        took = 0.2 if failed else 2.3
        end = datetime.fromtimestamp(T0 + 5.0 * n + took, UTC)
        at = f"{end:%Y-%m-%dT%H:%M:%S.%f}"
        status = 503 if failed else 200
        cells = f"{end:%Y-%m-%d} {end:%H:%M:%S} FRA56 POST d1.cloudfront.net /v1/chat/completions {status} x {took:.3f} HTTP/2.0"
        edge.append("\t".join(cells.split()) + "\n")
        iis.append(
            f"{end:%Y-%m-%d %H:%M:%S} 10.0.0.1 POST /openai/deployments/gpt-4o/chat/completions api-version=2024 443 10.0.0.2 x {status} 0 {round(took * 1e3)}\r\n"
        )
        how = (
            'status=429 error="rate limit reached"'
            if failed
            else "status=200 prompt_tokens=900 completion_tokens=120"
        )
        service.append(
            f'time={at}Z level=info caller=llm/client.go:88 msg="chat completion" trace_id={n + 1:032x} model=gpt-4o duration={took}s {how}\n'
        )
        rails.append(
            f"I, [{at} #1]  INFO -- : method=POST path=/v1/chat/completions format=json status={status} duration={took * 1e3:.2f} view=0.00 db=1.23\n"
        )
    service.insert(7, 'time=2026-09-21T14:13:30Z level=info msg="cache warmed" entries=120\n')
    (folder / "E2EXAMPLE.2026-09-21-14.gz").write_bytes(
        gzip.compress("".join(edge).encode(), mtime=0)
    )
    for name, lines in (("u_ex260921.log", iis), ("service.log", service), ("rails.log", rails)):
        (folder / name).write_bytes("".join(lines).encode())
