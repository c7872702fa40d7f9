-- Did any span lose a part to its sender's limits? One row if so, none otherwise.
select 1 as found
from v_cut_shapes
limit 1
