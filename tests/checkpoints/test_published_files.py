"""Configurations and tokenizers that others published load as in the programs that wrote them."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.huggingface.config import config_from_json
from tests.nightly import nightly_except
from tests.published import load, read

DAILY = {"chinese-u2028", "mpnet-base", "roberta-base-json"}
EXPECTED = sorted({*DAILY, "albert-base-v2", "modernbert-base"})
LOAD = nightly_except(
    {"bert-no-model-type"},
    "beto-added-tokens bert-no-model-type camembert-transformers5 small-bert-weights".split(),
)
REFUSED = {"japanese-mecab": "BertJapaneseTokenizer"}
REFUSED_CONFIGS = {"babylm-org/babylm-eval": "attention_bias"}
REFUSED_CONFIGS["privately-corp/albert"] = "embedding_size"
SIZES = {  # ours, and the names in the files
    "vocab_size": ("vocab_size",),
    "num_hiddens": ("hidden_size", "dim"),
    "ffn_num_hiddens": ("intermediate_size", "hidden_dim"),
    "num_heads": ("num_attention_heads", "n_heads"),
    "num_blks": ("num_hidden_layers", "n_layers"),
    "num_segments": ("type_vocab_size",),
    "width_of_embeddings": ("embedding_size",),
    "layer_norm_epsilon": ("layer_norm_eps",),
}
OFFSETS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # positions begin after the padding id


def lines_of(data_dir, name):
    """Return the lines, and what a tokenizer makes of them in its library."""
    return read(data_dir / "real/lines.json"), read(data_dir / f"real/{name}/expected.json")


def test_every_published_configuration_is_read_or_refused_by_name(data_dir, tmp_path):
    file, refused = tmp_path / "config.json", {}
    entries = read(data_dir / "real/configs.json")
    assert len(entries) == 99
    for fields, source in ((entry["config"], entry["source"]) for entry in entries):
        file.write_text(json.dumps(fields))
        try:
            config, _ = config_from_json(file)
        except ValueError as error:
            refused["/".join(source.split()[0].split("/")[1:])] = str(error)
            continue
        for ours, theirs in SIZES.items():
            found = [fields[name] for name in theirs if name in fields]
            assert not found or getattr(config, ours) == found[0], (source, ours)
        first = fields.get("pad_token_id", 1) + 1 if fields.get("model_type") in OFFSETS else 0
        assert config.max_len == fields.get("max_position_embeddings", 512) - first, source
    assert refused.keys() == REFUSED_CONFIGS.keys()
    assert all(f"`{name}`" in refused[source] for source, name in REFUSED_CONFIGS.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except(DAILY, EXPECTED))
def test_the_tokens_of_a_published_tokenizer_are_those_of_its_library(name, data_dir, tmp_path):
    tokenizer = load(data_dir, name, tmp_path)
    lines, expected = lines_of(data_dir, name)
    found = tokenizer.with_offsets(lines["lines"])
    assert found["tokens"].to_list() == expected["raw"]
    spans = np.stack([found["starts"].flat_values, found["ends"].flat_values], 1)
    assert spans.tolist() == [span for row in expected["offs"] for span in row]
    rows = tokenizer(*map(list, zip(*lines["pairs"], strict=True)))
    assert (
        tf.RaggedTensor.from_tensor(rows["tokens"], rows["valid_lens"]).to_list()
        == (expected["pair"])
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", LOAD)
def test_a_published_tokenizer_loads(name, data_dir, tmp_path):
    tokens = load(data_dir, name, tmp_path)(["a", "b"])["tokens"]
    assert tokens.shape == (2, 3)


@pytest.mark.parametrize("name", REFUSED)
def test_a_published_tokenizer_with_other_ids_is_refused_by_name(name, data_dir, tmp_path):
    with pytest.raises(ValueError, match=REFUSED[name]):
        load(data_dir, name, tmp_path)
