-- Did any request come with limits of its own? One row if so, none otherwise.
select 1 as found
from v_slo_shapes
limit 1
