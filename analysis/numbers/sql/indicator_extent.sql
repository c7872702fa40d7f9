-- From when to when did each instance send each indicator in the window? One row per instance and indicator. Microseconds since 1970.
select instance, indicator, raw_name, first_ns // 1000 as first_us, last_ns // 1000 as last_us, samples
from metric_extent($start, $end, $model, $every)
order by instance, indicator
