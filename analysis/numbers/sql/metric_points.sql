-- What did the engines' gauges and rates say in the window? One row per sample of one indicator. SI units, times in microseconds since 1970.
select epoch_us(time) as time_us, instance, model, indicator, value
from metric_points($start, $end, $every)
where ($model::varchar is null or model is null or model = $model)
    and list_contains($indicators::varchar[], indicator)
order by time_us, instance, indicator
