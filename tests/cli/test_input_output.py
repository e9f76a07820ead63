import io
import os
import sys
from pathlib import Path

import pytest

from keras_bert_d2l.cli.input_output import STDIN, check_output, read_texts


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, with the file `text.txt`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("text")
    return tmp_path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\r\n", "\r"])
@pytest.mark.parametrize("text", ["the caf\u00e9", "\u5317\u4eac"])
def test_texts_may_have_any_line_ends(here, monkeypatch, end, last, text):
    content = f"\ufeff{text}{end}a dog{end}a\tb{last}".encode()
    (here / "texts.txt").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    for source in (((STDIN,), None), ((), here / "texts.txt")):
        assert read_texts(*source) == [text, "a dog", "a\tb"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("text.txt", "`out` must end in .npy or .jsonl. Received: 'text.txt'"),
        (".", "`out` must be a file. Received: the folder '.'"),
        ("text.txt/a.npy", "`out` must be in a folder that is writable. Received: 'text.txt/a"),
        ("s3://bucket/a.npy", "`out` must be a local path. Received: 's3://bucket/a.npy'"),
    ],
)
def test_a_path_that_cannot_be_written_is_rejected(here, out, message):
    with pytest.raises(ValueError, match=message):
        check_output("out", Path(out), suffixes=[".npy", ".jsonl"])
    assert os.listdir(here) == ["text.txt"]


def test_a_folder_without_permission_is_rejected(here, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (here, os.W_OK))
    with pytest.raises(ValueError, match="that is writable"):
        check_output("out", Path("new/a.npy"))


def test_devices_and_new_folders_are_accepted(here):
    os.mkfifo(here / "pipe")
    for out in ("pipe", os.devnull, "new/folder/page.html", None):
        check_output("out", out and Path(out), inputs=[out], suffixes=[".html"])
    assert sorted(os.listdir(here)) == ["pipe", "text.txt"]


COMMANDS = {
    "vocab text.txt --out": "text.txt",
    "predict text.txt --model nowhere --out": "text.txt",
    "predict a.txt --context text.txt --model nowhere --out": "text.txt",
    "embed --file lines.npy --model nowhere --out": "lines.npy",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_do_not_replace_their_inputs(here, invoke, command):
    for name in ("vocab.txt", "lines.txt"):
        (here / name).write_text("text")
    (here / "lines.npy").symlink_to("lines.txt")
    before = sorted(os.listdir(here))
    result = invoke(*command.split(), COMMANDS[command])
    option = command.split()[-1]
    assert result.stderr.startswith(f"error: {option} must not be an input, because it would be")
    assert result.exit_code == 2
    assert sorted(os.listdir(here)) == before
    assert {file.read_text() for file in here.iterdir()} == {"text"}


@pytest.mark.parametrize("command", ["distill --blocks 1 --train text.txt", "distill --static"])
def test_a_student_does_not_replace_its_teacher(here, invoke, command):
    (here / "teacher").mkdir()
    result = invoke(*command.split(), "--model", "teacher", "--out", "./teacher")
    assert result.stderr.startswith("error: --out must not be the folder of the teacher")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "Pass --blocks for a model with fewer blocks, or --static"),
        ("--static --blocks 1", "Pass --blocks for a model with fewer blocks, or --static"),
        ("--static --seed 3", "--seed is for --blocks"),
        ("--blocks 1 --num-hiddens 3", "--num-hiddens is for --static"),
    ],
)
def test_distill_refuses_the_options_of_the_other_kind(here, invoke, options, message):
    assert message in invoke("distill", "--out", "student", *options.split()).stderr
