import json

import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTEncoder, BERTModel

SIZES = {"vocab_size": 10, "num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "num_blks": 1}


def make_config(**fields):
    return BERTConfig(**{**SIZES, "dropout": 0.1, **fields})


def test_positional_arguments_follow_the_books_order():
    config = BERTConfig(10000, 768, 1024, 4, 2, 0.2)
    assert (config.vocab_size, config.num_hiddens, config.ffn_num_hiddens) == (10000, 768, 1024)
    assert (config.num_heads, config.num_blks, config.dropout, config.max_len) == (4, 2, 0.2, 1000)


def test_presets_have_googles_sizes():
    grid = {
        (blocks, width): BERTConfig.preset(f"L-{blocks}_H-{width}")
        for blocks in range(2, 13, 2)
        for width in (128, 256, 512, 768)
    }
    large = BERTConfig.preset("large", vocab_size=8000)
    for (blocks, width), config in {**grid, (24, 1024): large}.items():
        assert (config.num_blks, config.num_hiddens) == (blocks, width)
        assert config.ffn_num_hiddens == 4 * width == 256 * config.num_heads
        assert (config.tie_embeddings, config.activation) == (True, "gelu_tanh")
    places = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
    for name, place in {**places, "base": (12, 768)}.items():
        assert BERTConfig.preset(name) == grid[place]
    assert large.vocab_size == 8000


def test_presets_differ_exactly_where_the_reference_implementations_do():
    def differences(one, other):
        one, other = (BERTConfig.preset(name).to_dict() for name in (one, other))
        return {name: other[name] for name in one if one[name] != other[name]}

    assert differences("google", "huggingface") == {"activation": "gelu"}
    assert differences("d2l", "d2l-torch") == {"layer_norm_epsilon": 1e-5}
    assert differences("iksran", "codertimo") == {
        "zero_padding": True,
        "vocab_size": 30000,
        "embedding_dropout": 0.1,
        "ffn_dropout": 0.1,
        "block_dropout": 0.1,
        "positions": "sinusoidal",
        "norm_first": True,
        "layer_norm_epsilon": 1e-6,
        "layer_norm": "unbiased",
        "activation": "gelu_tanh",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hiddens": 9}, "num_heads=2.*num_hiddens=9"),
        ({"num_blks": 1.5}, "num_blks=1.5"),
        ({"max_len": True}, "max_len=True"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon=0"),
        ({"layer_norm_epsilon": float("inf")}, "finite.*layer_norm_epsilon=inf"),
        ({"dropout": float("nan")}, "dropout=nan"),
        ({"first_segment_id": -1}, "first_segment_id=-1"),
        ({"first_segment_id": 2}, "below num_segments=2.*first_segment_id=2"),
        ({"activation": "swish"}, "'gelu_tanh'.*activation='swish'"),
        ({"positions": "alibi"}, "'sinusoidal'.*positions='alibi'"),
        ({"pooler": 1}, "pooler=1"),
        ({"final_norm": True}, "norm_first=False.*final_norm=True"),
        ({"positions": "sinusoidal", "num_hiddens": 9, "num_heads": 3}, "even.*num_hiddens=9"),
        ({"positions": "sinusoidal", "max_len": 10**9}, "`max_len` must be at most.*=1000000000"),
        ({"layer_norm": "unbiased", "num_hiddens": 1, "num_heads": 1}, "at least 2"),
        ({"zero_padding": True, "tie_embeddings": True}, "must be False.*zero_padding=True"),
        ({"initializer_range": -0.1}, "initializer_range=-0.1"),
        ({"pad_id": 10}, "below vocab_size=10.*pad_id=10"),
        ({"pad_id": 1, "zero_padding": True}, "False unless pad_id is 0.*zero_padding=True"),
        ({"positions": "rotary", "num_heads": 8}, "even multiple of `num_heads`.*num_hiddens=8"),
        (
            {"embedding_width": 4, "mlm_head": "linear", "tie_embeddings": True},
            "mlm_head='linear'.*embedding_width=4",
        ),
        (
            {"shared_blocks": True, "norm_first": True, "skip_first_norm": True},
            "skip_first_norm=True.*shared_blocks=True",
        ),
        ({"positions": "none", "first_position_id": 2}, "positions='learned'.*position_id=2"),
        ({"relative_buckets": 5}, "even number from 4 to 256.*relative_buckets=5"),
        ({"local_attention": 1}, "0, or at least 2.*local_attention=1"),
        ({"local_attention": 8}, "at least 2 with global_attention_every.*local_attention=8"),
        ({"skip_first_norm": True}, "norm_first=False.*skip_first_norm=True"),
        ({"bias_free": True, "layer_norm": "unbiased"}, "layer_norm='unbiased'.*bias_free=True"),
        ({"num_segments": 0, "first_segment_id": 1}, "below num_segments=0.*segment_id=1"),
    ],
)
def test_the_error_for_a_field_out_of_range_names_the_field(fields, message):
    with pytest.raises(ValueError, match=message):
        make_config(**fields)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BERTConfig.preset("huge"), "'mini'.*Received: name='huge'"),
        (lambda: BERTConfig(vocab_size=100), r"'num_hiddens', .*'dropout'.*BERTConfig.preset"),
        *((lambda x=x: BERTConfig.from_dict(x), "`fields` must be") for x in (None, [], 5, "tiny")),
        (lambda: BERTModel.from_bert_config("tiny"), "`config` must be a `BERTConfig`"),
        (lambda: BERTConfig.preset("roberta-base", pad_id=10**6), "below vocab_size.*pad_id=10"),
    ],
)
def test_the_error_for_a_configuration_that_is_none_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_numpy_numbers_become_plain_numbers():
    config = make_config(max_len=np.int64(6), dropout=np.float32(0.5), pooler=np.bool_(False))
    assert config == make_config(max_len=6, dropout=0.5, pooler=False)
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


def test_the_fields_of_relatives_are_written_only_where_they_differ_from_bert():
    fields = {"pad_id": 1, "gated_ffn": True, "embedding_width": 4, "rope_theta": 8.0}
    plain, relative = make_config(), make_config(**fields)
    assert relative.to_dict() == {**plain.to_dict(), **fields}
    assert BERTConfig.from_dict(relative.to_dict()) == relative
    assert relative.block_fields() == {**plain.block_fields(), "gated_ffn": True}


def test_json_keeps_every_field(tmp_path):
    config = make_config(activation="gelu", embedding_norm=True, attention_dropout=0.0)
    config.to_json(tmp_path / "config.json")
    assert BERTConfig.from_json(tmp_path / "config.json") == config
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({**SIZES, "dropout": 0.1, "num_layers": 2}), "config.json.*'num_layers'"),
        (json.dumps(SIZES), "config.json.*needs 'dropout'"),
        ("{", "config.json.*not a JSON file"),
        ("[1]", "config.json.*must contain a JSON object"),
    ],
)
def test_the_error_for_an_invalid_file_names_the_file(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        BERTConfig.from_json(path)


def test_the_dropout_of_a_preset_applies_to_its_other_rates_that_are_not_named():
    for name, options, expected in (
        ("tiny", {"dropout": 0.0}, (0.0, 0.0, 0.0, 0.0)),
        ("tiny", {"dropout": 0.2, "embedding_dropout": 0.3}, (0.2, 0.3, 0.0, 0.0)),
        ("codertimo", {"dropout": 0.2}, (0.2, 0.2, 0.2, 0.2)),
        ("d2l", {"dropout": 0.3}, (0.3, 0.0, 0.0, 0.0)),  # the book drops no embeddings
    ):
        config = BERTConfig.preset(name, **options)
        rates = (config.dropout, config.embedding_dropout, config.ffn_dropout, config.block_dropout)
        assert rates == expected


def test_the_padding_token_of_a_preset_is_in_a_smaller_vocabulary():
    assert BERTConfig.preset("modernbert-base", vocab_size=600).pad_id == 0
    assert BERTConfig.preset("roberta-base", vocab_size=600).pad_id == 1


@pytest.mark.parametrize("kind", [BERTModel, BERTEncoder])
def test_a_configuration_stands_for_all_sizes(kind):
    config = make_config(embedding_norm=True)
    layer = kind(config, name="mine", max_len=16)
    found = layer.config if kind is BERTEncoder else layer.bert_config
    assert (found.to_dict(), layer.name) == ({**config.to_dict(), "max_len": 16}, "mine")
    for wrong in ("tiny", config.to_dict(), 100):
        with pytest.raises(ValueError, match=r"`config` must be a `BERTConfig`.*load_pretrained"):
            kind(wrong)
    with pytest.raises(ValueError, match="must be"):
        kind(100, 16)
