-- What do the model calls of each service carry once the spans that report the same call are one? One row per service, columns as in doctor.sql.
select service, count(*) as calls, count(*) filter (not error) as answered,
    count(*) filter (streaming or ttft_ms is not null) as streams, count(*) filter (ttft_ms is not null) as ttft,
    count(*) filter (not error and output_tokens is not null) as output_tokens, count(*) filter (not error and input_tokens is not null) as input_tokens,
    count(*) filter (not error and response_id is not null) as response_id, count(*) filter (not error and finish_reason is not null) as finish_reason,
    count(*) filter (model is not null) as model
from v_llm_calls
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($instance::varchar is null or instance = $instance)
group by service
