"""Lakes that this process opens itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.lake_pipeline import LakePipeline, open_pipeline
from overrun.collector.ingest.rounds import Assembling
from tests.lake.processes import Lake

QUIET = CollectorSettings(quiet_s=0.3)


@contextmanager
def opened(lake: Lake, *, assembles: bool = False) -> Iterator[LakePipeline]:
    """The lake for as long as the block lasts."""
    made = open_pipeline(lake.address, QUIET, PrivacySettings(), assemble, None, assembles=assembles)  # fmt: skip
    try:
        yield made
    finally:
        made.close()


def rows(of: Assembling, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with of.store.reading() as con:
        return con.execute(query).fetchall()


def catalog_of(lake: Lake) -> psycopg.Connection[Any]:
    """The PostgreSQL database of a lake."""
    address = lake.address.removeprefix("ducklake:").partition("?")[0]
    return psycopg.connect(address, autocommit=True)


def expire_lease(lake: Lake) -> None:
    """As ten seconds later."""
    with catalog_of(lake) as other:
        other.execute("update overrun_leases set until = '-infinity'")
