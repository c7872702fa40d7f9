-- How long did the engines work on each request that ended in the window, those that nobody waited for included? One row per request. Milliseconds.
select any_value(engine_e2e_ms) as engine_e2e_ms
from v_engine_spans
where start >= $start::timestamptz - to_seconds(3600) and start <= $end::timestamptz
    and "end" > $start::timestamptz and "end" <= $end::timestamptz
    and ($model::varchar is null or model is null or model = $model)
group by trace_id, span_id
