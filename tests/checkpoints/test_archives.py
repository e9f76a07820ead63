"""Archives of models are unpacked to a folder that disappears, and hostile ones are refused."""

import gc
import gzip
import io
import os
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib

import pytest

from keras_bert_d2l.checkpoints.archives import Unpacked

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
    return gzip.compress(file.getvalue() + after)


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("folder", ["", "./", "bert_en/"])
def test_wanted_files_are_unpacked_and_removed_with_the_object(folder, tmp_path):
    names = {folder + name: content for name, content in {**GOOD, "other.txt": b"no"}.items()}
    (tmp_path / "a.tar.gz").write_bytes(packed(*(member(*item) for item in names.items())))
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    for file in ("a.tar.gz", "a.keras"):
        unpacked = Unpacked(tmp_path / file, WANTED)
        path = unpacked.folder
        assert files(path) == GOOD
        del unpacked
        gc.collect()
        assert not path.exists()


def link(kind, target="/etc/passwd"):
    return packed(member("assets/vocab.txt", b"", type=kind, linkname=target))


def pax(key, value):
    """Return an archive with a pax header before its only file."""
    record = f" {key}={value}\n"
    record = f"{len(record) + 2}{record}".encode()
    return packed(member("pax", record, type=tarfile.XHDTYPE), member("model.pb"))


def zipped(*names, size=9):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(size))
    return file.getvalue()


ZEROS, CRC = bytes(2**20), zlib.crc32(bytes(9)).to_bytes(4, "little")
GOOD_TAR = packed(*(member(*item) for item in GOOD.items()))
OUTSIDE, NO_FILE = "is not a name inside of it", "is neither a file nor a folder"
LONG = "list of entries has [12],"
HOSTILE = {
    "a path to the parent": (packed(member("../model.pb")), OUTSIDE),
    "an absolute path": (packed(member("/tmp/model.pb")), OUTSIDE),
    "a path of Windows": (packed(member(r"assets\..\x")), OUTSIDE),
    "a pax path to the parent": (pax("path", "../../model.pb"), OUTSIDE),
    "a symbolic link": (link(tarfile.SYMTYPE), NO_FILE),
    "a link inside": (link(tarfile.SYMTYPE, "model.pb"), NO_FILE),
    "a hard link": (link(tarfile.LNKTYPE), NO_FILE),
    "a device": (link(tarfile.CHRTYPE), NO_FILE),
    "a sparse file": (link(tarfile.GNUTYPE_SPARSE), NO_FILE),
    "a sparse pax file": (pax("GNU.sparse.size", "999999999999"), f"{NO_FILE}|sparse"),
    "a negative size": (pax("size", "-1024"), "negative size|is not a complete archive"),
    "a huge pax header": (packed(member("a", ZEROS * 2, type=tarfile.XHDTYPE)), LONG),
    "a huge long name": (packed(member("a", ZEROS * 2, type=tarfile.GNUTYPE_LONGNAME)), LONG),
    "a file twice": (packed(member("model.pb"), member("model.pb")), "two files 'model.pb'"),
    "a claimed size": (packed(member("model.pb", size=2**40)), "far larger than it can be"),
    "a bomb of zeros": (packed(after=ZEROS * 70), "far larger than it can be"),
    "many files": (packed(*(member(f"{n}") for n in range(1001))), "more than 1,000 files"),
    "zeros behind the archive": (GOOD_TAR + ZEROS, "many zeros follow its content"),
    "a truncated archive": (GOOD_TAR[:-9], "is not a complete archive"),
    "a wrong checksum": (GOOD_TAR[:-8] + b"abcdefgh", "CRC check failed"),
    "no archive": (b"PK", "is not a complete archive"),
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
    with pytest.raises(ValueError, match=f"(?s){file.name}.{{1,400}}") as error:
        Unpacked(file, WANTED)
    assert tracemalloc.get_traced_memory()[1] < 8 * len(ZEROS)
    tracemalloc.stop()
    error.match(message)
    del error
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
