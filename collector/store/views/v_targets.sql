-- Which metrics targets answer? One row per target that was read in [first, until] (null: open), by its last attempts: `state` is up, down (no answer, or a refusal)
-- or unreadable (an answer that is no metrics page), `reason` why, `since` the first attempt of that outcome without another one after it. `took` and `interval`
-- (seconds) are of the last attempt; null where the reader does not say them (a Prometheus in between).
create or replace macro metric_targets(first, until) as table
with seen as materialized (
    select instance, time_ns, indicator, value, attributes from points
    where indicator in ('up', 'scrape_duration') and value is not null
        and (first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz)) and (until::timestamptz is null or time_ns < epoch_ns(until::timestamptz) + 1000)),
ups as (
    select instance, time_ns, case when attributes['state'] is not null then attributes['state'] when value > 0 then 'up' else 'down' end as state,
        attributes['reason'] as reason
    from seen where indicator = 'up'),
last as (
    select instance, arg_max(state, time_ns) as state, arg_max_null(reason, time_ns) as reason, max(time_ns) as last_ns, count(*) as attempts,
        count(*) filter (state = 'up') as answered
    from ups group by instance),
before as (
    select u.instance, max(u.time_ns) as other_ns from ups u join last l on l.instance is not distinct from u.instance where u.state <> l.state group by u.instance),
begun as (
    select u.instance, min(u.time_ns) as since_ns
    from ups u left join before b on b.instance is not distinct from u.instance
    where u.time_ns > coalesce(b.other_ns, 0) group by u.instance),
took as (
    select instance, arg_max(value, time_ns) as took, arg_max(try_cast(attributes['interval_s'] as double), time_ns) as every
    from seen where indicator = 'scrape_duration' group by instance)
select l.instance, l.state, l.reason, make_timestamptz(b.since_ns // 1000) as since, make_timestamptz(l.last_ns // 1000) as last, l.attempts, l.answered,
    t.took, t.every as interval
from last l join begun b on b.instance is not distinct from l.instance left join took t on t.instance is not distinct from l.instance;

create or replace view v_targets as
select * from metric_targets(null, null);

-- What do the stored points of [first, until] say, and to whom? One row per instance and metric; `known` points have an indicator, `scraped` says that they came from a page.
create or replace macro metric_names(first, until) as table
select p.instance, s.service, p.name, p.indicator is not null as known, any_value(p.indicator) as indicator, any_value(p.model) as model,
    bool_or(s.scope_name = 'overrun.scrape') as scraped, count(*) as points
from points p left join sources s on s.source_id = p.source_id
where (first::timestamptz is null or p.time_ns >= epoch_ns(first::timestamptz)) and (until::timestamptz is null or p.time_ns < epoch_ns(until::timestamptz) + 1000)
group by all;

-- Which services have ever sent anything? One row per name.
create or replace macro stored_services() as table
select distinct service from sources;
