-- Which requests did engines work on, whoever asked and whether or not anybody waited for the answer? One row per stored span of an engine's request
-- (a span that arrived in two bodies may be two rows). Milliseconds.
create or replace view v_engine_spans as
select
    trace_hex(trace_hi, trace_lo) as trace_id, span_hex(span_id) as span_id, make_timestamptz(start_ns // 1000) as start,
    make_timestamptz((start_ns + duration_ns) // 1000) as "end", model, engine_e2e_ns / 1e6 as engine_e2e_ms
from stored_spans
where role_name(role) = 'engine' and engine_e2e_ns is not null;
