import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import safetensors
import tensorflow as tf

from keras_bert_d2l.files import (
    CHECKSUMS,
    recover,
    replacing_file,
    replacing_folder,
    verify_checksums,
    write_json,
    write_text,
)

# Saves a folder with the content "new", but kills itself at the n-th rename.
KILLED_SAVE = """
import os, signal, sys
from keras_bert_d2l.files import replacing_folder

path, number, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
original, calls = os.replace, []

def replace(*arguments):
    calls.append(arguments)
    if len(calls) == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    original(*arguments)
    if len(calls) == number and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace
with replacing_folder(path) as folder:
    (folder / "new").write_text("new")
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def save(path, *names):
    with replacing_folder(path) as folder:
        for name in names:
            (folder / name).write_text(name)


def interrupt_after_writing(path):
    path.write_text("a part of it")
    raise KeyboardInterrupt


def test_a_link_is_followed_and_the_mode_of_a_file_is_kept(tmp_path):
    (tmp_path / "file.txt").touch(mode=0o600)
    (tmp_path / "link.txt").symlink_to("file.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "file.txt").read_text() == "new"
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o600


def test_a_pipe_gets_the_content_and_is_not_replaced(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "content")
    reader.join()
    assert received == ["content"]
    assert pipe.is_fifo()


def test_the_working_directory_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="working directory"), replacing_folder("."):
        pass
    assert names(tmp_path) == []


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("old", "new"):
        with replacing_folder(folder) as temporary:
            (temporary / content).write_text(content)
    assert names(folder) == ["SHA256SUMS", "new"]
    assert names(tmp_path) == ["model"]


def test_an_interrupted_write_leaves_the_old_file_or_folder(tmp_path):
    folder, file = tmp_path / "model", tmp_path / "notes.txt"
    save(folder, "old")
    write_text(file, "old")
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder) as temporary:
        interrupt_after_writing(temporary / "new")
    with pytest.raises(KeyboardInterrupt), replacing_file(file) as temporary:
        interrupt_after_writing(temporary)
    assert names(folder) == ["SHA256SUMS", "old"]
    assert file.read_text() == "old"
    assert names(tmp_path) == ["model", "notes.txt"]


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


@pytest.mark.parametrize("name", ["config.json", "SHA256SUMS"])
@pytest.mark.parametrize("target", ["missing", "{name}", "/dev/null"])
def test_a_link_to_no_regular_file_is_reported(folder, name, target):
    (folder / name).unlink()
    (folder / name).symlink_to(target.format(name=name))
    with pytest.raises(
        (FileNotFoundError, ValueError), match=f"{name}'(: it is a link| must be a file)"
    ):
        verify_checksums(folder)


def test_files_that_are_not_listed_and_folders_without_checksums_pass(folder):
    (folder / "notes.txt").write_text("mine")
    verify_checksums(folder)
    (folder / "SHA256SUMS").unlink()
    (folder / "config.json").write_text("changed")
    verify_checksums(folder)


def run_killed_save(path, number, moment):
    """Return whether the process was killed before it had saved."""
    command = [sys.executable, "-c", KILLED_SAVE, path, str(number), moment]
    return subprocess.run(command, check=False).returncode == -signal.SIGKILL


# The renames are those of SHA256SUMS, the old folder and the new folder.
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_folder_survives_a_kill_at_any_rename(number, moment, tmp_path):
    path, copy = tmp_path / "folders" / "model", tmp_path / "copies"
    save(path, "old")
    assert run_killed_save(path, number, moment)
    shutil.copytree(path.parent, copy)
    is_old = (number, moment) in {(1, "before"), (1, "after"), (2, "before")}
    expected = ["SHA256SUMS", "old" if is_old else "new"]
    recover(path)
    assert names(path) == expected
    save(copy / "model", "newest")  # without reading it first
    assert names(copy / "model") == ["SHA256SUMS", "newest"]
    for folder in (path, copy / "model"):
        recover(folder)
        verify_checksums(folder)
        assert names(folder.parent) == ["model"]
    if (number, moment) == (3, "after"):  # a save has three renames
        assert not run_killed_save(path, 4, "before")


def test_the_workspace_of_a_running_process_is_not_touched(tmp_path):
    path = tmp_path / "model"
    with replacing_folder(path) as folder:
        (folder / "first").write_text("first")
        save(path, "second")
        recover(path)
        assert names(path) == ["SHA256SUMS", "second"]
    assert names(path) == ["SHA256SUMS", "first"]
    assert names(tmp_path) == ["model"]


def test_only_workspaces_of_the_same_name_are_removed(tmp_path):
    mine = [".model.0123abcd.tmp", ".model.x.0123abcd.tmp", ".model.tmp", ".model.0123abcde.tmp"]
    for name in mine:
        (tmp_path / name).mkdir()
    recover(tmp_path / "model")
    assert names(tmp_path) == sorted(mine[1:])


def test_numbers_that_json_does_not_have_are_not_written(tmp_path):
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "metrics.json", {"loss": value})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        safetensors.SafetensorError("I/O error: No space left on device (os error 28)"),
        tf.errors.ResourceExhaustedError(None, None, "x/y.pb; No space left on device [Op:SaveV2]"),
    ],
)
@pytest.mark.parametrize("replacing", [replacing_file, replacing_folder])
def test_the_error_on_a_full_disk_names_the_file_and_leaves_nothing(replacing, error, tmp_path):
    path = tmp_path / "model"
    with pytest.raises(OSError, match="No space left on device") as raised, replacing(path):
        raise error
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path))
    assert names(tmp_path) == []


def test_an_error_names_the_folder_but_errors_about_other_files_stay(tmp_path):
    with pytest.raises(OSError, match=r"/model'$"), replacing_folder(tmp_path / "model") as folder:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "config.json"))
    for error in (OSError(errno.EIO, "bad", "a.txt"), PermissionError("a.txt: Permission denied")):
        with pytest.raises(OSError, match="a.txt"), replacing_folder(tmp_path / "model"):
            raise error


def test_checksums_that_cannot_be_trusted_are_rejected(tmp_path):
    sums = tmp_path / CHECKSUMS
    for name in ("/etc/hostname", "../model", "a\0b", ""):
        sums.write_text(f"{'0' * 64}  {name}\n")
        with pytest.raises(ValueError, match="Line 1 of .*SHA256SUMS' is damaged"):
            verify_checksums(tmp_path)
    os.truncate(sums, 2**40)  # sparse
    with pytest.raises(ValueError, match="is larger than .* it has 1,099,511,627,776"):
        verify_checksums(tmp_path)
    sums.unlink()
    os.mkfifo(sums)
    with pytest.raises(ValueError, match="SHA256SUMS' must be a file. Received: a named pipe"):
        verify_checksums(tmp_path)
