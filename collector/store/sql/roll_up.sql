-- What do the requests of [$first, $last) (nanoseconds) add to the rollups? One row per minute, filter values, metric and bucket. Weights are null where all are 1.
insert into rollups by name
select minute_ns, service, route, model, tenant, workload, metric, ceil(ln(value) / ln(1.01 / 0.99))::integer as bucket, count(*) as n,
    case when bool_or(stands_for != 1.0) then sum(stands_for) end as weight,
    case when bool_or(stands_for != 1.0) then sum(stands_for * stands_for) end as weight_squared
from (
    select minute_ns, service, route, model, tenant, workload, stands_for,
        unnest(['ttft', 'itl', 'tpot', 'e2e']) as metric, unnest([ttft_ns::double, itl_ns, tpot_ns, e2e_ns::double]) as value
    from requests_to_fold($first, $last, $most)
    where not error)
where value > 0.0
group by all
order by minute_ns, metric, bucket
