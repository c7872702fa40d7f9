-- What did the engines' gauges and counters say? One row per sample of one indicator (names of the metric table). SI units, ratios 0..1, counters as rates.
-- A counter's first sample has no rate; a drop or a new start time is a restart, after which the whole value is the increase.
create or replace view v_metric_points as
with sums as (
    select *, lag(value) over w as previous, lag(time_ns) over w as previous_ns, lag(start_ns) over w as previous_start_ns
    from points where kind = 2 and indicator is not null and value is not null
    window w as (partition by series order by time_ns, batch)),
rates as (
    select time_ns, instance, model, indicator, name, scale,
        case when temporality = 1 then value * 1e9 / nullif(time_ns - start_ns, 0)
             when not monotonic then value
             when previous is null then null
             when value < previous or (start_ns <> previous_start_ns and start_ns > previous_ns) then value * 1e9 / nullif(time_ns - previous_ns, 0)
             else (value - previous) * 1e9 / nullif(time_ns - previous_ns, 0) end as value
    from sums),
samples as (
    select time_ns, instance, model, indicator, name, value * coalesce(scale, 1.0) as value from points
    where kind = 1 and indicator is not null and value is not null
    union all
    select time_ns, instance, model, indicator, name, value * coalesce(scale, 1.0) from rates where value is not null),
ratios as (
    select time_ns, instance, model, pair[3] as indicator, any_value(name) as name,
        sum(value) filter (indicator = pair[1]) / nullif(sum(value) filter (indicator = pair[2]), 0) as value
    from samples, (select unnest([
        ['prefix_cache_hits', 'prefix_cache_queries', 'prefix_cache_hit_rate'],
        ['spec_accepted_tokens', 'spec_draft_tokens', 'spec_accept_rate'],
        ['cached_prompt_tokens', 'prompt_tokens', 'cached_prompt_ratio']]) as pair)
    where indicator in (pair[1], pair[2])
    group by time_ns, instance, model, pair[3])
select make_timestamptz(time_ns // 1000) as time, instance, model, indicator, value, indicator_unit(indicator) as unit, name as raw_name
from (select * from samples union all select * from ratios where value is not null);
