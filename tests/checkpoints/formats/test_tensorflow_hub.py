"""SavedModels of TensorFlow Hub, which `scripts/originals/tfhub.py` wrote, answer as they did."""

import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.tensorflow_hub import describe
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf, variables_of
from tests.checkpoints.small import save_tensors

FILES = Path(__file__).parent / "originals/tensorflow_hub"
GRAPH, VARIABLES, BLOCK = "saved_model.pb", "variables/variables", "transformer/layer_0/"
close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
CLASSES = {  # name of the file: name of its answers, heads that it lacks, layers that are not read
    "with_mlm": ("with_mlm", set(), ""),
    "encoder": ("encoder", {"mlm"}, ""),
    "expert": ("expert", set(), ""),
    "fine_tuned": ("fine_tuned", set(), "classifier"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_outputs_equal_those_of_tensorflow_hub(name, tmp_path, capsys):
    answers, missing, layer = CLASSES[name]
    stored = np.load(FILES / f"{answers}.npz")
    model, tokenizer, config = kb.load_pretrained(FILES / name)
    summary = capsys.readouterr().out
    assert (f"not read: the layers '{layer}'" in summary) == bool(layer)
    assert model.missing_heads == missing
    assert not config.next_sentence
    assert len(tokenizer.vocab) == 34
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
        close(model.mlm(encoded, stored["mlm_positions"]), stored["mlm_logits"])


@pytest.mark.parametrize("name", ["uncased_preprocess", "cased_preprocess"])
def test_tokens_equal_those_of_the_preprocessing_model(name, tmp_path):
    lines = json.loads((FILES / f"{name}.json").read_text())
    tokenizer = kb.load_tokenizer(FILES / name)
    assert tokenizer.options["lowercase"] == name.startswith("un")
    ids = tokenizer.tokenize([line["text"] for line in lines]).to_list()
    assert len(lines) == 200
    assert ids == [line["ids"] for line in lines]


@pytest.mark.parametrize("name", ["with_mlm", "encoder", "fine_tuned"])
def test_an_encoder_records_its_vocabulary_and_casing(name):
    """A fine-tuned model has them in the preprocessing model inside of it."""
    tokenizer = kb.load_tokenizer(FILES / name)
    assert tokenizer.options["lowercase"] == (name != "encoder")
    assert len(tokenizer.vocab) == 34


def test_a_saved_model_is_inspected():
    summary, weights = kb.inspect_checkpoint(FILES / "with_mlm")
    assert "TensorFlow Hub, SavedModel; 1 blocks, 8 wide, 2 attention heads, 34 tokens" in summary
    assert next(weights).name == "cls/predictions/output_bias/bias"


def node(name, operation):
    """Return the beginning of a serialized `NodeDef`."""
    return f"\n{chr(len(name))}{name}\x12{chr(len(operation))}{operation}\x1a\4Tanh".encode()


def test_the_activation_is_that_of_the_blocks_of_the_graph(tmp_path):
    """The names of the nodes are those of the graphs that `scripts/originals/tfhub.py` writes."""
    path = shutil.copytree(FILES / "with_mlm", tmp_path / "bert")
    around = node("head/Pow", "Pow") + node("my_layer_0/Erf", "Erf") + node("head/Relu", "Relu")
    for operation, activation in {"Erfc": "gelu", "Relu": "relu", "Pow": "gelu_tanh"}.items():
        in_block = node(f"bert/transformer/layer_0/activation/Gelu/{operation}", operation)
        for graph in (node("Gelu", operation), around + in_block, in_block + around):
            (path / GRAPH).write_bytes(graph)
            assert describe(path).config.activation == activation
    (path / GRAPH).write_bytes(around)
    with pytest.raises(ValueError, match="it computes 'gelu', 'gelu_tanh', 'relu'"):
        describe(path)


def test_a_fast_tokenizer_does_not_hide_that_texts_are_lowercased(tmp_path):
    """It has no operation that lowercases: the data of `FastBertNormalize` say whether it does."""
    path = shutil.copytree(FILES / "with_mlm", tmp_path / "bert")
    names = (b"\n\3Pow", b"TFText>FastBertNormalize", b"TFText>FastWordpieceTokenizeWithOffsets")
    (path / GRAPH).write_bytes(b"\n".join(names))
    assert kb.load_tokenizer(path).options["lowercase"]  # the variable of the encoder


# Hostile SavedModels


def written(name, content):
    """Return a function that writes a file of a folder, or removes it for `None`."""

    def edit(path):
        (path / name).unlink() if content is None else (path / name).write_bytes(content)

    return edit


def variables(name, value):
    """Return a function that adds, changes or, for `None`, removes a variable."""

    def edit(path):
        stored = variables_of(open_tf(path / VARIABLES))
        values = {x: stored.read(x) for x in stored.shapes} | {name: value}
        shutil.rmtree(path / "variables")
        items = [tf.Variable(x, name=name) for name, x in values.items() if x is not None]
        tf.train.Checkpoint(items=items).write(os.fspath(path / VARIABLES))

    return edit


def block(name, shape):
    return variables(BLOCK + name, shape and np.ones(shape))


def tf1(path):
    save_tensors(path / VARIABLES, {"bert/embeddings/word_embeddings": np.ones((4, 4), "float32")})


DATA = f"{VARIABLES}.data-00000-of-00001"
VOCAB = "assets/vocab.txt"
FOLDERS = {
    "no variables": (lambda path: shutil.rmtree(path / "variables"), "no file .*variables.index"),
    "no data": (written(DATA, None), "no file .*data-00000"),
    "half the data": (lambda path: os.truncate(path / DATA, 9000), "is not a readable|cannot be"),
    "no graph": (written(GRAPH, None), "no file 'saved_model.pb'|not a checkpoint of a known"),
    "another activation": (written(GRAPH, b"\n\3Elu"), "computes neither GELU nor ReLU. Copy it"),
    "a large graph": (
        lambda path: os.truncate(path / GRAPH, 2**26 + 1),
        "larger than 6|far larger",
    ),
    "a small vocabulary": (written(VOCAB, b"a\nb\n"), "vocab.txt"),
    "a checkpoint of TensorFlow 1": (tf1, "no valid object graph of TensorFlow 2"),
    "no embedding": (variables("word_embeddings/embeddings", None), "must have an array 'word_emb"),
    "no bias": (block("output/bias", None), "lacks weights"),
    "other heads": (
        block("self_attention/key/kernel", (8, 4, 2)),
        "self_attention.*8, 4, 2.* instead",
    ),
    "three heads": (block("self_attention/query/kernel", (8, 3, 3)), "num_heads|divisible"),
    "no heads": (block("self_attention/query/kernel", (8, 8)), "with 3 axes. Received: .8, 8."),
    "a relative": (block("self_attention/talking/kernel", (2, 2)), "the configured model does not"),
    "a second width": (variables("position_embedding/embeddings", np.ones((16, 6))), "not match"),
    "no number": (variables("embeddings/layer_norm/beta", np.full(8, np.nan)), "not finite"),
    "two BERTs": (variables("a/word_embeddings/embeddings", np.ones((9, 8))), "several BERTs"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_hostile_saved_model_is_refused(case, tmp_path):
    edit, message = FOLDERS[case]
    path = shutil.copytree(FILES / "with_mlm", tmp_path / "bert")
    edit(path)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        kb.load_pretrained(path)
    assert os.fspath(path) in str(error.value)


def test_other_files_are_left_to_keras_and_to_load_tokenizer(tmp_path):
    for name in ("a.keras", "a.h5"):
        (tmp_path / name).touch()
        with pytest.raises(FileNotFoundError, match="keras.models.load_model.*'tf_model.h5'"):
            kb.load_pretrained(tmp_path / name)
    with pytest.raises(ValueError, match="For a preprocessing model, use `load_tokenizer`"):
        kb.load_pretrained(FILES / "cased_preprocess")
