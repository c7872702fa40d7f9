"""A hundred requests of which two were refused, as LLMPerf and JMeter write them; two runs as they are printed."""

import json
from pathlib import Path

from tests.corpus.otlp import T0_MS

N, REFUSED = 100, (10, 60)
TABLE = """INFO: done
============ Serving Benchmark Result ============
Successful requests:                     100
Failed requests:                         0
Request rate configured (RPS):           {rate}
Benchmark duration (s):                  25.87
Total input tokens:                      51200
Total generated tokens:                  12800
Request throughput (req/s):              {rate}
---------------Time to First Token----------------
Mean TTFT (ms):                          333.55
Median TTFT (ms):                        240.65
P99 TTFT (ms):                           {p99}
==================================================
"""


def make(folder: Path) -> None:
    for name in ("llmperf", "printed"):
        (folder / name).mkdir()
    responses = [
        {
            "error_code": 429 if i in REFUSED else None,
            "error_msg": "",
            "inter_token_latency_s": 0.01,
            "ttft_s": 0 if i in REFUSED else 0.2 + 0.01 * i,
            "end_to_end_latency_s": 0 if i in REFUSED else 1 + 0.02 * i,
            "number_output_tokens": 0 if i in REFUSED else 100,
            "number_input_tokens": 512,
        }
        for i in range(N)
    ]
    (folder / "llmperf" / "m_individual_responses.json").write_text(json.dumps(responses))
    (folder / "llmperf" / "m_summary.json").write_text(
        json.dumps(
            {
                "name": "m_summary",
                "model": "m",
                "num_concurrent_requests": 8,
                "results_ttft_s_quantiles_p50": 0.695,
                "results_ttft_s_quantiles_p95": 1.14,
                "results_ttft_s_mean": 0.698,
                "results_end_to_end_latency_s_quantiles_p50": 1.99,
                "results_end_to_end_latency_s_mean": 1.996,
                "results_num_completed_requests": 98,
                "results_num_completed_requests_per_min": 230.0,
                "results_number_errors": 2,
            }
        )
    )
    (folder / "results.jtl").write_text(
        "timeStamp,elapsed,label,responseCode,success,allThreads,Latency\n"
        + "".join(
            f"{T0_MS + 1_000 * i},{1_000 + 20 * i},POST /chat,{429 if i in REFUSED else 200},{str(i not in REFUSED).lower()},8,200\n"
            for i in range(N)
        )
    )
    (folder / "printed" / "sweep.txt").write_text(
        TABLE.format(rate="4.00", p99="610.48") + TABLE.format(rate="8.00", p99="1610.48")
    )
