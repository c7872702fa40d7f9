"""Opening the database: made where there is none, refused with a remedy where it cannot be used, and never harmed."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import duckdb
import pytest

from overrun.collector.errors import StoreError, StoreMissing, StoreUnavailable, StoreVersion
from overrun.collector.store import database as store_module
from overrun.collector.store.database import _SETTINGS, SCHEMA_VERSION, open_store, server_url
from tests.waiting import LIMIT_S


def make(path: Path) -> None:
    open_store(path, create=True).close()


def test_a_missing_database_is_said_to_be_missing_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(
        StoreMissing, match=r"there is no database at .*none\.db.*overrun serve --db"
    ):
        open_store(path, create=False)
    assert not path.exists()


def test_a_database_is_made_with_its_folder_and_stamped(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "er" / "t.db", create=True)
    assert (store.meta("schema_version"), store.meta("assembled_through"), len(store.salt())) == (
        str(SCHEMA_VERSION),
        "0",
        16,
    )
    assert store.meta("unheard_of") is None
    store.close()


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    with pytest.raises(StoreMissing):
        open_store(tmp_path / "t.db", create=False)
    make(tmp_path / "t.db")
    open_store(tmp_path / "t.db", create=False).close()


def test_the_salt_stays_with_its_store(tmp_path: Path) -> None:
    salts = []
    for path in (tmp_path / "a.db", tmp_path / "a.db", tmp_path / "b.db"):
        store = open_store(path, create=True)
        salts.append(store.salt())
        store.close()
    assert salts[0] == salts[1] != salts[2]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 1, "x"])
def test_another_schema_version_is_refused_with_its_remedy(tmp_path: Path, version: object) -> None:
    path = tmp_path / "t.db"
    make(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "update meta set value = $v where key = 'schema_version'", {"v": str(version)}
        )
    remedy = "overrun store migrate" if version == SCHEMA_VERSION - 1 else "use a newer Overrun"
    with pytest.raises(
        StoreVersion,
        match=rf"is schema {version}, this build needs {SCHEMA_VERSION}: .*{remedy}.*choose another --db",
    ):
        open_store(path, create=True)
    with duckdb.connect(str(path)) as connection:  # left as it was
        assert connection.execute(
            "select value from meta where key = 'schema_version'"
        ).fetchall() == [(str(version),)]


def test_an_sqlite_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("create table theirs (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a DuckDB database: choose another --db"):
        open_store(path, create=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"hello, I am a text file\n" * 400, b"\0" * 8192, b"PK\x03\x04 zip", b"x"]
)
def test_another_kind_of_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a DuckDB database: choose another --db"):
        open_store(path, create=True)
    assert path.read_bytes() == content


def test_another_duckdb_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table theirs (a int)")
    with pytest.raises(StoreError, match="not one of Overrun: choose another --db"):
        open_store(path, create=True)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("select table_name from duckdb_tables()").fetchall() == [
            ("theirs",)
        ]


def test_a_database_with_a_table_meta_of_its_own_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table meta (name varchar)")
    with pytest.raises(StoreError, match="choose another --db"):
        open_store(path, create=True)


def test_a_duckdb_that_mixes_up_rows_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = open_store(tmp_path / "made.db", create=True)
    made.close()
    monkeypatch.setattr(store_module, "LEAST_DUCKDB", (99,))
    for name, create in (("new.db", True), ("made.db", False)):
        with pytest.raises(StoreError, match=r"can mix up rows .*: pip install 'duckdb>=2\.0\.1'"):
            open_store(tmp_path / name, create=create)
    open_store(Path(":memory:"), create=True).close()


def test_a_folder_is_refused_and_a_file_in_it_proposed(tmp_path: Path) -> None:
    for create in (True, False):
        with pytest.raises(
            StoreError, match=r"is a folder: --db needs a file in it, such as .*overrun\.db"
        ):
            open_store(tmp_path, create=create)


def test_a_database_in_memory_touches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # systemd's working folder is /, which a service may not write
    (tmp_path / ":memory:").touch()
    open_store(Path(":memory:"), create=True).close()
    assert [path.name for path in tmp_path.iterdir()] == [":memory:"]


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ("Permission denied", r"chown.* or choose another --db"),
        ("Read-only file system", "Mount a folder there that can be written"),
        ("No space left on device", "Free some space on the disk of"),
    ],
)
def test_a_refusal_of_the_system_comes_with_its_remedy(
    refusal: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise duckdb.IOException(f'IO Error: Cannot open file "t.db": {refusal}')

    monkeypatch.setattr(duckdb, "connect", refuses)
    with pytest.raises(StoreError, match=rf"t\.db cannot be opened: .*{remedy}"):
        open_store(tmp_path / "t.db", create=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(tmp_path / "file" / "t.db", create=True)


def test_a_truncated_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    make(path)
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(StoreError):
        open_store(path, create=True)


def test_a_file_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"
    make(path)
    path.chmod(stat.S_IRUSR)
    if os.access(
        path, os.W_OK
    ):  # root may write everywhere: the operating system's answer is what it would be for others
        monkeypatch.setattr(os, "access", lambda *_: False)
    store = open_store(path, create=False)
    assert store.read_only
    with store.reading() as cursor:
        assert cursor.execute("select count(*) from v_requests").fetchall() == [(0,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            cursor.execute("insert into meta values ('a', 'b')")
    store.close()


def test_reading_sees_one_snapshot_while_others_write(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", create=True)
    with store.reading() as cursor:
        ((before,),) = cursor.execute("select count(*) from meta").fetchall()
        store.connection.execute("insert into meta values ('a', 'b')")
        assert cursor.execute("select count(*) from meta").fetchall() == [(before,)]
    with store.reading() as cursor:
        assert cursor.execute("select count(*) from meta").fetchall() == [(before + 1,)]
    store.close()


@pytest.mark.parametrize("limit", ["256MB", "40MB", None])
def test_duckdb_works_in_one_thread_until_a_reader_comes_and_keeps_its_memory_limit(
    tmp_path: Path, limit: str | None
) -> None:
    """A commit that met a smaller limit failed, and the rows of later ones were lost (test_failed_commits.py)."""
    store = open_store(tmp_path / "t.db", create=True, memory_limit=limit)
    asked = "select current_setting('threads')::integer, current_setting('memory_limit')"
    [usual] = store.connection.execute(asked).fetchall()
    alone = (1, usual[1])
    store.settle()
    assert store.connection.execute(asked).fetchall() == [alone]
    with store.reading() as cursor:
        assert cursor.execute(asked).fetchall() == [usual]
        store.settle()
        assert cursor.execute(asked).fetchall() == [usual], "a reader is there"
    store.settle()
    assert store.connection.execute(asked).fetchall() == [alone]
    store.reopen()
    store.settle()
    assert store.connection.execute(asked).fetchall() == [alone]
    store.close()


def test_settling_gives_back_what_is_held_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SETTLED_MEMORY", "4MB")
    store = open_store(tmp_path / "t.db", create=True, memory_limit="256MB")
    store.connection.execute(
        "insert into bodies select sha256(range::text)::blob, 1, range from range(300000)"
    )
    held = "select sum(memory_usage_bytes) from duckdb_memory()"
    before = store.connection.execute(held).fetchall()[0][0]
    with store.asking():
        store.settle()
        assert store.connection.execute(held).fetchall()[0][0] == before > 8_000_000, (
            "a cursor is open"
        )
    store.settle()
    assert (
        store.connection.execute(held).fetchall()[0][0] < 5_000_000
    )  # the limit, and what is allocated beside it
    store.close()


def test_a_file_is_opened_anew_when_nobody_asks_anything(tmp_path: Path) -> None:
    """What a connection made for itself tells whether it is still the one that it was."""
    store = open_store(tmp_path / "t.db", create=True, memory_limit="200MB")
    asked = "select current_setting('threads')::integer, current_setting('memory_limit')"
    usual = store.connection.execute(asked).fetchall()
    store.connection.execute("create temp table mine as select 1")
    for held in (store.reading, store.asking):
        with held():
            assert not store.renew()
        store.connection.execute("from mine")
    store.settle()
    assert store.renew()
    with pytest.raises(duckdb.CatalogException):
        store.connection.execute("from mine")
    assert store.connection.execute(asked).fetchall() == usual
    store.end_reading()
    assert not store.renew(), "it is closing"
    store.close()


@pytest.mark.parametrize("block_size", [65_536, 262_144])
def test_what_one_checkpoint_wrote_no_later_one_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_size: int
) -> None:
    """Also in a file of an earlier build, which keeps the blocks that it was made with."""
    with monkeypatch.context() as earlier:
        earlier.setitem(_SETTINGS, "default_block_size", block_size)
        make(tmp_path / "t.db")
    store = open_store(tmp_path / "t.db", create=False)
    held = "select block_size, checkpoint from pragma_database_size(), (select value as checkpoint from duckdb_settings() where name = 'checkpoint_threshold')"
    assert store.cursor().execute(held).fetchall() == [
        (block_size, f"{4 * 160 * block_size / 2**20} MiB")
    ]
    for i in range(6):
        store.connection.execute(
            "insert into bodies select md5(range::text)::blob, 1, range from range($first, $first + 3000)",
            {"first": 3000 * i},
        )
        store.connection.execute("checkpoint")
    groups = "select count from pragma_storage_info('bodies') where column_name = 'received_ns' and segment_type <> 'VALIDITY' order by row_group_id"
    assert store.connection.execute(groups).fetchall() == [(3000,)] * 6
    store.connection.execute(
        "delete from bodies where received_ns < 7000"
    )  # what has no row left is given back
    store.connection.execute("checkpoint")
    assert store.connection.execute(groups).fetchall() == [(3000,)] * 4
    store.close()


def test_a_failed_question_leaves_no_open_transaction(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", create=True)
    for _ in range(3):
        with pytest.raises(duckdb.Error), store.reading() as cursor:
            cursor.execute("select * from nowhere")
    with store.reading() as cursor:
        assert cursor.execute("select 1").fetchall() == [(1,)]
    store.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 5}', "null"])
def test_a_broken_address_note_is_no_address(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.db.server").write_text(content)
    assert server_url(tmp_path / "t.db") is None


def test_closing_interrupts_whoever_reads_and_lets_nobody_in(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", create=True)
    began, told = threading.Event(), []

    def read() -> None:
        try:
            with store.reading() as con:
                began.set()
                con.execute(
                    "select sum(a.range * b.range) from range(1_000_000) a, range(1_000_000) b"
                ).fetchall()
        except StoreUnavailable as error:
            told.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    assert began.wait(LIMIT_S)
    store.close()
    reader.join(LIMIT_S)
    assert told == ["the server is shutting down"]
    with pytest.raises(StoreUnavailable), store.reading():
        pass
