"""The address of a lake is read, refused with its remedy, and never shown with its password."""

import pytest

from overrun.collector.errors import ConfigError
from overrun.collector.store.lake.address import LakeAddress


def test_a_lake_has_a_catalog_and_a_place_for_its_files() -> None:
    found = LakeAddress.read(
        "ducklake:postgresql://me:secret@db:5432/lake?sslmode=require&data=s3://bucket/a/"
    )
    assert found.catalog == "postgresql://me@db:5432/lake?sslmode=require"
    assert found.password == "secret"
    assert found.data == "s3://bucket/a/"
    assert "secret" not in str(found)
    assert LakeAddress.read("ducklake:postgresql://me:a%40b@db/lake?data=/srv").password == "a@b"
    assert LakeAddress.read("ducklake:postgres://db/lake?data=/srv/lake").data == "/srv/lake/"


@pytest.mark.parametrize(
    "text",
    [
        "overrun.db",
        "ducklake:sqlite:file?data=/srv",
        "ducklake:postgresql://me:secret@db/lake",
        "ducklake:postgresql://me:secret@db/lake?data=lake",
        "ducklake:postgresql://me:secret@db/lake?data=/srv/../etc",
        "ducklake:postgresql://me:secret@db?data=/srv",
        "postgresql://me:secret@db/lake?data=/srv",
        "ducklake:postgresql://me:secret@[::1/lake?data=/srv",
    ],
)
def test_what_is_no_lake_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ConfigError, match="use ducklake:postgresql") as refused:
        LakeAddress.read(text)
    assert "secret" not in str(refused.value)
