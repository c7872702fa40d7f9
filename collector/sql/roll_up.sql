-- What do the requests of [$first, $last) (nanoseconds) add to the rollups? One row per minute, filter values, metric and bucket.
insert into rollups
select minute_ns, service, route, model, tenant, workload, metric, ceil(ln(value) / ln(1.01 / 0.99))::integer as bucket, count(*) as n
from (
    select start_ns // 60000000000 * 60000000000 as minute_ns, service, route, model, tenant, coalesce(workload, 'chat') as workload,
        unnest(['ttft', 'itl', 'tpot', 'e2e']) as metric, unnest([ttft_ns::double, itl_ns, tpot_ns, e2e_ns::double]) as value
    from requests
    where start_ns >= $first and start_ns < $last and complete and not error and llm_calls > 0)
where value > 0.0
group by all
order by minute_ns, metric, bucket
