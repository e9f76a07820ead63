import shutil
import subprocess

import pytest

from keras_bert_d2l.files import replacing_file, replacing_folder, verify_checksums, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupt_after_writing(path):
    path.write_text("a part of it")
    raise KeyboardInterrupt


def test_a_file_is_replaced_when_the_block_succeeds(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")
    write_text(path, "größer")
    assert path.read_text(encoding="utf-8") == "größer"
    assert names(path.parent) == ["file.txt"]


def test_an_interrupted_write_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing_file(path) as temporary:
        interrupt_after_writing(temporary)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("old", "new"):
        with replacing_folder(folder) as temporary:
            (temporary / content).write_text(content)
    assert names(folder) == ["SHA256SUMS", "new"]
    assert names(tmp_path) == ["model"]


def test_an_interrupted_write_leaves_the_old_folder(tmp_path):
    folder = tmp_path / "model"
    with replacing_folder(folder) as temporary:
        (temporary / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder) as temporary:
        interrupt_after_writing(temporary / "new")
    assert names(folder) == ["SHA256SUMS", "old"]
    assert names(tmp_path) == ["model"]


@pytest.fixture
def folder(tmp_path):
    with replacing_folder(tmp_path / "model") as temporary:
        (temporary / "variables").mkdir()
        (temporary / "variables" / "weights").write_bytes(b"weights")
        (temporary / "config.json").write_text("{}")
    return tmp_path / "model"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs the command sha256sum")
def test_the_checksums_of_a_folder_have_the_format_of_sha256sum(folder):
    verify_checksums(folder)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)
    assert len((folder / "SHA256SUMS").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["config.json", "variables/weights"])
def test_a_changed_or_missing_file_is_reported(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + b"?")
    with pytest.raises(ValueError, match=f"{name}' has changed since it was written"):
        verify_checksums(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name}' is missing"):
        verify_checksums(folder)


def test_a_damaged_list_of_checksums_is_reported(folder):
    sums = (folder / "SHA256SUMS").read_bytes()
    for position in range(len(sums)):
        damaged = bytearray(sums)
        damaged[position] ^= 1 << position % 8
        (folder / "SHA256SUMS").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged|has changed|is missing"):
            verify_checksums(folder)


def test_files_that_are_not_listed_and_folders_without_checksums_pass(folder):
    (folder / "notes.txt").write_text("mine")
    verify_checksums(folder)
    (folder / "SHA256SUMS").unlink()
    (folder / "config.json").write_text("changed")
    verify_checksums(folder)
