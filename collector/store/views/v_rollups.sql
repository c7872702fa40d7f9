-- How slow were how many successful requests of each minute? One row per minute, service, route, model, tenant, workload, metric (ttft, itl, tpot, e2e) and bucket.
-- value_ms is within 1 % of every value counted in the row; weight is for how many requests its n stand, weight_squared the sum of their squared weights.
-- They are not kept by instance: under that filter nothing is found here.
create or replace view v_rollups as
select minute_ns, make_timestamptz(minute_ns // 1000) as minute, service, null::varchar as instance, route, model, tenant, workload, metric, bucket,
    2.0 * (1.01 / 0.99) ** bucket / (1.01 / 0.99 + 1.0) / 1e6 as value_ms, n, coalesce(weight, n) as weight, coalesce(weight_squared, n) as weight_squared
from rollups;
