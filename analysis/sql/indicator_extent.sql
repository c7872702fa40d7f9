-- From when to when did each instance send each indicator in the window? One row per instance and indicator. Microseconds since 1970.
select instance, indicator, any_value(raw_name) as raw_name, epoch_us(min(time)) as first_us, epoch_us(max(time)) as last_us, count(distinct time) as samples
from metric_points($start, $end, $every)
where ($model::varchar is null or model is null or model = $model)
group by instance, indicator
order by instance, indicator
