-- Which requests to models over HTTP or RPC that began in a stretch of time are calls? One row per call of any kind, by the keys of its span.
select trace_key, hash(('0x' || span_id)::ubigint) as span_key
from v_llm_calls
where starts_within(start_ns, $start, $end)
