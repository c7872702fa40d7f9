-- How many requests and errors do the minutes of [$first, $last) (nanoseconds) hold? One row per minute and filter values.
insert into rollup_counts
select start_ns // 60000000000 * 60000000000 as minute_ns, service, route, model, tenant, coalesce(workload, 'chat') as workload,
    count(*) as requests, count(*) filter (error) as errors
from requests
where start_ns >= $first and start_ns < $last and complete and llm_calls > 0
group by all
order by minute_ns
