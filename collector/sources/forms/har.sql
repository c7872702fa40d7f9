-- title = "a browser's HAR file"
-- source = "w3c.github.io/web-performance/specs/HAR: wait ends with the first byte, which is a stream's first event; timings of -1 do not apply"
-- needs = ["log.entries.startedDateTime", "log.entries.request.url", "log.entries.timings"]
-- note = "only calls of models' APIs are read, requests for pages and files are left out; the first byte stands for the first token"
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168800651000000
-- attribute = ["gen_ai.usage.output_tokens", "89"]
with entries as (
    select unnest(row->'$.log.entries[*]') as e from f
), calls as (
    select e, regexp_replace(e->>'$.request.url', '[?#].*$', '') as url, (e->>'$.response.status')::int as status,
        try_cast(e->>'$.request.postData.text' as json) as asked,
        -- The last usage in the answer, of one document or of a stream's events.
        try_cast(regexp_extract_all(e->>'$.response.content.text', '"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})', 1)[-1] as json) as usage
    from entries where e->>'$.request.method' = 'POST'
)
select
    e->>'$.startedDateTime' as "start", (e->>'$.time')::double as duration_ms, 'POST ' || regexp_replace(url, '^.*://[^/]*', '') as name, 'client' as kind,
    'browser' as service, status >= 400 or status <= 0 as error, case when status > 0 then status end as status,
    case when regexp_matches(url, '/(embeddings?|rerank)$') then 'embeddings' when regexp_matches(url, '(^|[^t])/(completions?|generate)$') then 'text_completion' else 'chat' end as operation,
    asked->>'$.model' as model, regexp_replace(url, '^.*://[^/]*', '') as route,
    coalesce(usage->>'$.prompt_tokens', usage->>'$.input_tokens') as input_tokens, coalesce(usage->>'$.completion_tokens', usage->>'$.output_tokens') as output_tokens,
    coalesce(usage->>'$.prompt_tokens_details.cached_tokens', usage->>'$.cache_read_input_tokens') as cached_tokens,
    case when status between 200 and 299 and coalesce((asked->>'$.stream')::boolean, false) then
        list_sum(list_transform(['blocked', 'dns', 'connect', 'send', 'wait'], lambda part: greatest(coalesce((e->'$.timings'->>part)::double, 0), 0))) end as first_ms
from calls where regexp_matches(url, '/(chat/completions|completions?|messages|responses|api/chat|generate|generate_stream|embeddings?|rerank)$|:(stream)?[gG]enerateContent$')
