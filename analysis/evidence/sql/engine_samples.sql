-- What did each instance's indicators say over the window? One row per sample. SI units, times in microseconds since 1970.
select epoch_us(time) as time_us, indicator, unit, instance, value
from metric_points($start, $end, $every)
where ($model::varchar is null or model is null or model = $model)
    and list_contains($indicators::varchar[], indicator)
order by indicator, instance, time_us
