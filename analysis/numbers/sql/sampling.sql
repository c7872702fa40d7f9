-- What did samplers say of every complete request of the window? One row per request: the sampler's mark, and for how many requests it stands.
select sampling, sample_weight
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
