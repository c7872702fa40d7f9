-- When did an inference server last say anything that is understood? One row, null where none did. Asked only while there is no request.
select newest
from v_newest_indicator
