"""How long does a report take over a store of many scraped engines? Days of metrics, no request: what each answer reads of them.

python -m tests.benchmarks.samples [--days 3] [--instances 8]
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from overrun.analysis.front.report import build
from overrun.analysis.numbers.window import INDICATORS, Window
from overrun.analysis.words.slo import parse_slo
from overrun.collector.store.database import open_store
from tests.benchmarks.results import add_write_flag, measured, record

SCRAPE_S, HOURS = 15, (1, 6, 24, 72)
HISTOGRAMS = ("ttft", "itl", "e2e", "queue", "prefill")
UNKNOWN = 20
GAUGES = (
    "queue_depth",
    "running",
    "kv_cache_usage",
    "kv_capacity",
    "gpu_util",
    "gpu_clock",
    "gpu_power",
    "gpu_temperature",
)


def main() -> None:
    """Make the store, then ask for windows that end with it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--instances", type=int, default=8)
    add_write_flag(parser)
    asked = parser.parse_args()
    found = []
    names = [
        *((name, 1 if name in GAUGES else 2) for name in INDICATORS),
        *((None, 2) for _ in range(UNKNOWN)),
        *((name, 3) for name in HISTOGRAMS),
    ]
    end = datetime.now(UTC).replace(microsecond=0)
    first = int(end.timestamp()) - int(asked.days * 86_400)
    with tempfile.TemporaryDirectory(prefix="overrun-samples-") as folder:
        store = open_store(Path(folder) / "samples.db", create=True)
        store.connection.execute(
            "create temp table names (number integer, indicator varchar, kind utinyint)"
        )
        store.connection.executemany(
            "insert into names values (?, ?, ?)",
            [(number, *name) for number, name in enumerate(names)],
        )
        for begin in range(0, int(asked.days * 86_400), 6 * 3_600):
            store.connection.execute(
                """insert into points by name
                select $begin as batch, 1 as source_id, (($first::bigint + s) * 1_000_000_000)::bigint as time_ns, $first::bigint * 1_000_000_000 as start_ns,
                    'vllm:m' || number as name, '1' as unit, kind, if(kind = 1, 0, 2) as temporality, kind > 1 as monotonic, hash(number, i) as series,
                    'gpu-' || i as instance, 'llama' as model, indicator, 1.0 as scale,
                    case kind when 1 then hash(s, number, i) % 1000 / 1000 when 2 then s * 10.0 end as value,
                    if(kind = 3, [0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80], null) as bounds,
                    if(kind = 3, list_transform(range(13), lambda b: (s * b)::double), null) as counts,
                    if(kind = 3, s::double, null) as sum, if(kind = 3, s * 78.0, null) as count, map {} as attributes
                from range($begin, $begin + 21_600, $step) r(s), names, range($instances) n(i) order by s""",
                {"begin": begin, "first": first, "step": SCRAPE_S, "instances": asked.instances},
            )
        store.connection.execute("checkpoint")
        held = store.connection.execute("select count(*) from points").fetchall()[0][0]
        print(f"{held:,} samples of {asked.instances} instances, {asked.days:g} days")
        with store.reading() as con:
            for hours in HOURS:
                window = Window(start=end - timedelta(hours=hours), end=end)
                spent = []
                for _ in range(3):
                    begun, cpu = time.perf_counter(), time.process_time()
                    build(con, window, parse_slo("chat"), with_findings=False)
                    spent.append((time.perf_counter() - begun, time.process_time() - cpu))
                wall, cpu = min(spent)
                print(f"report over {hours} h: {wall:.2f} s, {cpu:.2f} s of CPU")
                conditions = (
                    f"{held:,} samples of {asked.instances} instances in {asked.days:g} days"
                )
                found.append(
                    measured(
                        f"Report over {hours} h",
                        round(wall, 2),
                        "s",
                        script="python -m tests.benchmarks.samples",
                        conditions=conditions,
                    )
                )
        store.close()
    if asked.write:
        record("samples", found)


if __name__ == "__main__":
    main()
