-- Which commits of a window lack acknowledged spans? One row: how many commits, and how many spans are missing. Bounds may be null.
select count(*) as commits, coalesce(sum(missing), 0)::bigint as missing
from v_incomplete_commits
where ($start is null or received >= $start) and ($end is null or received < $end)
