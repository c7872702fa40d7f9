-- When has the last of the $most first model calls of a stretch of time begun, by any caller? One row: nanoseconds since 1970, the end of time where there are fewer. One column is
-- put in order for it: of many calls to put all columns in order costs more than to read them.
select coalesce((
    select start_ns from v_llm_calls
    where starts_within(start_ns, $start, $end)
    order by start_ns
    limit 1 offset $most), 9223372036854775807) as last_ns
