-- What did the engines' histograms count in the window, and from where on? One row per sample, with those up to $grace seconds before the window, so
-- that cumulative ones can be differenced. Edges in SI units, time in microseconds since 1970.
select epoch_us(time) as time_us, epoch_us(start) as start_us, series, instance, model, indicator, raw_name, temporality, bounds, hash(bounds) as edges, counts, sum
from v_metric_histograms
where ($start::timestamptz is null or time_ns >= epoch_ns($start::timestamptz - to_seconds($grace::double)))
    and ($end::timestamptz is null or time_ns < epoch_ns($end::timestamptz) + 1000)
    and ($model::varchar is null or model is null or model = $model)
    and list_contains($indicators::varchar[], indicator)
    and len(counts) > 1
    and (temporality = 'delta' or is_read(time_ns, $start, $end, $every))
order by indicator, series, time_us
