"""Presets that KerasHub 0.32 and KerasNLP 0.8.2 wrote (`scripts/originals/kerashub.py`)."""

import json
import pathlib
import zipfile

import h5py
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats import native
from tests.checkpoints.small import VOCAB, random_model
from tests.family import bert_of
from tests.nightly import nightly_except

ORIGINALS = pathlib.Path(__file__).parent / "originals/kerashub"
POOLER = ("dense/vars/0", "dense/vars/1")
MLM_HEAD = {"mlm_activation": "gelu", "mlm_layer_norm_epsilon": 1e-5}
SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_blks": 1, "max_len": 16}
CLASSIFIERS = {  # by the name of the preset: what gives its outputs from ours
    "classifier_softmax": lambda logits: np.exp(logits) / np.exp(logits).sum(1, keepdims=True),
    "classifier_linear": lambda logits: logits,
    "classifier_sigmoid": lambda logits: 1 / (1 + np.exp(-logits)),
    "classifier_score": lambda scores: scores,
    "keras_nlp_classifier": lambda logits: logits,
}
BACKBONES = ("bfloat16", "float16", "sharded", "backbone")
EMBEDDERS = ("embedder_mean", "embedder_max")
WRITTEN_BACK = (*[*CLASSIFIERS][1:3], "masked_lm", "backbone", *EMBEDDERS)


@pytest.fixture
def unpack(tmp_path):
    """A function that returns the folder of a preset, its inputs, and its inputs and outputs."""

    def unpacked(name):
        with zipfile.ZipFile(ORIGINALS / f"{name}.zip") as archive:
            archive.extractall(tmp_path / name)
        with np.load(tmp_path / name / "expected.npz") as file:
            expected = dict(file)
        batch = {"tokens": expected.get("token_ids"), "segments": expected.get("segment_ids")}
        batch["valid_lens"] = expected.get("padding_mask", np.ones((1, 1))).sum(axis=1)
        return tmp_path / name, batch, expected

    return unpacked


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def bert(preset="google", vocab=VOCAB, **fields):
    fields = {"vocab_size": len(vocab), **SIZES, **fields}
    model = random_model(kb.BERTConfig.preset(preset, **fields))
    model.tokenizer = kb.Tokenizer(vocab)
    return model


@pytest.mark.parametrize("name", nightly_except(BACKBONES[:1], BACKBONES))
def test_a_backbone_has_the_outputs_of_kerashub(unpack, name, capsys):
    folder, batch, expected = unpack(name)
    model = kb.load_pretrained(folder).model
    encoded = model(*batch.values())[0]
    assert_close(encoded, expected["sequence_output"])
    assert_close(model.hidden(encoded[:, 0]), expected["pooled_output"])
    assert model.missing_heads == {"mlm", "nsp"}
    assert "KerasHub BertBackbone; 2 blocks, 8 wide" in capsys.readouterr().out


def test_a_masked_lm_has_the_outputs_of_kerashub_and_fits_no_other_format(unpack, tmp_path):
    folder, batch, expected = unpack("masked_lm")
    model, _, config = kb.load_pretrained(folder)
    assert_close(model(*batch.values(), expected["mask_positions"])[1], expected["output"])
    assert {name: getattr(config, name) for name in MLM_HEAD} == MLM_HEAD
    assert model.missing_heads == {"nsp"}
    kb.save_pretrained(model, tmp_path / "native")
    assert kb.load_pretrained(tmp_path / "native").config == config
    with pytest.raises(ValueError, match="mlm_activation=None.*Received: mlm_activation='gelu'"):
        kb.save_pretrained(model, tmp_path / "other", format="huggingface")


@pytest.mark.parametrize("name", nightly_except([*CLASSIFIERS][:1], CLASSIFIERS))
def test_a_classifier_has_the_outputs_of_kerashub(unpack, name):
    folder, batch, expected = unpack(name)
    model = kb.load_pretrained(folder).model
    assert_close(CLASSIFIERS[name](model(batch).numpy()), expected["output"])
    is_score = name == "classifier_score"
    assert type(model) is (kb.SequenceRegressor if is_score else kb.SequenceClassifier)
    assert model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")[: 1 if is_score else 3]
    assert getattr(model, "multi_label", False) == (name == "classifier_sigmoid")


@pytest.mark.parametrize("name", nightly_except(EMBEDDERS[:1], EMBEDDERS))
def test_an_embedder_has_the_outputs_of_kerashub(unpack, name):
    folder, batch, expected = unpack(name)
    model = kb.TextEmbedder.from_pretrained(folder)
    assert_close(model(batch), expected["output"])
    assert model.max_row_len == 12  # `sequence_length` of its preprocessor


@pytest.mark.parametrize("name", ["cased", "lowercase", "uncased", "special"])
def test_tokens_of_200_lines_equal_those_of_kerashub(unpack, name):
    folder, _, expected = unpack(f"tokens_{name}")
    tokens = kb.load_tokenizer(folder).tokenize([str(line) for line in expected["lines"]])
    np.testing.assert_array_equal(tokens.flat_values, expected["ids"])
    np.testing.assert_array_equal(tokens.row_lengths(), expected["lengths"])
    assert len(expected["lines"]) == 200


@pytest.mark.parametrize("name", nightly_except(WRITTEN_BACK[:1], WRITTEN_BACK))
def test_what_is_written_back_equals_the_original_bit_for_bit(unpack, name, tmp_path):
    folder, _, _ = unpack(name)
    back = tmp_path / "back"
    is_embedder = name in EMBEDDERS
    model = (
        kb.TextEmbedder.from_pretrained(folder) if is_embedder else kb.load_pretrained(folder)[0]
    )
    kb.save_pretrained(model, back, format="kerashub")
    for file in folder.glob("*.h5"):
        zeros = {name: bytes(len(weights(file)[name])) for name in POOLER} if is_embedder else {}
        assert weights(back / file.name) == weights(file) | zeros
    for file in ("config.json", "task.json")[: 1 if name == "backbone" else 2]:
        assert arguments(back / file) == arguments(folder / file)
    vocab = "assets/tokenizer/vocabulary.txt"
    assert (back / vocab).read_bytes() == (folder / vocab).read_bytes()
    if is_embedder:
        assert '"sequence_length": 12' in (back / "preprocessor.json").read_text()


@pytest.mark.filterwarnings("ignore:KerasHub cannot express these heads")
def test_a_converted_embedder_keeps_its_arguments_and_its_pooler(tmp_path):
    model, back = bert(), tmp_path / "back"
    embedder = kb.TextEmbedder(model, "cls", normalize=False, max_len=9, long_texts="max")
    native.write(model, tmp_path, None, {}, embedding=embedder.task_config())
    kb.convert_checkpoint(tmp_path, back, "kerashub")
    assert kb.TextEmbedder.from_pretrained(back).task_config() == embedder.task_config()
    kernel = weights(back / "model.weights.h5")["dense/vars/0"]
    assert kernel == model.hidden.kernel.numpy().tobytes()


def weights(file):
    """Return the bytes of all weights of layers."""
    names, found = [], {}
    with h5py.File(file) as opened:
        opened["layers"].visit(names.append)
        for name in names:
            if isinstance(opened[f"layers/{name}"], h5py.Dataset):
                found[name] = opened[f"layers/{name}"][:].tobytes()
    return found


def arguments(file):
    """Return the class and the arguments of an object, without those that are objects again."""
    fields = json.loads(file.read_text())
    ignored = ("name", "trainable", "dtype", "backbone", "preprocessor")
    values = {key: value for key, value in fields["config"].items() if key not in ignored}
    return fields["registered_name"], values


def test_labels_and_the_options_of_the_tokenizer_are_restored(tmp_path):
    model = kb.SequenceClassifier(bert(), ["bad", "fine"], multi_label=True, long_texts="max")
    options = {"lowercase": False, "strip_accents": True, "tokenize_chinese_chars": False}
    tokenizer = kb.Tokenizer(VOCAB, compat="huggingface", **options)
    kb.save_pretrained(model, tmp_path / "kept", tokenizer=tokenizer, format="kerashub")
    kept = kb.load_pretrained(tmp_path / "kept")
    assert kept.model.task_config() == model.task_config()
    assert kept.tokenizer.options == tokenizer.options


@pytest.mark.parametrize(("fields", "lost"), [({}, ["mlm", "nsp"]), (MLM_HEAD, ["nsp"])])
def test_heads_that_kerashub_does_not_have_are_named(tmp_path, fields, lost):
    with pytest.warns(Warning, match=".") as found:  # TensorFlow issues others
        kb.save_pretrained(bert(**fields), tmp_path / "preset", format="kerashub")
    assert any(f"heads, which are not saved: {lost}. It has" in str(x.message) for x in found)
    assert kb.load_pretrained(tmp_path / "preset").model.missing_heads == set(lost)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bert("huggingface"), "activation='gelu_tanh'.*Received: activation='gelu'"),
        (lambda: bert(layer_norm_epsilon=1e-5), "layer_norm_epsilon=1e-12"),
        (lambda: bert(positions="sinusoidal"), "positions='learned'"),
        (lambda: bert(pooler=False), "pooler=True"),
        (lambda: kb.TokenClassifier(bert(), ["a", "b"]), "several labels.*TokenClassifier"),
        (lambda: kb.SequenceClassifier(bert(), ["a", "b"], pooling="mean"), "pooling: mean"),
        (lambda: kb.SequenceRegressor(bert(), ["a", "b"]), "one score"),
        (lambda: kb.TextEmbedder(bert("huggingface")), "Received: activation='gelu'"),
    ],
)
def test_what_kerashub_cannot_express_is_named(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        kb.save_pretrained(make(), tmp_path / "preset", format="kerashub")
    assert not (tmp_path / "preset").exists()


RELATIVES = {
    "roberta": lambda: bert_of("roberta"),
    "xlm-roberta": lambda: bert_of("xlm-roberta"),
    "distilbert": lambda: bert("distilbert", mlm_layer_norm_epsilon=1e-5),
    "electra": lambda: bert("electra-small", activation="gelu_tanh", embedding_width=4),
    "deberta-v3": lambda: without_tokenizer(bert_of("deberta-v3", relative_max_distance=48)),
    "albert": lambda: without_tokenizer(bert("albert-base", embedding_width=4)),
}


def without_tokenizer(model):
    model.tokenizer = None
    return model


@pytest.mark.filterwarnings("ignore:KerasHub cannot express these heads")
@pytest.mark.parametrize("name", nightly_except([*RELATIVES][:2], RELATIVES))
def test_a_written_relative_is_read_back_with_its_tokenizer(name, tmp_path):
    model = RELATIVES[name]()
    kb.save_pretrained(model, tmp_path / "preset", format="kerashub")
    back = kb.load_pretrained(tmp_path / "preset").model
    rows = (np.array([[4, 5, 6, 7], [7, 6, 5, 4]]), np.zeros((2, 4), "int32"), np.array([4, 2]))
    assert_close(back.encoder(*rows), model.encoder(*rows))
    if model.tokenizer is not None:
        texts = ["the cat sat on a mat", "Paris is big"]
        ids = model.tokenizer.tokenize(texts).to_list()
        assert back.tokenizer.tokenize(texts).to_list() == ids


def with_lowercase():
    model = bert_of("roberta")
    tokens, definition = model.tokenizer.vocab.tokens, model.tokenizer.vocab.definition
    changed = {**definition, "normalizer": {"type": "Lowercase"}}
    model.tokenizer = kb.Tokenizer(kb.Vocab(tokens, changed))
    return model


@pytest.mark.filterwarnings("ignore:KerasHub cannot express these heads")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bert_of("modernbert"), "model_type.*'electra'. Received:.*'modernbert'"),
        (lambda: bert_of("albert"), r"special_tokens.*\[MASK\]. Received.*<mask>"),
        (lambda: bert("albert-base", embedding_width=4), "Albert, unigram.*wordpiece"),
        (lambda: kb.TextEmbedder(bert_of("roberta")), "Received: model='RobertaTextEmbedder'"),
        (with_lowercase, "tokenizer.*without further steps.*Lowercase.*model.tokenizer = None"),
    ],
)
def test_what_kerashub_cannot_express_of_relatives_is_named(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        kb.save_pretrained(make(), tmp_path / "preset", format="kerashub")


HOSTILE = """
config registered_name "keras_hub>GemmaBackbone" BertBackbone.*GemmaBackbone
config registered_name "os>BertBackbone" os>BertBackbone
config registered_name null BertBackbone
config config [1] config
config config.num_layers 1000000000 too.few
config config.num_layers 3 lacks.weights.*transformer_encoder_2/
config config.num_heads 4 does.not.match.its.config.*_self_attention_layer
config config.hidden_dim 1000000000000 does.not.match.its.config
config config.norm_first true norm_first.*may.change
config config.activation "relu" activation.*may.change
task registered_name "keras_hub>BertTagger" BertMaskedLM.*BertTagger
task config.backbone "os.system" os.system
task config.backbone.config.hidden_dim 16 does.not.match.its.config
task config.activation {"class_name":"Lambda"} activation.*Lambda
task config.logit_scale 2.0 logit_scale.*may.change
task config.dropout 2 dropout
tokenizer registered_name "keras_hub>GPT2Tokenizer" BertTokenizer.*GPT2
tokenizer config.lowercase "yes" lowercase.*yes
metadata keras_bert_d2l {"labels":["a"]} labels
metadata keras_bert_d2l {"labels":[1,2,3]} labels
metadata keras_bert_d2l {"compat":"x"} compat
"""


@pytest.mark.parametrize("line", HOSTILE.strip().splitlines())
def test_a_file_with_a_wrong_value_is_refused(unpack, line):
    file, place, value, message = line.split()
    folder, *_ = unpack("backbone" if file == "config" else "classifier_linear")
    path = folder / f"{file}.json"
    fields = inner = json.loads(path.read_text())
    *parents, last = place.split(".")
    for parent in parents:
        inner = inner[parent]
    inner[last] = json.loads(value)
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=message) as error:
        kb.load_pretrained(folder)
    assert str(folder) in str(error.value)


DAMAGED = """
backbone model.weights.h5 ... model.weights.h5
classifier_linear task.weights.h5 ... task.weights.h5.*Copy.*remove.task.json.and.pass.`labels`
backbone assets/tokenizer/vocabulary.txt ... vocabulary.txt
backbone assets/tokenizer/vocabulary.txt [PAD] special.tokens
backbone model.weights.h5 text model.weights.h5.*HDF5
sharded model.weights.json {"weight_map":{"a":"c.h5"}} c.h5
sharded model_00001.weights.h5 ... model_00001.weights.h5
masked_lm task.json {} BertMaskedLM
masked_lm task.json [ task.json.*not.a.JSON.file
"""


@pytest.mark.parametrize("line", DAMAGED.strip().splitlines())
def test_a_preset_with_a_missing_or_damaged_file_is_refused(unpack, line):
    name, file, content, message = line.split()
    folder, *_ = unpack(name)
    (folder / file).unlink()
    if content != "...":
        (folder / file).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        kb.load_pretrained(folder)
    assert str(folder) in str(error.value)
