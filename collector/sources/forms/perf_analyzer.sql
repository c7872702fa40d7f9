-- title = "what Triton's perf_analyzer prints"
-- source = "triton-inference-server/perf_analyzer, docs/cli.md (server#7986, #8251): a section per concurrency or rate, the client's percentiles in us; the server's own split beside them is not taken"
-- read = "text"
-- needs = ['(?m)^\s*(?:Request concurrency: \d+|Request Rate: [\d.]+ inference)', "Client:", " usec"]
-- tool = "perf-analyzer"
-- [expected]
-- requests = 0
-- runs = 1
-- run = "1,000 in flight"
-- failed = 0
-- percentile = ["e2e", 50.0, 245.439]
with parts as (
    select string_split(regexp_replace(text, '(?m)^\s*(Request concurrency: \d+|Request Rate: [\d.]+ inference)', E'\x01\\1', 'g'), E'\x01') as p,
        greatest(coalesce(try_cast(regexp_extract(text, '(?m)^\s*Batch size: (\d+)', 1) as int), 1), 1) as batch from f
), sections as (
    select unnest(p[2:]) as s, generate_subscripts(p[2:], 1) as number, batch from parts
), figures as (
    select *, unnest(regexp_extract_all(s, '(?m)^\s*(Avg|p\d+) latency: (\d+) usec', ['at', 'us'])) as figure, try_cast(regexp_extract(s, '^Request concurrency: (\d+)', 1) as int) as bound,
        try_cast(regexp_extract(s, '^Request Rate: ([\d.]+)', 1) as double) as rate from sections
)
select true as summary, 'e2e' as metric, case figure.at when 'Avg' then 'mean' else figure.at end as at, figure.us::double / 1e3 as ms, number as run_key, rate as rate_rps, bound as in_flight,
    coalesce(format('{:g} requests/s', rate), format('{:,} in flight', bound)) as run, regexp_extract(s, '(?m)^\s*Request count: (\d+)', 1) as succeeded, 0 as failed,
    try_cast(regexp_extract(s, '(?m)^\s*Throughput: ([\d.]+) infer/sec', 1) as double) / batch as answered_rps
from figures order by number
