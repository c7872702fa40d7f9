"""perf_analyzer's text at a concurrency and at a rate."""

from pathlib import Path

HEAD = """*** Measurement Settings ***
  Batch size: 1
  Service Kind: Triton
  Using "time_windows" mode for stabilization
  Measurement window: 5000 msec
  Using synchronous calls for inference
  Stabilizing using average latency

"""
CONCURRENCY = """Request concurrency: 1000
  Client:
    Request count: 72262
    Throughput: 4005.66 infer/sec
    Avg latency: 247602 usec (standard deviation 9319 usec)
    p50 latency: 245439 usec
    p90 latency: 255399 usec
    p95 latency: 282710 usec
    p99 latency: 345187 usec
    Avg gRPC time: 247578 usec ((un)marshal request/response 11 usec + response wait 247567 usec)
  Server:
    Inference count: 72262
    Execution count: 4518
    Successful request count: 72262
    Avg request latency: 247496 usec (overhead 844 usec + queue 242704 usec + compute input 2241 usec + compute infer 1613 usec + compute output 94 usec)

Inferences/Second vs. Client Average Batch Latency
Concurrency: 1000, throughput: 4005.66 infer/sec, latency 247602 usec
"""
RATE = """Request Rate: 100 inference requests per second
  Client:
    Request count: 3600
    Throughput: 3199.51 infer/sec
    Avg latency: 2027 usec (standard deviation 145 usec)
    p50 latency: 2012 usec
    p90 latency: 2228 usec
    p95 latency: 2280 usec
    p99 latency: 2455 usec
    Avg gRPC time: 2012 usec ((un)marshal request/response 11 usec + response wait 2001 usec)
  Server:
    Inference count: 115200
    Execution count: 3600
    Successful request count: 3600
    Avg request latency: 1735 usec (overhead 46 usec + queue 29 usec + compute input 46 usec + compute infer 1601 usec + compute output 13 usec)

Inferences/Second vs. Client Average Batch Latency
Request Rate: 100, throughput: 3199.51 infer/sec, latency 2027 usec
"""


def make(folder: Path) -> None:
    (folder / "perf.txt").write_text(HEAD + CONCURRENCY)
    (folder / "rate.txt").write_text(HEAD.replace("size: 1", "size: 32") + RATE)
