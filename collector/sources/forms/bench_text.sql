-- title = "what `vllm bench serve` or SGLang's bench_serving prints at the end"
-- source = "vllm-project/vllm, vllm/benchmarks/serve.py; sgl-project/sglang, python/sglang/bench_serving.py; NVIDIA/TensorRT-LLM#1938: others print the same table with words of their own, through a logger"
-- read = "text"
-- needs = ["Serving Benchmark Result"]
-- tool = "vllm-bench"
-- [expected]
-- requests = 0
-- runs = 2
-- run = "4 requests/s"
-- failed = 0
-- percentile = ["ttft", 50.0, 240.65]
with tables as (
    select unnest(string_split(text, 'Serving Benchmark Result')[2:]) as t, generate_subscripts(string_split(text, 'Serving Benchmark Result')[2:], 1) as number,
        len(string_split(text, 'Serving Benchmark Result')) - 1 as n from f
), printed as (
    select number, n, unnest(string_split(t, E'\n')) as line from tables
), lines as (
    -- What a logger puts before a line is left out.
    select number, n, regexp_extract(regexp_replace(rtrim(line, E'\r'), '^.*?\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\s*(?:\|?\s*\[?[A-Z]{4,8}\]?\s+)?', ''), '^\s*([^:=]+?):\s+(\S+)\s*$', ['name', 'told']) as l from printed
), named as (
    select number, n, lower(l.name) as name, l.told as told, try_cast(l.told as double) as v from lines where l.name <> ''
), runs as (
    select number, any_value(n) as n, any_value(v) filter (name in ('request rate configured (rps)', 'traffic request rate') and isfinite(v)) as rate,
        any_value(v) filter (name in ('maximum request concurrency', 'max request concurrency') or (name = 'concurrency' and regexp_matches(told, '^\d+$'))) as bound,
        any_value(v) filter (name in ('successful requests', 'number of total requests')) as done, any_value(v) filter (name = 'failed requests') as failed,
        any_value(v) filter (name in ('benchmark duration (s)', 'benchmark duration (sec)')) as lasted, any_value(v) filter (name = 'total input tokens') as read,
        any_value(v) filter (name = 'total generated tokens') as wrote, any_value(v) filter (name in ('request throughput (req/s)', 'request throughput (req/sec)')) as answered,
        bool_or(name = 'backend' and contains(told, 'sglang')) as is_sglang from named group by number
), figures as (
    select number, v, regexp_extract(name, '(ttft|time to first token|tpot|time per output token|itl|inter[- ]token latency|e2el?|end[- ]to[- ]end latency|request latency)', 1) as m,
        regexp_extract(name, '(mean|avg|average|median|p\d+(?:\.\d+)?)', 1) as figure from named
    where regexp_matches(name, '^(?:(mean|avg|average|median|p\d+(\.\d+)?) )?(ttft|time to first token|tpot|time per output token|itl|inter[- ]token latency|e2el|e2e latency|end[- ]to[- ]end latency|request latency) \(ms\)(?: (mean|avg|average|median|p\d+(\.\d+)?))?$')
)
select true as summary, case when max(is_sglang::int) over () = 1 then 'sglang-bench' end as tool, number as run_key, case when rate is not null then format('{:g} requests/s', rate)
        when bound is not null then format('{:,} in flight', bound::int) when n = 1 then 'all at once' else 'all at once, run ' || number end as run,
    rate as rate_rps, bound as in_flight, lasted as duration_s, case when m in ('ttft', 'time to first token') then 'ttft' when m in ('tpot', 'time per output token') then 'tpot'
        when m like 'i%' then 'itl' when m is not null then 'e2e' end as metric, figure as at, v as ms, done as succeeded, failed, answered as answered_rps,
    read / greatest(coalesce(done, 0), 1) as input_tokens, wrote / greatest(coalesce(done, 0), 1) as output_tokens
from runs left join figures using (number) order by number
