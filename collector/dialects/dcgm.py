"""NVIDIA's DCGM exporter: what the GPUs under the engines do. Metrics only.

Source: NVIDIA/dcgm-exporter, etc/default-counters.csv and the DCGM field identifiers; not tested against a real exporter.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 90
DIALECT = Dialect(
    name="dcgm",
    metrics=(
        Metric("DCGM_FI_DEV_SM_CLOCK", "gpu_clock", scale=1e6),
        Metric("DCGM_FI_DEV_POWER_USAGE", "gpu_power"),
        Metric("DCGM_FI_DEV_GPU_TEMP", "gpu_temperature"),
        Metric("DCGM_FI_DEV_XID_ERRORS", "gpu_xid"),
        # The share of time in which any engine worked; utilisation by sampling is the poorer of the two.
        Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu_util"),
        Metric("DCGM_FI_DEV_GPU_UTIL", "gpu_util", scale=0.01),
        Metric("DCGM_FI_DEV_FB_USED", "gpu_mem_used", scale=float(1 << 20)),
        Metric("DCGM_FI_DEV_FB_FREE", "gpu_mem_free", scale=float(1 << 20)),
        Metric("DCGM_FI_PROF_DRAM_ACTIVE", "mem_bw_util"),
        Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_util"),
    ),
)
