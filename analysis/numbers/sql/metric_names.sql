-- Which metrics did whom send in the window, and are they understood? One row per instance and metric.
select instance, service, name, known, indicator, model, scraped, points
from metric_names($start, $end)
order by points desc, name, instance
