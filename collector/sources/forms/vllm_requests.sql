-- title = "vLLM's request log (a line for a request's arrival and one for its end)"
-- source = "vllm/entrypoints/logger.py: Received request, Generated response (enable_log_outputs); times in whole seconds without a year"
-- read = "lines"
-- needs = ['(?m)INFO \d\d-\d\d \d\d:\d\d:\d\d (?:\[\S+\] )?Received request \S+: ', '(?m)INFO \d\d-\d\d \d\d:\d\d:\d\d (?:\[\S+\] )?Generated response \S+']
-- whole = true
-- timed = true
-- figures = true
-- note = "request lines have whole seconds, so durations are right within 1 s; a request without an end has failed, if it came longer before the last line than any answer took"
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168800000000000
with parts as (
    select at_ns, regexp_extract(line, 'INFO \S+ \S+ (?:\[\S+\] )?(Received request|Generated response) ([^\s:]+)', ['what', 'id']) as p,
        nullif(regexp_extract(line, 'max_tokens=(\d+)', 1), '') as max_tokens, nullif(regexp_extract(line, 'finish_reason: (\w+)', 1), '') as finish from f
), requests as (
    select p.id as id, min(at_ns) filter (p.what = 'Received request') as began, max(at_ns) filter (p.what = 'Generated response') as ended, any_value(max_tokens) as max_tokens, any_value(finish) as finish
    from parts where p.id <> '' group by p.id
), known as (
    select *, (select max(at_ns) from f) as last, max(ended - began) over () as longest from requests where began is not null
)
select
    id as span_id, 'chat' as name, 'server' as kind, 'vllm' as service, began as "start", coalesce(ended, began) as "end", ended is null as error, 'chat' as operation,
    id as request_id, json_object('gen_ai.request.max_tokens', max_tokens, 'error.type', case when ended is null then 'no end logged' end) as attributes
from known where ended is not null or last - began > longest
