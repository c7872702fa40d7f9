-- Does the file hold what its commits recorded? One row: commits and spans as recorded, spans that are missing now and rows that stand twice, spans that an
-- earlier version lost (found when the file was migrated), and when the first and last of those commits were received (RFC 3339).
with now as (
    select received, greatest(spans - distinct_stored, 0) as lost, stored - distinct_stored as copies, spans from v_commits),
wrong as (
    select received, lost, copies, 0 as lost_before from now where lost > 0 or copies > 0
    union all select received, 0, 0, missing from v_incomplete_commits)
select (select count(*) from now) as commits, (select coalesce(sum(spans), 0) from now)::bigint as spans,
    coalesce(sum(lost), 0)::bigint as lost, coalesce(sum(copies), 0)::bigint as copies, coalesce(sum(lost_before), 0)::bigint as lost_before,
    strftime(min(received), '%Y-%m-%dT%H:%M:%SZ') as first, strftime(max(received), '%Y-%m-%dT%H:%M:%SZ') as last
from wrong
