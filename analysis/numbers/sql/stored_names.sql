-- Which services, instances, models, routes, tenants and workloads are stored at all, of requests and of engines' metrics? One row per kind and name.
select distinct 'service' as kind, service as name from stored_services()
union select distinct 'instance', instance from v_requests
union select distinct 'model', model from v_requests
union select distinct 'route', route from v_requests
union select distinct 'tenant', tenant from v_requests
union select distinct 'workload', workload from v_requests
union select distinct 'model', model from metric_names(null, null)
union select distinct 'instance', instance from metric_names(null, null)
union select distinct 'instance', instance from metric_targets(null, null)
order by kind, name
