-- What did each series of metrics say in the window? One row per series, samples as lists in order of time. Times in nanoseconds since 1970, values as sent.
select * from metric_series($start, $end, $every, $most)
where ($model::varchar is null or model is null or model = $model)
