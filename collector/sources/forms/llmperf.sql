-- title = "LLMPerf's requests (NAME_individual_responses.json)"
-- source = "ray-project/llmperf, src/llmperf/common_metrics.py; its inter-token latency counts the first token, so TPOT follows from the other times here"
-- needs = ["ttft_s", "end_to_end_latency_s", "number_output_tokens"]
-- tool = "llmperf"
-- [expected]
-- requests = 3
-- runs = 1
-- run = "run 1"
-- failed = 0
-- e2e_ms = 1000.0
-- ttft_ms = 200.0
select (select written_ns from file) as start_ns, case when try_cast(row->>'$.end_to_end_latency_s' as double) > 0 then row->>'$.end_to_end_latency_s' end as e2e_s,
    nullif(try_cast(row->>'$.ttft_s' as double), 0) as ttft_s, row->>'$.number_input_tokens' as input_tokens,
    case when nullif(row->>'$.error_code', '') is null then row->>'$.number_output_tokens' end as output_tokens, row->>'$.error_code' as error, 'run 1' as run, false as timed,
    'the file has no send times: its requests are treated as sent at once, so there are no figures of arrivals' as note
from f
