-- Which further traces share a model response id with the traces in `fresh`? One row per trace that is not in `wanted` yet: an engine's span of a
-- client's call arrives in a trace of its own when the context was not passed on. $floor bounds the scan (nanoseconds): spans that started before
-- it are not looked at.
with near as materialized (
    select trace_hi, trace_lo, response_id from stored_spans
    where start_ns >= $floor and response_id is not null and role in (2, 3)),
shared as (select distinct response_id from near semi join fresh using (trace_hi, trace_lo))
select distinct trace_hi, trace_lo from near semi join shared using (response_id) anti join wanted using (trace_hi, trace_lo);
