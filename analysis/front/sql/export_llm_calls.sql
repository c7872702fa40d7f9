-- Everything that v_llm_calls says of [$start, $end), either side open if null, for an export. One row per row of the view.
select * exclude (start_ns) from v_llm_calls
where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz)
order by start;
