-- Which time does the store cover? One row: first start and last end of requests, first and last sample of engines' metrics; null where there are none.
select r.first_request, r.last_request, r.requests, m.first_sample, m.last_sample
from (select min(start) as first_request, max("end") as last_request, count(*) as requests from v_request_times) r,
    (select min(time) as first_sample, max(time) as last_sample from metric_points(null, null, 1)) m
