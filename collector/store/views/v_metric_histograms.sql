-- What did the engines' histograms say? One row per histogram sample as it was sent (cumulative ones are not differenced; `temporality` says which).
-- bounds are upper bucket edges in SI units; counts has one more entry than bounds. start: since when a cumulative one counts, null where nobody says.
create or replace view v_metric_histograms as
select make_timestamptz(time_ns // 1000) as time, case when start_ns > 0 and start_ns < time_ns then make_timestamptz(start_ns // 1000) end as start, instance, model, indicator,
    list_transform(bounds, lambda b: b * coalesce(scale, 1.0)) as bounds, counts, sum * coalesce(scale, 1.0) as sum, count,
    case temporality when 1 then 'delta' when 2 then 'cumulative' else 'none' end as temporality, span_hex(series) as series, name as raw_name, time_ns
from points where kind in (3, 4) and indicator is not null;
