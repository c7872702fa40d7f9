-- By which key do views hold these traces? One row per trace of $high and $low, the halves of their ids.
select hash(high, low) as trace_key
from (select unnest($high::ubigint[]) as high, unnest($low::ubigint[]) as low)
