-- Everything that v_metric_points says of [$start, $end), either side open if null, for an export. One row per sample of one indicator.
select * from metric_points($start, $end, 1)
where ($end::timestamptz is null or time < $end::timestamptz)
order by time, instance, indicator;
