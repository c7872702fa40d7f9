-- What do the stored calls look like that ended in the window, and the requests that made them? One row per call. Milliseconds, tokens.
-- `end_us` is in microseconds since 1970; `request_ms` and `request_error` are null for a call whose request is not stored.
select
    calls.trace_key, calls.model, epoch_us(calls."end") as end_us, calls.engine_e2e_ms, calls.e2e_ms, calls.input_tokens, calls.output_tokens,
    requests.e2e_ms as request_ms, requests.status = 'error' as request_error
from v_llm_calls calls left join v_requests requests using (trace_key)
where calls.start >= $start::timestamptz - to_seconds(3600) and calls.start <= $end::timestamptz
    and calls."end" > $start::timestamptz and calls."end" <= $end::timestamptz
    and ($model::varchar is null or calls.model = $model)
