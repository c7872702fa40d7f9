-- Everything that v_requests says of [$start, $end), either side open if null, for an export. One row per row of the view.
select * exclude (start_ns, row_key) from v_requests
where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz)
order by start;
