-- How many requests and errors do the minutes of [$first, $last) (nanoseconds) hold? One row per minute and filter values. Weights are null where all are 1.
insert into rollup_counts by name
select minute_ns, service, route, model, tenant, workload, count(*) as requests, count(*) filter (error) as errors,
    case when bool_or(stands_for != 1.0) then sum(stands_for) end as weight,
    case when bool_or(stands_for != 1.0) then coalesce(sum(stands_for) filter (error), 0.0) end as error_weight,
    count(*) filter (not starts_with(sampling, 'th:')) as biased
from requests_to_fold($first, $last, $most)
group by all
order by minute_ns
