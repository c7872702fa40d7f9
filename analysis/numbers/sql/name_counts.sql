-- Which tenants, instances, routes, models and versions do fewer than $rare_below complete requests of a window carry? One row for all requests (kind null), and one
-- per such name, the $most names with most requests: how many are stored, are complete, and failed among the complete ones.
select
    case grouping(tenant, instance, route, model, version) when 15 then 'tenant' when 23 then 'instance' when 27 then 'route' when 29 then 'model'
        when 30 then 'version' end as kind,
    coalesce(tenant, instance, route, model, version) as name,
    count(*) as stored, count(*) filter (complete) as complete, count(*) filter (complete and status = 'error') as failed
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
group by grouping sets ((), (tenant), (instance), (route), (model), (version))
having kind is null and grouping(tenant, instance, route, model, version) = 31 or coalesce(tenant, instance, route, model, version) is not null and complete < $rare_below
order by kind is not null, complete desc, kind, name
limit $most + 1
