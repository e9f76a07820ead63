"""SavedModels of TensorFlow Hub, which `scripts/originals/tfhub.py` wrote, answer as they did."""

import gc
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.garden_names import bert_names
from keras_bert_d2l.checkpoints.object_graphs import open_object_graph
from keras_bert_d2l.checkpoints.tensorflow_files import write_tf1
from tests.checkpoints.small import assert_same_weights

FILES = Path(__file__).parent / "originals/tensorflow_hub"
QUERY = "transformer/layer_0/self_attention/query/kernel"
GRAPH, VARIABLES = "saved_model.pb", "variables/variables"
CLASSES = {  # name of the file: name of its answers, heads that it lacks, layers that are not read
    "with_mlm": ("with_mlm", set(), ""),
    "with_mlm.tar.gz": ("with_mlm", set(), ""),
    "encoder": ("encoder", {"mlm"}, ""),
    "expert": ("expert", set(), ""),
    "fine_tuned": ("fine_tuned", set(), "classifier"),
    "fine_tuned.h5": ("fine_tuned", {"mlm"}, "labels"),
    "fine_tuned.keras": ("fine_tuned", {"mlm"}, "dense"),
}


def pack(folder, file):
    with tarfile.open(file, "w:gz") as archive:
        archive.add(folder, ".")
    return file


def place(name, tmp_path):
    """Return the path of a file, or of a folder in an archive."""
    if name.endswith(".tar.gz"):
        return pack(FILES / name.removesuffix(".tar.gz"), tmp_path / name)
    return FILES / name


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_outputs_equal_those_of_tensorflow_hub(name, tmp_path, capsys):
    answers, missing, layer = CLASSES[name]
    stored = np.load(FILES / f"{answers}.npz")
    model, tokenizer, config = kb.load_pretrained(place(name, tmp_path))
    summary = capsys.readouterr().out
    assert (f"not read: the layers '{layer}'" in summary) == bool(layer)
    assert model.missing_heads == missing
    assert not config.next_sentence
    assert (tokenizer is None) == (name.endswith((".h5", ".keras")))
    batch = {
        "tokens": stored["input_word_ids"],
        "segments": stored["input_type_ids"],
        "valid_lens": stored["input_mask"].sum(axis=1).astype("int32"),
    }
    encoded = model.encoder(**batch).numpy()
    is_real = stored["input_mask"].astype(bool)
    close(encoded[is_real], stored["sequence_output"][is_real])
    close(model.hidden(encoded[:, 0]), stored["pooled_output"])
    if "mlm_logits" in stored and not missing:
        logits = model.mlm(encoded, stored["mlm_positions"].astype("int32"))
        close(logits, stored["mlm_logits"])


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["uncased_preprocess", "cased_preprocess"])
def test_tokens_equal_those_of_the_preprocessing_model(name, tmp_path):
    lines = json.loads((FILES / f"{name}.json").read_text())
    tokenizer = kb.load_tokenizer(FILES / name)
    assert tokenizer.options["lowercase"] == name.startswith("un")
    ids = tokenizer.tokenize([line["text"] for line in lines]).to_list()
    assert len(lines) == 200
    assert ids == [line["ids"] for line in lines]


def test_an_encoder_records_its_vocabulary_and_casing(tmp_path):
    """A fine-tuned model has them in the preprocessing model inside of it."""
    for name, lowercase in {"with_mlm": True, "encoder": False, "fine_tuned": True}.items():
        packed = pack(FILES / name, tmp_path / f"{name}.tgz")
        for path in (FILES / name, packed):
            tokenizer = kb.load_tokenizer(path)
            assert tokenizer.options["lowercase"] == lowercase
            assert len(tokenizer.vocab) == 34
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        kb.load_tokenizer(FILES / "fine_tuned.h5")


@pytest.mark.slow
def test_a_loaded_model_is_saved_and_inspected(tmp_path):
    path = FILES / "with_mlm"
    model = kb.load_pretrained(path).model
    kb.convert_checkpoint(path, tmp_path / "native")
    assert_same_weights(kb.load_pretrained(tmp_path / "native").model, model)
    summary, weights = kb.inspect_checkpoint(pack(path, tmp_path / "a.tar.gz"))
    assert "TensorFlow Hub, SavedModel; 1 blocks, 8 wide, 2 attention heads, 34 tokens" in summary
    assert {weight.name: weight.shape for weight in weights}[QUERY] == (8, 8)


def test_an_archive_is_removed_with_its_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    kb.load_pretrained(pack(FILES / "with_mlm", tmp_path / "a.tar.gz"), tokenizer=False)
    gc.collect()
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_graph_without_a_list_of_operations_is_read(tmp_path):
    """The first versions of TensorFlow 2 wrote no list."""
    path = shutil.copytree(FILES / "with_mlm", tmp_path / "bert")
    graph = SavedModel()
    graph.meta_graphs.add().graph_def.library.function.add().node_def.add(op="Erf", name="a")
    (path / GRAPH).write_bytes(graph.SerializeToString())
    assert kb.load_pretrained(path).config.activation == "gelu"


@pytest.mark.parametrize("prefix", ["bert_model/", "model_weights/layer/bert_model/"])
def test_names_of_the_first_versions_are_known(prefix):
    """`BERT_NAME_REPLACEMENTS` in tf1_bert_checkpoint_converter_lib.py of the Model Garden."""
    old = {
        "word_embeddings/embeddings": "word_embeddings/embeddings",
        "embedding_postprocessor/type_embeddings": "type_embeddings/embeddings",
        "embedding_postprocessor/position_embeddings": "position_embedding/embeddings",
        "embedding_postprocessor/layer_norm/gamma": "embeddings/layer_norm/gamma",
        "encoder/layer_11/self_attention/key/bias": "transformer/layer_11/self_attention/key/bias",
        "encoder/layer_0/self_attention_output/kernel": (
            "transformer/layer_0/self_attention/attention_output/kernel"
        ),
        "encoder/layer_0/output/kernel": "transformer/layer_0/output/kernel",
        "pooler_transform/bias": "pooler_transform/bias",
    }
    stored = {prefix + name: () for name in old}
    names = bert_names(NamedArrays("bert", {**stored, "classifier/kernel": ()}, {}, np.zeros))
    assert names == {new: prefix + name for name, new in old.items()}


# Hostile SavedModels


def written(name, content):
    """Return a function that writes a file of a folder, or removes it for `None`."""

    def edit(path):
        (path / name).unlink()
        if content is not None:
            (path / name).write_bytes(content)

    return edit


def folder(name):
    def edit(path):
        (path / name).unlink()
        (path / name).mkdir()

    return edit


def graph(*operations):
    """Return a function that writes a graph with some operations."""
    model = SavedModel()
    names = model.meta_graphs.add().meta_info_def.stripped_op_list
    for operation in operations:
        names.op.add(name=operation)
    return written(GRAPH, model.SerializeToString())


def variables(**changes):
    """Return a function that writes other variables; `None` removes one."""

    def edit(path):
        stored = open_object_graph(path / VARIABLES)
        values = {name: stored.read(name) for name in stored.shapes}
        changed = {name.replace("__", "/"): value for name, value in changes.items()}
        saved = {name: value for name, value in (values | changed).items() if value is not None}
        shutil.rmtree(path / "variables")
        items = enumerate(saved.items())
        named = {f"v{number}": tf.Variable(value, name=name) for number, (name, value) in items}
        tf.train.Checkpoint(**named).write(os.fspath(path / VARIABLES))

    return edit


def tf1(path):
    shutil.rmtree(path / "variables")
    (path / "variables").mkdir()
    write_tf1(path / VARIABLES, {"bert/embeddings/word_embeddings": np.ones((4, 4), "float32")})


def another_vocabulary(path):
    (path / "assets/vocab_1.txt").write_bytes(SPECIAL)


def large(path):
    os.truncate(path / GRAPH, 2**26 + 1)


ONES = np.ones
NO_TEXT = b"\x12\x09\x0a\x07\x12\x05\x0a\x03\x0a\x01\xff"  # an operation
BLOCK = "transformer__layer_0__"
VOCAB, SPECIAL = "assets/vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
WORDS = [b"w%d" % number for number in range(100)]
DATA = f"{VARIABLES}.data-00000-of-00001"
FOLDERS = {
    "no variables": (lambda path: shutil.rmtree(path / "variables"), "no file .*variables.index"),
    "no index": (written(f"{VARIABLES}.index", None), "no file .*variables.index"),
    "no data": (written(DATA, None), "no file .*data-00000"),
    "half the data": (lambda path: os.truncate(path / DATA, 9000), "is not a readable|cannot be"),
    "an index that is a folder": (folder(f"{VARIABLES}.index"), "must be a file|no file"),
    "a graph that is a folder": (folder(GRAPH), "must be a file|no file"),
    "a large graph": (large, "more than 67,108,864|far larger"),
    "an empty graph": (written(GRAPH, b""), "it has no operations"),
    "a graph of zeros": (written(GRAPH, bytes(99)), "it is truncated"),
    "a truncated graph": (written(GRAPH, b"\x12\x09\x0a"), "saved_model.pb.* it is truncated"),
    "a length of a gigabyte": (written(GRAPH, b"\x12\xff\xff\xff\xff\x03"), "it is truncated"),
    "an endless integer": (written(GRAPH, b"\xff" * 99), "it is damaged"),
    "a group": (written(GRAPH, b"\x13" * 99), "it is damaged"),
    "a name that is not UTF-8": (written(GRAPH, NO_TEXT), "can't decode"),
    "another activation": (graph("Tanh", "Elu"), "computes neither GELU nor ReLU"),
    "two vocabularies": (another_vocabulary, "it has 2 vocabularies"),
    "a vocabulary of another size": (written(VOCAB, SPECIAL + b"\n".join(WORDS)), "has 105 tokens"),
    "no vocabulary": (written(VOCAB, b"a\nb\n"), "vocab.txt"),
    "a vocabulary of bytes": (written(VOCAB, b"\xff\xfe\n"), "vocab.txt"),
    "a checkpoint of TensorFlow 1": (tf1, "a module of TensorFlow Hub for TensorFlow 1"),
    "no BERT": (variables(word_embeddings__embeddings=None), "must have an array 'word_emb"),
    "no block": (
        variables(**{BLOCK + "intermediate__kernel": None}),
        "with 2 axes. Received: None",
    ),
    "a missing bias": (variables(**{BLOCK + "output__bias": None}), "lacks weights"),
    "heads in other sizes": (
        variables(**{BLOCK + "self_attention__key__kernel": ONES((8, 4, 2))}),
        "2 heads of size 4 .* shape .8, 4, 2.",
    ),
    "heads that do not divide": (
        variables(**{BLOCK + "self_attention__query__kernel": ONES((8, 3, 3))}),
        "divisible|num_heads",
    ),
    "no heads": (
        variables(**{BLOCK + "self_attention__query__kernel": ONES((8, 8))}),
        "with 3 axes. Received: .8, 8.",
    ),
    "another width": (variables(position_embedding__embeddings=ONES((16, 6))), "does not match"),
    "another scale": (variables(embeddings__layer_norm__gamma=ONES(9)), "does not match"),
    "values that are not finite": (
        variables(embeddings__layer_norm__beta=np.full(8, np.nan)),
        "not finite",
    ),
    "a relative of BERT": (
        variables(**{BLOCK + "self_attention__talking_heads__kernel": ONES((2, 2))}),
        "contains weights that the configured model does not have",
    ),
    "a hole between blocks": (
        variables(transformer__layer_7__output__bias=ONES(8)),
        "lacks weights",
    ),
    "two BERTs": (variables(other__word_embeddings__embeddings=ONES((9, 8))), "several BERTs"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_hostile_saved_model_is_refused(case, tmp_path):
    edit, message = FOLDERS[case]
    path = shutil.copytree(FILES / "with_mlm", tmp_path / "bert")
    edit(path)
    for file in (path, pack(path, tmp_path / "bert.tar.gz")):
        with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
            kb.load_pretrained(file)
        assert os.fspath(file) in str(error.value)


def test_a_hostile_file_of_keras_is_refused(tmp_path):
    """`test_hdf5_files.py` has the hostile HDF5 files, and `test_archives.py` the archives."""
    config = zipfile.ZipFile(FILES / "fine_tuned.keras").read("config.json")
    cases = {
        "other.h5": (ONES((2, 2)), "has no BERT"),
        "no_weights.keras": (None, "There is no file"),
        "no_bert.keras": (ONES((2, 2)), "has no BERT"),
    }
    for name, (value, message) in cases.items():
        weights = tmp_path / "model.h5"
        with h5py.File(weights, "w") as file:
            if value is not None:
                file["layers/keras_layer/vars/0"] = value
        if name.endswith(".h5"):
            weights.rename(tmp_path / name)
        else:
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("config.json", config)
                if value is not None:
                    archive.write(weights, "model.weights.h5")
        with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
            kb.load_pretrained(tmp_path / name)
        assert name in str(error.value)


def test_a_model_of_keras_without_a_hub_layer_is_left_to_keras(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(FileNotFoundError, match="keras.models.load_model"):
        kb.load_pretrained(tmp_path / "a.keras")


def test_a_preprocessing_model_is_a_tokenizer_only():
    with pytest.raises(ValueError, match="Pass a preprocessing model to `load_tokenizer`"):
        kb.load_pretrained(FILES / "cased_preprocess")
