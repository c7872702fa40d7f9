"""Which files are in an archive? Zip and tar (also packed by gzip, zstd, bzip2 or xz) are opened once, into a folder that ends with the process.

Bounded: how many members, how large they are together, and how much larger than the archive. Names are never paths out of the folder; links and devices are left
out. A member that is packed itself by gzip or zstd is opened as any file is; an archive in an archive is none of ours.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import zstandard

from overrun.collector.errors import ImportFailed

MOST_MEMBERS: Final = 10_000
MOST_BYTES: Final = 4 << 30  # of all members
# Deflate packs a bomb of zeros to a thousandth (RFC 1951 allows 1,032); logs of JSON to a twentieth or so.
MOST_RATIO: Final = 200
SPARE_BYTES: Final = 64 << 20
_PIECE: Final = 1 << 20
_ZIP, _ZSTD, _TAR = b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"ustar"
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, zstandard.ZstdError, lzma.LZMAError, EOFError)  # fmt: skip
_PACKED: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZ", bz2.open),
    (b"\xfd7", lzma.open),
)
_Member = tuple[str, float, IO[bytes]]  # name, when it was written (s since 1970), and its bytes
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def is_archive(path: Path, head: bytes) -> bool:
    """Whether a file is a zip or tar archive; `head` is its first 512 bytes, without gzip or zstd."""
    if head[:4] == _ZIP or head[257:262] == _TAR:
        return True
    if head.startswith((b"BZ", b"\xfd7")):
        with contextlib.suppress(OSError, *_BROKEN), _tar(path) as stream:
            return stream.read(512)[257:262] == _TAR
    return False


def members(path: Path) -> list[Path]:
    """The files in an archive, unpacked once.

    Raises:
        ImportFailed: it is broken, or holds more than is unpacked.
    """
    told = path.stat()
    return _unpacked(path, told.st_size, told.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _unpacked(path: Path, size: int, _: int) -> list[Path]:
    held = tempfile.TemporaryDirectory(prefix="overrun-")
    folder, left = Path(held.name) / path.name, min(MOST_BYTES, SPARE_BYTES + MOST_RATIO * size)
    found: list[Path] = []
    try:
        for name, written_s, stream in _opened(path):
            inside = [part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
            to = folder.joinpath(str(len(found)), *inside[-2:])
            to.parent.mkdir(parents=True)
            left -= _copied(stream, to, left)
            os.utime(to, (written_s, written_s))
            found.append(to)
            if left < 0 or len(found) > MOST_MEMBERS:
                raise ImportFailed(
                    f"{path} holds more than {MOST_MEMBERS:,} files, or more than {MOST_RATIO} times its size: unpack it and import the folder"
                )
    except (OSError, RuntimeError, NotImplementedError, ValueError, *_BROKEN) as error:
        held.cleanup()
        raise ImportFailed(f"{path} is an archive that cannot be read: {error}") from error
    except ImportFailed:
        held.cleanup()
        raise
    if not found:
        raise ImportFailed(f"{path} is an archive without a file")
    _KEPT.append(held)
    return found


def _copied(stream: IO[bytes], to: Path, most: int) -> int:
    """Write a member; returns its bytes, as far as they were read: one more than `most` at most."""
    size = 0
    with to.open("wb") as out:
        while size <= most and (piece := stream.read(min(_PIECE, most - size + 1))):
            out.write(piece)
            size += len(piece)
    return size


def _opened(path: Path) -> Iterator[_Member]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for one in archive.infolist():
                if not one.is_dir():
                    with archive.open(one) as stream:
                        yield one.filename, time.mktime((*one.date_time, 0, 0, -1)), stream
        return
    with _tar(path) as packed, tarfile.open(fileobj=packed, mode="r|") as listed:
        for entry in listed:
            if entry.isreg() and (content := listed.extractfile(entry)) is not None:
                yield entry.name, float(entry.mtime), content


@contextlib.contextmanager
def _tar(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a tar archive, unpacked."""
    with path.open("rb") as packed:
        start = packed.read(6)
        packed.seek(0)
        if start[:4] == _ZSTD:
            yield io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(packed))  # type: ignore[type-var]  # a raw stream is enough
            return
        known = next((opened for first, opened in _PACKED if start.startswith(first)), None)
        with contextlib.nullcontext(packed) if known is None else known(packed) as stream:
            yield stream
