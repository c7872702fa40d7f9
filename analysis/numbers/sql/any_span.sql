-- Has any span arrived? One row if so, none otherwise. Asked only while there is no request.
select 1 as found
from v_spans
limit 1
