-- How many complete requests did each minute hold, and how many failed? One row per minute, service, route, model, tenant and workload.
-- weight and error_weight are for how many requests they stand; biased counts those of a sampler that chose by what happened.
-- They are not kept by instance: under that filter nothing is found here.
create or replace view v_rollup_counts as
select minute_ns, make_timestamptz(minute_ns // 1000) as minute, service, null::varchar as instance, route, model, tenant, workload, requests, errors,
    coalesce(weight, requests) as weight, coalesce(error_weight, errors) as error_weight, coalesce(biased, 0) as biased
from rollup_counts;
