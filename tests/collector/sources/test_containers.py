"""Archives are opened once and bounded; what is in them is read as files of a folder are."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from overrun.collector.errors import ImportFailed
from overrun.collector.sources import containers, forms
from overrun.collector.sources.importer import find_files, read_bodies

SAMPLES = ("jaeger.sample.json", "langsmith.sample.jsonl")


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in SAMPLES:
            archive.write(forms.FOLDER / name, f"../../deep/{name}")


def tarred(path: Path, mode: str) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name in SAMPLES:
            archive.add(forms.FOLDER / name, f"deep/{name}")
        link = tarfile.TarInfo("passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.zst", "a"])
def test_what_is_in_an_archive_is_read_as_files_are(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("zip"):
        zipped(path)
    else:
        tarred(path, {"gz": "w:gz", "xz": "w:xz"}.get(name.rpartition(".")[2], "w"))
    if name.endswith("zst"):
        path.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    found = find_files([path])
    assert [one.name for one in found] == list(SAMPLES)
    assert all(path.name in one.parts and list(read_bodies(one)) for one in found)
    assert find_files([path]) == found


def test_a_bomb_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(80 << 20))
    with pytest.raises(ImportFailed, match="more than 200 times its size"):
        find_files([path])


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MOST_MEMBERS", 1)
    zipped(tmp_path / "a.zip")
    with pytest.raises(ImportFailed, match="more than 1 files"):
        find_files([tmp_path / "a.zip"])


def test_a_broken_archive_is_refused_in_words(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("a.json", "{}" * 500)
    (tmp_path / "a.zip").write_bytes(whole.getvalue()[:200])
    with pytest.raises(ImportFailed, match="cannot be read"):
        find_files([tmp_path / "a.zip"])


def test_a_folder_takes_in_what_a_form_knows(tmp_path: Path) -> None:
    for name, form in (("go.txt", "go_stdouttrace"), ("spans.log", "zipkin"), ("a.csv", "locust")):
        (sample,) = forms.FOLDER.glob(f"{form}.sample.*")
        (tmp_path / name).write_bytes(sample.read_bytes())
    (tmp_path / "notes.txt").write_text("not mine")
    assert [one.name for one in find_files([tmp_path])] == ["go.txt", "spans.log"]
