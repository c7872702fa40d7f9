"""Triton at 200 requests/s, then at 400: 4.4 ms of compute each, and a queue of 0.3 ms that grows to 600 ms."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def page(step: int) -> str:
    quiet, busy = min(step, 20), max(step - 20, 0)
    n = 200 * 15 * quiet + 400 * 15 * busy
    queue = 286 * 200 * 15 * quiet + 600_000 * 400 * 15 * busy
    compute = 4_385 * n
    told = {
        "nv_inference_request_success": n,
        "nv_inference_request_failure": 0,
        "nv_inference_count": n,
        "nv_inference_exec_count": n,
        "nv_inference_request_duration_us": queue + compute,
        "nv_inference_queue_duration_us": queue,
        "nv_inference_compute_input_duration_us": compute // 20,
        "nv_inference_compute_infer_duration_us": compute // 10 * 9,
        "nv_inference_compute_output_duration_us": compute // 20,
    }
    lines = []
    for name, value in told.items():
        lines += [
            f"# HELP {name} {name}",
            f"# TYPE {name} counter",
            f'{name}{{model="tensorrt_llm",version="1"}} {value}',
        ]
    pending = 1 if step <= 20 else 240
    lines += [
        "# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.",
        "# TYPE nv_inference_pending_request_count gauge",
        f'nv_inference_pending_request_count{{model="tensorrt_llm",version="1"}} {pending}',
        "# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)",
        "# TYPE nv_gpu_utilization gauge",
        f'nv_gpu_utilization{{gpu_uuid="GPU-0"}} {0.5 if step <= 20 else 0.97}',
    ]
    return "\n".join(lines) + "\n"


def make(folder: Path) -> None:
    write(folder / "pages" / "triton", page)
