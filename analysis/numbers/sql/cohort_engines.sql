-- Which engine served the longest model call of each request? One row per trace with a call that starts in [$start, $end] and whose engine is known.
select trace_key, arg_max(engine_instance, e2e_ms) as engine_instance
from v_llm_calls
where start >= $start::timestamptz and start <= $end::timestamptz and engine_instance is not null and on_path is not false
group by trace_key
