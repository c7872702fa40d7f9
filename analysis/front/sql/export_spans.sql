-- Everything that v_spans says of [$start, $end), either side open if null, for an export. One row per row of the view.
select * from v_spans
where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz)
order by start;
