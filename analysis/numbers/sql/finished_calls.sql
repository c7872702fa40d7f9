-- Which model calls ended when, and how long did the engine have them? One row per call that ended in the window. Microseconds since 1970, milliseconds.
select epoch_us("end") as end_us, engine_e2e_ms
from v_llm_calls
where start >= $start::timestamptz - to_seconds(3600) and start <= $end::timestamptz
    and "end" > $start::timestamptz and "end" <= $end::timestamptz
    and ($model::varchar is null or model = $model)
