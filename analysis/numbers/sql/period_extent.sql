-- From when to when are the complete requests of a window, and which marks of samplers do they carry? One row per mark, most requests first; microseconds since 1970.
select sampling, count(*) as n, min(epoch_us(start)) as start_us, max(epoch_us("end")) as end_us
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
group by sampling
order by n desc, sampling
limit $most
