-- Which metrics targets answered in the window, by their last attempts? One row per target.
select instance, state, reason, since, last, attempts, answered, took, interval
from metric_targets($start, $end)
order by instance
