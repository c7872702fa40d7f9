-- How many samples of known indicators did the engines send in the window? One row.
select n from metric_samples($start, $end)
