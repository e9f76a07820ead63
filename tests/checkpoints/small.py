"""Small models and changes of their folders, which the tests of checkpoints share."""

import json

import numpy as np
import safetensors.numpy
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l import BERTConfig, BERTModel, Vocab
from keras_bert_d2l.checkpoints.formats import google
from keras_bert_d2l.checkpoints.formats.foreign_config import their_fields
from keras_bert_d2l.checkpoints.loading import load_model
from keras_bert_d2l.checkpoints.weights import named_weights, stored_weights

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split())
SMALL = {
    "vocab_size": len(VOCAB),
    "num_hiddens": 4,
    "ffn_num_hiddens": 8,
    "num_heads": 2,
    "num_blks": 1,
    "max_len": 16,
}
TWO_BLOCKS = {"num_hiddens": 16, "ffn_num_hiddens": 24, "num_heads": 2, "num_blks": 2}
OF_FORMAT = {  # for each format, a model that it can express
    "native": BERTConfig.preset("d2l", **SMALL),
    "huggingface": BERTConfig.preset("huggingface", **SMALL),
    "book": BERTConfig.preset("d2l-torch", **SMALL),
}
BATCH = {
    "tokens": np.array([[2, 5, 6, 7, 3], [2, 6, 3, 0, 0]], "int32"),
    "segments": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], "int32"),
    "valid_lens": np.array([5, 3], "int32"),
}


def outputs_of(model, inputs):
    """Return what a model computes for stored inputs, with the names of transformers."""
    batch = inputs["input_ids"], inputs.get("token_type_ids"), inputs["attention_mask"].sum(-1)
    tokens = batch[0]
    if isinstance(model, kb.QuestionAnswerer):
        return {f"{end}_logits": x for end, x in model(*batch).items()}
    if isinstance(model, kb.MultipleChoice) and tokens.ndim == 2:  # the choices of one example
        batch = [array[None] for array in batch]
    if not isinstance(model, kb.BERTModel):
        return {"logits": model(*batch)}
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype="int32"), tokens.shape)
    encoded, mlm, nsp = model(*batch, positions)
    found = {"last_hidden_state": encoded, "logits": mlm, "prediction_logits": mlm}
    if model.hidden is not None:
        found["pooler_output"] = model.hidden(encoded[:, 0])
    if model.rtd is not None:
        found["logits"] = model.rtd(encoded)
    if nsp is not None:
        found |= dict.fromkeys(("sop_logits", "seq_relationship_logits"), nsp[:, ::-1])
    return found


def write_google(model, folder, vocab=None):
    """Write a checkpoint of google-research/bert, which the package only reads."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = their_fields(model.bert_config, google.FIELDS) | {"hidden_act": "gelu"}
    (folder / "bert_config.json").write_text(json.dumps(fields))
    save_tensors(folder / google.PREFIX, stored_weights(model, google.table(model.bert_config)))
    if vocab is not None:
        vocab.to_file(folder / "vocab.txt")


def save_tensors(prefix, tensors):
    """Write a checkpoint of TensorFlow with tensors by their names."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def randomize(model):
    """Give a model weights of which no two are equal, and return it."""
    rng = np.random.default_rng(0)
    for weight in named_weights(model).values():
        weight.assign(rng.normal(0.1, 0.3, weight.shape))
    return model


def random_model(config):
    return randomize(BERTModel.from_bert_config(config))


def values(model):
    return {name: weight.numpy() for name, weight in named_weights(model).items()}


def assert_same_weights(one, other):
    """Compare two models, or a model with the values of another one."""
    ours, theirs = values(one), other if isinstance(other, dict) else values(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def model_of(checkpoint):
    """Return the model of a checkpoint that a format has described."""
    return load_model(checkpoint)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def edit_config(folder, **fields):
    """Change fields of `config.json`, or remove them (`...`)."""
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    file = folder / "config.json"
    fields = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: x for name, x in fields.items() if x is not ...}))


def edit_weights(folder, edit=dict, name="model.safetensors", metadata=None):
    """Replace the weights of a folder by `edit(weights)`."""
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    weights = edit(safetensors.numpy.load_file(folder / name))
    safetensors.numpy.save_file(weights, folder / name, metadata or {"format": "pt"})


def drop_weights(folder, *beginnings):
    """Remove the weights whose names start with one of these."""
    edit_weights(folder, lambda old: {k: x for k, x in old.items() if not k.startswith(beginnings)})


def shard(folder, num_files=3):
    """Split the weights of a folder into several files with an index, as transformers does."""
    whole = folder / "model.safetensors"
    weights = safetensors.numpy.load_file(whole)
    whole.unlink()
    weight_map = {}
    for number in range(num_files):
        name = f"model-{number + 1:05}-of-{num_files:05}.safetensors"
        part = {key: weights[key] for key in sorted(weights)[number::num_files]}
        safetensors.numpy.save_file(part, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
