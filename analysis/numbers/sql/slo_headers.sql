-- Which traces carry limits of their own? One row per trace with an x-slo header in the time of the window, a minute wider: a header may be recorded
-- on another span than the first. Milliseconds.
select trace_key, ttft_ms as slo_ttft_ms, itl_ms as slo_itl_ms, tpot_ms as slo_tpot_ms, e2e_ms as slo_e2e_ms
from v_slo_headers
where ($start::timestamptz is null or start >= $start::timestamptz - to_seconds(60)) and ($end::timestamptz is null or start < $end::timestamptz + to_seconds(60))
