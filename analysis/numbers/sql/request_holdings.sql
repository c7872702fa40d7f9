-- What does the store hold at all? One row: first and last start of a request, and how many there are.
select min(start) as oldest, max(start) as newest, count(*) as n
from v_request_times
