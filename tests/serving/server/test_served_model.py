"""Tests of models with several versions, and of damaged, changed or dangerous ones."""

import shutil

import pytest
import tensorflow as tf

from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.serving.server.served_model import ServedModel

pytestmark = pytest.mark.slow


class Number(tf.Module):
    def __init__(self):
        self.number = tf.Variable(7)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def ask(self, text):
        return {"number": tf.fill([tf.shape(text)[0]], self.number)}


class Reader(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
    def ask(self, name):
        return {"content": tf.io.read_file(name)}


def write_model(folder, module):
    function = module.ask.get_concrete_function()
    tf.saved_model.save(module, str(folder), {"serving_default": function})
    (folder / "notes.txt").write_text("original")
    write_checksums(folder)
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "original", Number())


@pytest.fixture
def path(original, tmp_path):
    """A folder with version 1."""
    shutil.copytree(original, tmp_path / "demo" / "1")
    return tmp_path / "demo"


def test_the_newest_version_is_loaded_and_named_after_the_parent_folder(original, path):
    for number in ("3", "10"):
        shutil.copytree(original, path / number)
    shutil.copytree(original, path / "x20")
    for folder, version in ((path, 10), (path / "3", 3)):
        model = ServedModel(folder)
        assert (model.name, model.version) == ("demo", version)
        assert model.ask("serving_default", {"text": [b"a"]})["number"] == 7
    model = ServedModel(path / "x20")
    assert (model.name, model.version) == ("x20", 1)


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize(
    "last",
    ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"],
)
def test_a_half_copied_version_is_refused(last, has_checksums, path):
    if not has_checksums:
        (path / "1" / "SHA256SUMS").unlink()
    content = (path / "1" / last).read_bytes()
    for end in (0, len(content) // 2):
        (path / "1" / last).write_bytes(content[:end])
        with pytest.raises(ValueError, match="demo/1"):
            ServedModel(path)


def test_a_version_that_has_changed_since_it_was_written_is_refused(path):
    (path / "1" / "notes.txt").write_text("changed")
    with pytest.raises(ValueError, match="notes.txt' has changed since it was written"):
        ServedModel(path)
    ServedModel(path, verify=False)


def test_a_model_that_can_read_files_is_refused(tmp_path):
    write_model(tmp_path / "1", Reader())
    with pytest.raises(ValueError, match=r"A SavedModel is a program.*ReadFile.*`--allow-files`"):
        ServedModel(tmp_path)
    model = ServedModel(tmp_path, allow_files=True)
    (tmp_path / "file").write_text("text")
    answer = model.ask("serving_default", {"name": str(tmp_path / "file").encode()})
    assert answer["content"] == b"text"
