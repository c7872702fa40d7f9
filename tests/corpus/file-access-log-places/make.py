"""The same 40 chats as four proxies log them."""

import gzip
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

T0 = 1_790_000_000


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def envoy(n: int, at: float, failed: bool) -> str:
    how = (
        '503 UF upstream_reset{connection_failure} - "-"' if failed else '200 - via_upstream - "-"'
    )
    ms = "3 -" if failed else "2300 2298"
    return (
        f'[{iso(at)}] "POST /v1/chat/completions HTTP/1.1" {how} 1830 2210 {ms} "-" "openai/1.99" "id-{n}" "vllm:8000" "10.4.2.1:8000" outbound|8000||vllm\n'
        f'[{iso(at)}] "GET /healthz HTTP/1.1" 200 - via_upstream - "-" 0 2 1 1 "-" "kube-probe/1.31" "id" "vllm:8000" "10.4.2.1:8000" inbound\n'
    )


def balancer(n: int, at: float, failed: bool) -> str:
    end, times = (at + 60, "-1 -1 -1 504 -") if failed else (at + 2.3, "0.001 2.297 0.002 200 200")
    return (
        f'https {iso(end)} app/llm/50dc 192.168.131.9:{2000 + n} 10.0.0.1:8000 {times} 3417 2210 "POST https://llm.example.com:443/v1/chat/completions HTTP/1.1" '
        f'"OpenAI/Python 1.99" TLS_AES_128_GCM_SHA256 TLSv1.3 arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/llm/73e2 "Root=1-68d0-{n}" '
        f'"llm.example.com" "arn" 0 {iso(at)} "forward" "-" "-" "10.0.0.1:8000" "200" "-" "-" TID_{n}\n'
    )


def ingress(n: int, at: float, failed: bool) -> str:
    took, status = (0.004, 502) if failed else (2.3, 200)
    end = datetime.fromtimestamp(at + took, timezone(timedelta(hours=2)))
    return (
        f'10.0.0.1 - - [{end:%d/%b/%Y:%H:%M:%S %z}] "POST /v1/chat/completions HTTP/1.1" {status} 2210 "-" "openai/python 9.109" 1830 {took:.3f} [llm-8000] [] '
        f"10.0.0.3:8000 2210 {took - 0.002:.3f} {status} {n:032x}\n"
    )


def haproxy(n: int, at: float, failed: bool) -> str:
    waited = 6_000 if n >= 60 else 0
    times, status = (
        ("0/10000/-1/-1/10000", 503) if failed else (f"0/{waited}/1/1900/{2_300 + waited}", 200)
    )
    start = datetime.fromtimestamp(at, UTC)
    return (
        f"Sep 21 16:00:00 lb1 haproxy[1842]: 10.0.1.2:{33_000 + n} [{start:%d/%b/%Y:%H:%M:%S}.000] llm-in llm-gpu/gpu1 {times} {status} 2750 - - ---- "
        f'12/12/8/4/0 5/0 "POST /v1/chat/completions HTTP/1.1"\n'
    )


def make(folder: Path) -> None:
    for name, line, when in (
        ("envoy", envoy, (9, 19, 29, 39)),
        ("balancer", balancer, (9, 19, 29, 39)),
        ("ingress", ingress, (9, 19, 29, 39)),
        ("haproxy", haproxy, (75,)),
    ):
        many = 100 if name == "haproxy" else 40
        text = "".join(line(n, T0 + 5.0 * n, n in when) for n in range(many))
        if name == "balancer":
            (folder / "balancer.log.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (folder / f"{name}.log").write_text(text)
    (folder / "uvicorn.log").write_text(
        'INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 5
    )
