-- How many complete requests did each minute hold, and how many failed? One row per minute, service, route, model, tenant and workload.
create or replace view v_rollup_counts as
select make_timestamptz(minute_ns // 1000) as minute, service, route, model, tenant, workload, requests, errors
from rollup_counts;
