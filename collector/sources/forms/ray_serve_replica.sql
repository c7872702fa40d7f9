-- title = "access lines of a Ray Serve replica"
-- source = "ray/serve/_private/logging_utils.py: LEVEL TIME, application, replica, request id, METHOD PATH STATUS MS; a line is written at the end"
-- read = "lines"
-- needs = ['(?m)^[A-Z]+ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \S+ \S+ \S+ -- ', '(?m) -- [A-Z]+ \S+ (?:\d{3}|OK|ERROR) [\d.]+ms\s*$']
-- timed = true
-- note = "times without a zone are read as UTC"
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168800650600000
with parts as (
    select number, at_ns, regexp_extract(line, '^[A-Z]+ \S+ \S+ (\S+) (\S+) (\S+) -- ([A-Z]+) (/\S*) (\d{3}) ([\d.]+)ms', ['app', 'replica', 'id', 'method', 'path', 'status', 'ms']) as p from f
)
select
    p.id as span_id, p.method || ' ' || p.path as name, 'server' as kind, 'ray-serve' as service, at_ns - round(p.ms::double * 1000000)::bigint as "start", at_ns as "end",
    p.status::int as status, p.status::int >= 400 as error, p.path as route, p.id as request_id,
    case when regexp_matches(p.path, '/(embeddings?|rerank)$') then 'embeddings' when regexp_matches(p.path, '(^|[^t])/(completions?|generate)$') then 'text_completion' else 'chat' end as operation,
    json_object('http.request.method', p.method) as attributes, json_object('service.instance.id', p.replica) as resource
from parts where p.method = 'POST' and regexp_matches(p.path, '/(chat/completions|completions?|messages|responses|generate|embeddings?|rerank)$')
