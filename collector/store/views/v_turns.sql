-- Which requests are turns of a session? One row per turn: the keys that its trace and the span at its top have among spans, and the key that it and its calls have.
create or replace view v_turns as
select hash(trace_hi, trace_lo) as trace_key, hash(turn_span_id) as span_key, request_key(trace_hi, trace_lo, turn_span_id) as request_key, start_ns
from requests where turn_span_id is not null;
