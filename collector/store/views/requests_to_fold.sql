-- Complete requests with a model call of [first_ns, last_ns) for the rollups: one row each, with its minute and the names by which it is kept. A minute keeps
-- `most` sets of names, those of most requests first (at equal numbers by a hash, so that later minutes keep the same); the others are '(other)'.
create or replace macro requests_to_fold(first_ns, last_ns, most) as table
with folded as (
    select start_ns // 60000000000 * 60000000000 as minute_ns, service, route, model, tenant, coalesce(workload, 'chat') as workload, error, sampling,
        coalesce(sample_weight, 1.0) as stands_for, ttft_ns, itl_ns, tpot_ns, e2e_ns
    from requests
    where start_ns >= first_ns and start_ns < last_ns and complete and llm_calls > 0),
counted as (
    select minute_ns, service, route, model, tenant, workload, count(*) as n
    from folded
    group by all),
cut as (
    select minute_ns, service, route, model, tenant, workload, true as is_cut
    from counted
    qualify row_number() over (partition by minute_ns order by n desc, hash(service, route, model, tenant, workload)) > most)
select f.minute_ns, if(is_cut, '(other)', f.service) as service, if(is_cut, '(other)', f.route) as route, if(is_cut, '(other)', f.model) as model,
    if(is_cut, '(other)', f.tenant) as tenant, if(is_cut and f.workload not in ('chat', 'batch', 'eval'), '(other)', f.workload) as workload,
    error, sampling, stands_for, ttft_ns, itl_ns, tpot_ns, e2e_ns
from folded f
left join cut c on c.minute_ns = f.minute_ns and c.service is not distinct from f.service and c.route is not distinct from f.route
    and c.model is not distinct from f.model and c.tenant is not distinct from f.tenant and c.workload = f.workload;
