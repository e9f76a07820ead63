"""The relatives of BERT in transformers 5, as `scripts/originals/family.py` wrote them."""

import dataclasses
import json
import types
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.array_files import open_safetensors, write_safetensors
from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats.huggingface.config import config_from_json, config_to_dict
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import write_tokenizer
from keras_bert_d2l.text.definition import from_json
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from tests.checkpoints.small import edit_config, outputs_of
from tests.family import unigram
from tests.nightly import nightly_except
from tests.text.tokenizer.byte_level import roberta_fields

ORIGINALS = Path(__file__).parent / "originals/family"
TASKS = {
    "ForSequenceClassification": kb.SequenceClassifier,
    "ForTokenClassification": kb.TokenClassifier,
    "ForQuestionAnswering": kb.QuestionAnswerer,
    "ForMultipleChoice": kb.MultipleChoice,
}
RELATIVES = "albert camembert distilbert electra modernbert mpnet roberta xlm-roberta".split()
RELATIVES += ["deberta", "deberta-v2"]
MODELS = [(name, ending) for name in RELATIVES for ending in ("Model", "ForMaskedLM", *TASKS)]
MODELS += [("albert", "ForPreTraining"), ("electra", "ForPreTraining")]
MODELS.remove(("deberta", "ForMultipleChoice"))
DAILY = [
    ("albert", "ForPreTraining"),
    ("electra", "ForPreTraining"),
    ("mpnet", "Model"),
    ("modernbert", "ForMaskedLM"),
]
DAILY += [(name, "ForSequenceClassification") for name in ("distilbert", "roberta")]
DAILY += [("deberta", "ForMaskedLM"), ("deberta-v2", "ForMultipleChoice")]


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Return a function that unpacks the folders of a model type."""
    folder = tmp_path_factory.mktemp("family")

    def unpacked(name):
        if not (folder / name).exists():
            zipfile.ZipFile(ORIGINALS / f"{name}.zip").extractall(folder / name)
        return folder / name

    return unpacked


@pytest.mark.slow
@pytest.mark.parametrize("which", nightly_except(DAILY, MODELS), ids=" ".join)
def test_outputs_equal_those_of_the_original_and_weights_are_written_back(
    which, originals, tmp_path
):
    name, ending = which
    folder = originals(name) / ending
    model = kb.load_pretrained(folder, verbose=False).model
    assert type(model) is TASKS.get(ending, kb.BERTModel)
    stored = np.load(originals(name) / "outputs.npz")
    stored = {key.partition("/")[2]: stored[key] for key in stored if key.startswith(f"{ending}/")}
    found, compared = outputs_of(model, stored), 0
    for key in found.keys() & stored.keys():
        is_token = stored["attention_mask"].astype(bool)
        is_token = is_token if stored[key].shape[:2] == is_token.shape else ...
        np.testing.assert_allclose(
            np.asarray(found[key])[is_token], stored[key][is_token], rtol=0, atol=1e-5
        )
        compared += 1
    assert compared
    kb.save_pretrained(model, tmp_path / "ours", format="huggingface")
    theirs, ours = (
        open_safetensors([path / "model.safetensors"]) for path in (folder, tmp_path / "ours")
    )
    names = {key: ".".join(key.split(".")[1:]) for key in ours.shapes}
    names = {key: key if key in theirs.shapes else inner for key, inner in names.items()}
    for key, original in names.items():
        np.testing.assert_array_equal(ours.read(key), theirs.read(original))
    assert set(theirs.shapes) == set(names.values())
    written = json.loads((tmp_path / "ours/config.json").read_text())
    if (name, ending) != ("albert", "ForPreTraining") and name not in ("camembert", "xlm-roberta"):
        assert (
            written["architectures"]
            == json.loads((folder / "config.json").read_text())["architectures"]
        )
    assert open_checkpoint(tmp_path / "ours").config == model.bert_config


@pytest.mark.parametrize("name", [name for name in RELATIVES if name != "modernbert"])
def test_a_file_of_tensorflow_has_the_weights_of_the_original(name, originals):
    (folder,) = (originals("tf_model_h5") / name).iterdir()
    found = open_checkpoint(folder)
    expected = open_checkpoint(originals(name) / folder.name)
    assert (found.config, found.task) == (expected.config, expected.task)
    assert found.arrays.shapes == expected.arrays.shapes
    for key in found.arrays.shapes:
        np.testing.assert_array_equal(found.arrays.read(key), expected.arrays.read(key))


def test_a_file_of_tensorflow_has_the_head_of_electras_discriminator(originals, tmp_path):
    """The scopes are those of `TFElectraForPreTraining` in `modeling_tf_electra.py`."""
    folder = originals("tf_model_h5") / "electra/ForMultipleChoice"
    fields = json.loads((folder / "config.json").read_text())
    fields["architectures"] = ["ElectraForPreTraining"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    head = "discriminator_predictions/tf_electra_for_pre_training/discriminator_predictions"
    values = np.random.default_rng(0).normal(size=(16, 17)).astype("float32")
    with h5py.File(folder / "tf_model.h5") as old, h5py.File(tmp_path / "tf_model.h5", "w") as new:
        scope = new.create_group("electra/tf_electra_for_pre_training")
        old.copy("electra/tf_electra_for_multiple_choice/electra", scope)
        new[f"{head}/dense/kernel:0"], new[f"{head}/dense/bias:0"] = values[:, 1:], values[0, 1:]
        new[f"{head}/dense_prediction/kernel:0"] = values[:, :1]
        new[f"{head}/dense_prediction/bias:0"] = values[0, :1]
    rtd = kb.load_pretrained(tmp_path, tokenizer=False, verbose=False).model.rtd
    np.testing.assert_array_equal(np.hstack([rtd.logits.kernel, rtd.dense.kernel]), values)


def config_of(tmp_path, name, **fields):
    """Return the configuration of a preset with changed fields of Hugging Face."""
    config = kb.BERTConfig.preset(name)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config_to_dict(config), **fields}))
    return config_from_json(file)[0]


PRESETS = "distilbert electra-small electra-base roberta-base albert-base mpnet-base".split()
PRESETS += ["xlm-roberta-base", "modernbert-base", "ettin-17m", "deberta-base", "deberta-v3-small"]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_written_and_read_back(tmp_path, name):
    assert config_of(tmp_path, name) == kb.BERTConfig.preset(name, initializer="truncated_normal")


@pytest.mark.parametrize(
    ("preset", "field", "value"),
    [
        ("roberta-base", "pad_token_id", None),
        ("roberta-base", "max_position_embeddings", 2),
        ("roberta-base", "type_vocab_size", 0),
        ("modernbert-base", "hidden_activation", "silu"),
        ("modernbert-base", "local_attention", 0),
        ("modernbert-base", "rope_scaling", {"factor": 2.0}),
        ("modernbert-base", "rope_parameters", {"full_attention": {"rope_type": "yarn"}}),
        ("modernbert-base", "rope_parameters", [1]),
        ("modernbert-base", "layer_types", ["full_attention"] * 3),
        ("modernbert-base", "layer_types", ["full_attention"] * 20 + ["sliding_attention"] * 2),
        ("modernbert-base", "layer_types", ["sliding_attention"] * 22),
        ("modernbert-base", "layer_types", 3),
        ("deberta-base", "relative_attention", False),
        ("deberta-base", "pos_att_type", "c2p"),
        ("deberta-base", "max_relative_positions", 0),
        ("deberta-base", "pooler_hidden_size", 4),
        ("deberta-v3-small", "share_att_key", False),
        ("deberta-v3-small", "position_buckets", "all"),
        ("deberta-v3-small", "attention_head_size", 4),
        ("deberta-v3-small", "conv_groups", 2),
    ],
)
def test_a_field_that_changes_outputs_and_is_not_supported_is_named(tmp_path, preset, field, value):
    with pytest.raises(ValueError, match=f"config.json.*{field}"):
        config_of(tmp_path, preset, **{field: value})


def test_rotary_positions_of_transformers_5_are_those_of_version_4(tmp_path):
    of_5 = {
        "layer_types": ["full_attention", "sliding_attention"] * 11,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
        },
    }
    of_4 = {"global_attn_every_n_layers": 2, "global_rope_theta": 5e4, "local_rope_theta": 1e3}
    config = config_of(tmp_path, "modernbert-base", **of_5)
    assert config == config_of(tmp_path, "modernbert-base", **of_4)
    assert (config.global_attention_every, config.rope_theta, config.local_rope_theta) == (
        *(2, 5e4, 1e3),
    )


def test_attention_to_all_tokens_in_every_block_is_one_configuration(tmp_path):
    config = config_of(tmp_path, "modernbert-base", layer_types=["full_attention"] * 22)
    assert config.local_attention == 0
    fields = config_to_dict(dataclasses.replace(config, global_attention_every=3))
    assert fields["global_attn_every_n_layers"] == 1


@pytest.mark.parametrize(
    ("preset", "fields", "named"),
    [
        ("electra-base", {"embedding_width": 768}, "embedding_width=768"),
        ("mpnet-base", {"relative_buckets": 16}, "relative_buckets=16"),
        ("roberta-base", {"next_sentence": True}, "next_sentence=True"),
        ("roberta-base", {"first_position_id": 3}, "first_position_id=3"),
        ("modernbert-base", {"gated_ffn": False}, "gated_ffn=False"),
    ],
)
def test_the_field_that_a_type_cannot_express_is_named(preset, fields, named):
    with pytest.raises(ValueError, match=named):
        config_to_dict(kb.BERTConfig.preset(preset, **fields))


def with_weights(path, folder, weights):
    """Write a folder with further weights, or with other ones."""
    arrays = open_safetensors([folder / "model.safetensors"])
    values = {key: arrays.read(key) for key in arrays.shapes} | weights
    write_safetensors(path / "model.safetensors", values, {})
    (path / "config.json").write_bytes((folder / "config.json").read_bytes())


@pytest.mark.parametrize("name", ["roberta", "mpnet", "albert"])
def test_buffers_and_an_unused_pooler_of_old_files_are_not_weights(name, originals, tmp_path):
    folder = originals(name) / "ForTokenClassification"
    pooler = "albert.pooler" if name == "albert" else f"{name}.pooler.dense"
    others = {f"{pooler}.weight": (16, 16), f"{pooler}.bias": (16,)}
    others[f"{name}.embeddings.position_ids"] = (1, 14)
    with_weights(tmp_path, folder, {key: np.ones(x, "float32") for key, x in others.items()})
    assert open_checkpoint(tmp_path).arrays.shapes == open_checkpoint(folder).arrays.shapes


def test_a_copy_of_the_embedding_is_skipped_and_the_bias_of_the_decoder_takes_effect(
    originals, tmp_path
):
    folder, bias = originals("roberta") / "ForMaskedLM", np.full(40, 3, "float32")
    embedding = open_checkpoint(folder).arrays.read("roberta.embeddings.word_embeddings.weight")
    copies = {"lm_head.decoder.weight": embedding.copy(), "lm_head.decoder.bias": bias}
    with_weights(tmp_path, folder, copies)
    found = open_checkpoint(tmp_path)
    assert found.config.tie_embeddings
    assert found.arrays.shapes == open_checkpoint(folder).arrays.shapes
    np.testing.assert_array_equal(found.arrays.read("lm_head.bias"), bias)


@pytest.mark.parametrize(
    ("name", "weight", "shape"),
    [
        ("modernbert", "model.layers.1.attn.Wqkv.weight", (47, 16)),
        ("modernbert", "model.layers.1.attn.Wqkv.weight", ()),
        ("modernbert", "model.layers.1.attn.Wqkv.weight[0]", (16, 16)),
        ("electra", "electra.embeddings_project.weight", (16, 9)),
        ("mpnet", "mpnet.encoder.relative_attention_bias.weight", (31, 2)),
        ("roberta", "roberta.embeddings.position_embeddings.weight", (12, 16)),
    ],
)
def test_a_weight_of_another_size_is_refused(name, weight, shape, originals, tmp_path):
    with_weights(tmp_path, originals(name) / "ForMaskedLM", {weight: np.ones(shape, "float32")})
    with pytest.raises(ValueError, match="model.safetensors.*Wqkv|model.safetensors.*weight is"):
        kb.load_pretrained(tmp_path)


def test_a_block_that_is_used_more_often_than_any_model_is_refused(originals, tmp_path):
    with_weights(tmp_path, originals("albert") / "ForMaskedLM", {})
    edit_config(tmp_path, num_hidden_layers=10**6)
    with pytest.raises(ValueError, match="num_blks=1000000"):
        kb.load_pretrained(tmp_path)


def test_the_summary_of_an_electra_discriminator_names_its_heads(originals, tmp_path):
    summary, weights = kb.inspect_checkpoint(originals("electra") / "ForPreTraining")
    assert "heads: rtd; missing and freshly initialized: mlm" in summary
    config = kb.BERTConfig.preset("electra-small", vocab_size=20, num_blks=1, replaced_tokens=True)
    model = kb.BERTModel.from_bert_config(config)
    with pytest.raises(ValueError, match="with the head 'mlm' or 'rtd'"):
        kb.save_pretrained(model, tmp_path / "both", format="huggingface")
    assert "electra.embeddings_project.weight" in {weight.name for weight in weights}


@pytest.mark.parametrize("name", ["deberta", "deberta-v2"])
def test_files_of_microsoft_have_other_names_and_arrays_that_are_not_read(
    name, originals, tmp_path, capsys
):
    folder = originals(name) / "ForMaskedLM"
    stored = open_safetensors([folder / "model.safetensors"])
    ours = {
        "cls.predictions.transform": "lm_predictions.lm_head",
        "cls.predictions": "lm_predictions.lm_head",
    }
    values = {}
    for key in stored.shapes:
        start = next((start for start in ours if key.startswith(start)), "")
        values[key.replace(start, ours[start]) if start else key] = stored.read(key)
    values["deberta.embeddings.position_embeddings.weight"] = np.ones((14, 16), "float32")
    values["mask_predictions.dense.weight"] = np.ones((16, 16), "float32")
    write_safetensors(tmp_path / "model.safetensors", values, {})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    tokens = np.arange(2, 12)[None]
    found, expected = (kb.load_pretrained(x).model for x in (tmp_path, folder))
    np.testing.assert_array_equal(*(x.mlm(x.encoder(tokens)) for x in (found, expected)))
    assert "other layers: mask_predictions" in capsys.readouterr().out


def test_a_task_without_a_class_in_transformers_is_refused(tmp_path):
    model = kb.MultipleChoice(kb.BERTModel.from_bert_config(deberta_config()))
    with pytest.raises(ValueError, match="no class 'DebertaForMultipleChoice'"):
        kb.save_pretrained(model, tmp_path / "model", format="huggingface")


def deberta_config():
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 2, "num_blks": 1, "max_len": 16}
    return kb.BERTConfig.preset("deberta-base", vocab_size=30, relative_embeddings=8, **sizes)


def test_a_missing_pooler_that_no_head_reads_is_neither_reported_nor_needed(originals, capsys):
    model = kb.load_pretrained(originals("modernbert") / "ForMaskedLM").model
    assert "missing" not in capsys.readouterr().out
    model.enable_lora(2)
    assert model.missing_heads == {"pooler"}  # a task model without `pooling` reads the mean


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modernbert", "deberta"])
def test_an_adapter_keeps_the_parts_of_a_joined_weight_apart(name, originals, tmp_path):
    folder = originals(name) / "ForTokenClassification"
    model, other = (kb.load_pretrained(folder, verbose=False).model for _ in range(2))
    model.enable_lora(2, lora_layers=["W_q", "W_v"])
    for number, layer in enumerate(model.lora_layers):
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.1 * number))
    kb.save_adapter(model, tmp_path / "adapter")
    kb.load_adapter(other, tmp_path / "adapter")
    for layer, loaded in zip(model.lora_layers, other.lora_layers, strict=True):
        np.testing.assert_array_equal(layer.lora_kernel_b, loaded.lora_kernel_b)


@pytest.mark.parametrize(("kind", "name"), [("bpe", "roberta"), ("unigram", "xlm-roberta")])
def test_the_vocabulary_decides_between_types_of_one_architecture(kind, name):
    vocab = types.SimpleNamespace(kind=kind, pad_id=1)
    fields = config_to_dict(kb.BERTConfig.preset("roberta-base"), vocab=vocab)
    assert (fields["model_type"], fields["pad_token_id"]) == (name, 1)


@pytest.mark.parametrize(
    ("name", "ending", "fields", "dropout"),
    [
        ("distilbert", "ForSequenceClassification", {"seq_classif_dropout": 0.3}, 0.3),
        ("distilbert", "ForTokenClassification", {"dropout": 0.4, "seq_classif_dropout": 0.3}, 0.4),
        ("electra", "ForMultipleChoice", {"summary_last_dropout": 0.3}, 0.3),
        ("electra", "ForTokenClassification", {"hidden_dropout_prob": 0.3}, 0.3),
        ("deberta-v2", "ForSequenceClassification", {"cls_dropout": 0.3}, 0.3),
        ("modernbert", "ForTokenClassification", {"classifier_dropout": None}, 0.0),
    ],
)
def test_the_dropout_before_a_head_is_that_of_its_class(
    name, ending, fields, dropout, originals, tmp_path
):
    with_weights(tmp_path, originals(name) / ending, {})
    edit_config(tmp_path, **fields)
    found = open_checkpoint(tmp_path)
    assert found.task["dropout"] == dropout
    task = {**found.task, "dropout": 0.25}
    (tmp_path / "config.json").write_text(json.dumps(config_to_dict(found.config, task)))
    assert open_checkpoint(tmp_path).task == task
    assert open_checkpoint(tmp_path).config == found.config


@pytest.mark.parametrize(("name", "has_segments"), [("albert", True), ("camembert", False)])
def test_the_inputs_of_a_tokenizer_have_segments_if_those_of_a_pair_differ(
    name, has_segments, tmp_path
):
    folder = Path(__file__).parents[2] / "text/tokenizer/unigram"
    file = "spiece.model" if name == "albert" else "sentencepiece.bpe.model"
    fields = sentencepiece_fields((folder / file).read_bytes(), name, {})
    vocab = kb.Vocab(*from_json(fields))
    config = kb.BERTConfig.preset("albert-base", num_segments=2)
    write_tokenizer(tmp_path, vocab, {}, config)
    found = json.loads((tmp_path / "tokenizer_config.json").read_text())
    expected = ["input_ids", "token_type_ids", "attention_mask"] if has_segments else None
    assert found.get("model_input_names") == expected


@pytest.mark.slow
@pytest.mark.parametrize("left", ["tokenizer.json", "config.json"])
def test_a_model_that_is_loaded_without_its_tokenizer_has_its_segments(left, tmp_path):
    fields = roberta_fields()
    config = kb.BERTConfig.preset("tiny", vocab_size=len(fields["model"]["vocab"]))
    kb.save_pretrained(kb.BERTModel.from_bert_config(config), tmp_path, format="huggingface")
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))  # as the multilingual MiniLM
    together = kb.load_pretrained(tmp_path)
    batch = together.tokenizer(["the"], ["cat"])
    if left == "config.json":
        (tmp_path / "tokenizer.json").unlink()
        edit_config(tmp_path, tokenizer_class="XLMRobertaTokenizerFast")
    apart, _, config = kb.load_pretrained(tmp_path, tokenizer=False, verify=False)
    np.testing.assert_array_equal(apart.encoder(**batch), together.model.encoder(**batch))
    assert config.num_segments == 1


@pytest.fixture
def sentencepiece_folder(tmp_path):
    """Return a folder with a tokenizer that only a SentencePiece model defines."""
    model = Path(__file__).parents[2] / "text/tokenizer/unigram/spiece.model"
    (tmp_path / "spiece.model").write_bytes(model.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    return tmp_path


def test_a_model_of_sentencepiece_is_enough_to_load_a_tokenizer(sentencepiece_folder):
    vocab = kb.load_tokenizer(sentencepiece_folder).vocab
    assert vocab.special_tokens[2:] == ("[CLS]", "[SEP]", "[MASK]")


def test_user_defined_pieces_are_pieces_and_not_added_tokens(sentencepiece_folder):
    with (sentencepiece_folder / "spiece.model").open("ab") as file:
        file.write(b"\x0a\x0a\x0a\x01(\x15\0\0\0\0\x18\x04")  # of the type USER_DEFINED
    tokenizer = kb.load_tokenizer(sentencepiece_folder)
    found = tokenizer.tokenize(["("]).to_list()[0]
    assert tokenizer.vocab.to_tokens(found) == ["▁", "("]


@pytest.mark.slow
def test_tokens_that_other_files_add_stay_whole(tmp_path):
    model = roberta_fields()["model"]
    number = len(model["vocab"])
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *model["merges"], ""]))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[E1]": number}))
    options = {"extra_special_tokens": {"end_token": "[/E1]"}, "mask_token": "<mask>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    tokenizer = kb.load_tokenizer(tmp_path)
    mask = tokenizer.vocab.mask_id
    ids = tokenizer.tokenize(["[E1]in[/E1]  <mask>"]).to_list()[0]
    assert ids == [number, tokenizer.vocab["in"], number + 1, mask]


def test_a_model_of_sentencepiece_needs_the_type_of_its_model(sentencepiece_folder):
    (sentencepiece_folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has a spiece\.model, but no config\.json"):
        kb.load_tokenizer(sentencepiece_folder)


@pytest.mark.parametrize("name", ["added_tokens_decoder", "additional_special_tokens"])
def test_damaged_added_tokens_of_other_tokenizers_are_named(name, sentencepiece_folder):
    (sentencepiece_folder / "tokenizer_config.json").write_text(json.dumps({name: 3}))
    with pytest.raises(ValueError, match="The added tokens in .* are not valid"):
        kb.load_tokenizer(sentencepiece_folder)


def test_a_bert_with_the_tokenizer_of_xlm_r_puts_both_texts_of_a_pair_in_segment_0(tmp_path):
    vocab = unigram()
    config = kb.BERTConfig.preset("huggingface", vocab_size=len(vocab), pad_id=vocab.pad_id)
    sizes = {"num_hiddens": 16, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 1, "max_len": 32}
    config = kb.BERTConfig.from_dict({**config.to_dict(), **sizes, "initializer_range": 0.5})
    model = kb.BERTModel.from_bert_config(config)
    kb.save_pretrained(model, tmp_path / "hub", format="huggingface")
    vocab.to_file(tmp_path / "hub" / "tokenizer.json")

    loaded = kb.load_pretrained(tmp_path / "hub").model
    batch = loaded.tokenizer("the cat", "a film", max_len=12)
    zeros = np.zeros_like(batch["segments"])
    expected = model.encoder(batch["tokens"], zeros, batch["valid_lens"])
    output = loaded.encoder(batch["tokens"], batch["segments"], batch["valid_lens"])
    assert np.max(batch["segments"]) == 1  # question answering finds the context by it
    np.testing.assert_allclose(output, expected, atol=1e-6)

    kb.save_pretrained(loaded, tmp_path / "again", format="huggingface")
    again = kb.load_pretrained(tmp_path / "again").model
    np.testing.assert_array_equal(again.encoder(**batch), output)
