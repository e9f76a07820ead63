"""Archives of models are unpacked to a folder that disappears, and hostile ones are refused."""

import errno
import gc
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib

import pytest

from keras_bert_d2l.checkpoints.archives import Unpacked, is_tar

WANTED = r"(?:[^/]+/)?(model\.pb|assets/[^/]+)"
GOOD = {"model.pb": b"graph", "assets/vocab.txt": b"[PAD]\n"}


def member(name, content=b"x", **fields):
    """Return an entry of a tar archive; fields override those of its header."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def packed(*members, after=b""):
    """Return a `.tar.gz` file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for info, content in members:
            size, header = info.size, info.tobuf(tarfile.PAX_FORMAT)
            file.write(header + content + bytes(-len(content) % 512))
            archive.offset += len(header) + size
    return gzip.compress(file.getvalue() + after, mtime=0)


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("folder", ["", "./", "bert_en/"])
def test_wanted_files_are_unpacked_and_removed_with_the_object(folder, tmp_path):
    names = {folder + name: content for name, content in {**GOOD, "other.txt": b"no"}.items()}
    content = packed(*(member(*item) for item in names.items()))
    (tmp_path / "a.tar.gz").write_bytes(content)
    (tmp_path / "3?tf-hub-format=compressed").write_bytes(content)
    (tmp_path / "a.keras.tar").write_bytes(gzip.decompress(content))
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    for file in list(tmp_path.iterdir()):
        assert is_tar(file) == (file.suffix != ".keras")
        unpacked = Unpacked(file, WANTED)
        path = unpacked.folder
        assert files(path) == GOOD
        del unpacked
        gc.collect()
        assert not path.exists()


@pytest.mark.parametrize("text", [b"text" * 999, b"", None])
def test_a_compressed_file_of_another_kind_is_not_taken_for_an_archive(text, tmp_path):
    content = b"\x1f\x8b" if text is None else gzip.compress(text)
    (tmp_path / "corpus.txt.gz").write_bytes(content)
    assert not is_tar(tmp_path / "corpus.txt.gz")


def test_an_archive_may_have_as_many_files_with_pax_headers_as_others(tmp_path):
    many = (member(f"{n}", b"", pax_headers={"mtime": "1.5"}) for n in range(498))
    (tmp_path / "a.tar.gz").write_bytes(packed(*many, member("model.pb")))
    assert files(Unpacked(tmp_path / "a.tar.gz", WANTED).folder) == {"model.pb": b"x"}


def link(kind, target="/etc/passwd"):
    return packed(member("assets/vocab.txt", b"", type=kind, linkname=target))


def pax(*items, kind=tarfile.XHDTYPE, content=b"x"):
    """Return an archive with a pax header before its only file."""
    records = (f" {key}={value}\n" for key, value in items)
    text = "".join(f"{len(record) + 2}{record}" for record in records).encode()
    return packed(member("pax", text, type=kind), member("model.pb", content))


def sparse(num_blocks):
    """Return a sparse file of GNU tar, whose list of parts has some blocks of its own."""
    header = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    header[156:157], header[482] = tarfile.GNUTYPE_SPARSE, 1
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]
    return gzip.compress(header + (b"00000000001\0" * 42 + b"\1" + bytes(7)) * num_blocks)


def zipped(*names, size=9):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(size))
    return file.getvalue()


ZEROS, CRC = bytes(2**20), zlib.crc32(bytes(9)).to_bytes(4, "little")
GOOD_TAR = packed(*(member(*item) for item in GOOD.items()))
OUTSIDE, NO_FILE = "is not a name inside of it", "is neither a file nor a folder"
LONG, MANY = "list of entries has [12],", "list of entries is too long"
NEGATIVE, _ = member("a", size=-512, type=tarfile.XHDTYPE)
HOSTILE = {
    "a path to the parent": (packed(member("../model.pb")), OUTSIDE),
    "a path of Windows": (packed(member(r"assets\..\x")), OUTSIDE),
    "a pax path to the parent": (pax(("path", "../../model.pb")), OUTSIDE),
    "a symbolic link": (link(tarfile.SYMTYPE), NO_FILE),
    "a hard link": (link(tarfile.LNKTYPE), NO_FILE),
    "a sparse pax file": (pax(("GNU.sparse.size", "999999999999")), f"{NO_FILE}|sparse"),
    "a negative size": (pax(("size", "-1024")), "negative size|is not a complete archive"),
    "a huge pax header": (packed(member("a", ZEROS * 2, type=tarfile.XHDTYPE)), LONG),
    "a header for all files": (
        pax(*((f"{n:05}", "value") for n in range(40_000)), kind=tarfile.XGLTYPE),
        MANY,
    ),
    "a negative header": (gzip.compress(NEGATIVE.tobuf(tarfile.GNU_FORMAT) + ZEROS * 9), "-512"),
    "many parts": (sparse(20_000), MANY),
    "a file twice": (packed(member("model.pb"), member("model.pb")), "two files 'model.pb'"),
    "a claimed size": (packed(member("model.pb", size=2**40)), "far larger than it can be"),
    "a bomb of zeros": (packed(after=ZEROS * 70), "far larger than it can be"),
    "many files": (packed(*(member(f"{n}") for n in range(501))), "more than 500 files"),
    "a truncated archive": (GOOD_TAR[:-9], "is not a complete archive"),
    "a wrong checksum": (GOOD_TAR[:-8] + b"abcdefgh", "CRC check failed"),
    "a name of a kilobyte": (packed(member("assets/" + "a" * 1000)), "is not a complete archive"),
}
HOSTILE_ZIPS = {
    "a path to the parent": (zipped("../model.pb"), OUTSIDE),
    "a bomb": (zipped(*"abcdefgh", size=2**23 + 1), "far larger than it can be"),
    "a file twice": (zipped("a/model.pb", "b/model.pb"), "two files 'model.pb'"),
    "a wrong checksum": (zipped("model.pb").replace(CRC, b"abcd"), "Bad CRC-32"),
    "no archive": (b"\x1f\x8b", "is not a complete archive"),
}
CASES = [(f"a.tar.gz: {name}", *case) for name, case in HOSTILE.items()]
CASES += [(f"a.keras: {name}", *case) for name, case in HOSTILE_ZIPS.items()]


@pytest.mark.parametrize(("name", "content", "message"), CASES, ids=[case[0] for case in CASES])
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    name, content, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    file = tmp_path / name.partition(":")[0]
    file.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=file.name) as error:
        Unpacked(file, WANTED)
    assert len(str(error.value)) < 700
    assert tracemalloc.get_traced_memory()[1] < 8 * len(ZEROS)
    tracemalloc.stop()
    error.match(message)
    del error
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_full_disk_is_not_called_a_damaged_archive(tmp_path, monkeypatch):
    (tmp_path / "a.tar.gz").write_bytes(GOOD_TAR)

    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", fill)
    with pytest.raises(OSError, match="No space left.*/tmp"):
        Unpacked(tmp_path / "a.tar.gz", WANTED)
