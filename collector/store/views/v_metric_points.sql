-- What did the engines' gauges and counters say? One row per sample of one indicator (names of the metric table). SI units, ratios 0..1, counters as rates.
-- A counter's first sample has no rate; a drop or a new start time is a restart, after which the whole value is the increase.
-- What an instance counts in parts (data-parallel ranks, reasons, GPUs) is one sample, their sum; ratios and the like stay a sample per part.
-- metric_points reads no more than [first, until] (null: open) and the quarter of an hour before it, in which a counter's last sample is looked for: bounds on the
-- view's time do not reach the scan, and rates of a month are not made to show an hour. `every`: see is_read.
create or replace macro metric_points(first, until, every) as table
with asked as materialized (
    select batch, time_ns, start_ns, kind, temporality, monotonic, series, instance, model, indicator, name, scale, value
    from points
    where kind in (1, 2) and indicator is not null and value is not null
        and (first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz) - 900_000_000_000)
        and (until::timestamptz is null or time_ns < epoch_ns(until::timestamptz) + 1000) and is_read(time_ns, first, until, every)),
sums as (
    select *, lag(value) over w as previous, lag(time_ns) over w as previous_ns, lag(start_ns) over w as previous_start_ns
    from asked where kind = 2
    window w as (partition by series order by time_ns, batch)),
rates as (
    select time_ns, instance, model, indicator, name, scale,
        -- A delta that does not say since when, or says the same start each time (that of its process), counts since the sample before it.
        case when temporality = 1 then value * 1e9 / nullif(time_ns - case
                 when start_ns > 0 and start_ns < time_ns and start_ns is distinct from previous_start_ns then start_ns else previous_ns end, 0)
             when not monotonic then value
             when previous is null then null
             when value < previous or (start_ns <> previous_start_ns and start_ns > previous_ns) then value * 1e9 / nullif(time_ns - previous_ns, 0)
             else (value - previous) * 1e9 / nullif(time_ns - previous_ns, 0) end as value
    from sums),
-- A federated page repeats a sample until the next one comes, and a sender that comes again may put it into another body: it is one sample.
gauges as (
    select time_ns, any_value(instance) as instance, any_value(model) as model, any_value(indicator) as indicator, any_value(name) as name,
        any_value(scale) as scale, any_value(value) as value
    from asked where kind = 1
    group by time_ns, series, hash(instance, indicator)),
samples as (
    select time_ns, instance, model, indicator, name, value * coalesce(scale, 1.0) as value from gauges
    union all
    select time_ns, instance, model, indicator, name, value * coalesce(scale, 1.0) from rates where value is not null),
told as materialized (
    select time_ns, instance, model, indicator, name, value from samples where not is_summed(indicator)
    union all
    select time_ns, any_value(instance), any_value(model), any_value(indicator), any_value(name), sum(value) from samples where is_summed(indicator)
    group by time_ns, hash(instance, model, indicator)),
-- What stands above and below the line of each ratio; what is found counts on both sides where a sender counts hits and misses.
ratios as (
    select time_ns, instance, model, r.ratio as indicator, any_value(name) as name,
        sum(value) filter (above) / nullif(sum(value) filter (below), 0) as value
    from told join (values
        ('prefix_cache_hit_rate', 'prefix_cache_hits', true, false), ('prefix_cache_hit_rate', 'prefix_cache_queries', false, true),
        ('external_prefix_cache_hit_rate', 'external_prefix_cache_hits', true, false),
        ('external_prefix_cache_hit_rate', 'external_prefix_cache_queries', false, true),
        ('spec_accept_rate', 'spec_accepted_tokens', true, false), ('spec_accept_rate', 'spec_draft_tokens', false, true),
        ('cached_prompt_ratio', 'cached_prompt_tokens', true, false), ('cached_prompt_ratio', 'prompt_tokens', false, true),
        ('cached_prompt_ratio', 'reused_prompt_tokens', true, true),
        ('response_cache_hit_rate', 'response_cache_hits', true, true), ('response_cache_hit_rate', 'response_cache_misses', false, true),
        ('kv_block_reuse_ratio', 'kv_blocks_reused', true, true), ('kv_block_reuse_ratio', 'kv_blocks_missed', false, true),
        ('e2e_mean', 'e2e_total', true, false), ('e2e_mean', 'finished', false, true),
        ('queue_mean', 'queue_total', true, false), ('queue_mean', 'finished', false, true),
        ('gateway_call_e2e_mean', 'gateway_call_e2e_total', true, false), ('gateway_call_e2e_mean', 'gateway_calls', false, true),
        ('gateway_call_ttft_mean', 'gateway_call_ttft_total', true, false), ('gateway_call_ttft_mean', 'gateway_streams', false, true),
        ('inference_mean', 'inference_total', true, false), ('inference_mean', 'finished', false, true),
        ('tpot_mean', 'decode_total', true, false), ('tpot_mean', 'output_tokens', false, true)) r(ratio, part, above, below)
        on told.indicator = r.part
    group by time_ns, instance, model, r.ratio),
-- Blocks of KV cache are told per worker or once for all alike: their means are what a worker has.
blocks as (
    select time_ns, instance, model, any_value(name) as name, avg(value) filter (indicator = 'kv_blocks_used') as used,
        avg(value) filter (indicator = 'kv_blocks') as blocks, avg(value) filter (indicator = 'kv_block_tokens') as tokens
    from told where indicator in ('kv_blocks_used', 'kv_blocks', 'kv_block_tokens')
    group by time_ns, instance, model),
derived as (
    select * from ratios
    union all select time_ns, instance, model, 'kv_cache_usage', name, used / nullif(blocks, 0) from blocks
    union all select time_ns, instance, model, 'kv_capacity', name, blocks * tokens from blocks)
select make_timestamptz(time_ns // 1000) as time, instance, model, indicator, value, indicator_unit(indicator) as unit, name as raw_name
from (select * from told union all select * from derived where value is not null)
where first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz);

create or replace view v_metric_points as
select * from metric_points(null, null, 1);

-- How many samples of known indicators lie in [first, until]? One row. Counted before they are read: `every` comes from it.
create or replace macro metric_samples(first, until) as table
select count(*) as n from points
where indicator is not null and (first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz))
    and (until::timestamptz is null or time_ns < epoch_ns(until::timestamptz) + 1000);

-- From when to when did each instance send each known gauge and counter in [first, until], and how often? One row per instance and indicator, a_model's or of no model.
create or replace macro metric_extent(first, until, a_model, every) as table
select instance, indicator, any_value(name) as raw_name, min(time_ns) as first_ns, max(time_ns) as last_ns, count(distinct time_ns) as samples
from points
where kind in (1, 2) and indicator is not null and value is not null and (a_model::varchar is null or model is null or model = a_model::varchar)
    and (first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz))
    and (until::timestamptz is null or time_ns < epoch_ns(until::timestamptz) + 1000) and is_read(time_ns, first, until, every)
group by instance, indicator;
