"""AIPerf's artifacts of 4 and of 16 clients on eight seats."""

from pathlib import Path

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    for users in (4, 16):
        world, home = worlds.looped(users), folder / "artifacts" / f"c{users}"
        worlds.write(home, "profile_export.jsonl", worlds.aiperf(world))
        worlds.write(home, "profile_export_aiperf.json", worlds.aiperf_json(world))
        worlds.write(home, "profile_export_aiperf.csv", worlds.aiperf_csv(world))
        worlds.write(home, "inputs.json", b'{"data": [{"session_id": "a", "payloads": []}]}')
