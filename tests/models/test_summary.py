import re

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)

SMALL = {
    "vocab_size": 60,
    "num_hiddens": 32,
    "ffn_num_hiddens": 48,
    "num_heads": 2,
    "num_blks": 2,
    "max_len": 16,
}
PRESETS = ("d2l", "d2l-torch", "iksran", "google", "codertimo", "huggingface", "tiny")
ROW = re.compile(r"│ ( *└ )?(\S+) \((\w+)\) +│ (.*?) +│ +([\d,]+) │")


def make_bert(preset="google", **options):
    return BERTModel.from_bert_config(BERTConfig.preset(preset, **{**SMALL, **options}))


@pytest.fixture(scope="module")
def bert():
    return make_bert()


def rows_of(model, **options):
    """Return the level, name, class, shape and weights of each row of the summary."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "140")  # otherwise the table is cut off
        model.summary(120, positions=[0.5, 0.8, 1.0], print_fn=lines.append, **options)
    found = ROW.findall("\n".join(lines))
    return [
        (len(indent) // 3, name, kind, shape, int(count.replace(",", "")))
        for indent, name, kind, shape, count in found
    ]


def check_sums(rows, total):
    """Check that top rows add up to the total, and nested rows to the row above them."""
    assert sum(count for level, *_, count in rows if level == 0) == total
    for number, (level, name, *_, count) in enumerate(rows):
        nested = []
        for other, *_, inner in rows[number + 1 :]:
            if other <= level:
                break
            if other == level + 1:
                nested.append(inner)
        assert not nested or sum(nested) == count, name


@pytest.mark.parametrize("preset", PRESETS)
def test_the_rows_of_every_architecture_add_up(preset):
    model = make_bert(preset)
    total = sum(int(np.prod(weight.shape)) for weight in model.weights)
    check_sums(rows_of(model), total)
    rows = rows_of(model, expand_nested=True)
    check_sums(rows, total)
    names = [name for _, name, *_ in rows]
    assert names.count("W_q") == names.count("addnorm2") == 2
    has_positions = model.bert_config.positions == "learned"
    assert ("pos_embedding" in names) == has_positions


@pytest.mark.parametrize(
    "options",
    [
        {"mlm_head": "linear"},
        {"tie_embeddings": False},
        {"pooler": False, "next_sentence": False},
        {"num_blks": 0, "positions": "none"},
    ],
)
def test_the_rows_of_other_options_add_up(options):
    model = make_bert(**options)
    check_sums(rows_of(model, expand_nested=True), model.count_params())


@pytest.mark.parametrize(
    "make",
    [
        lambda bert: SequenceClassifier(bert, ["bad", "good"]),
        SequenceRegressor,
        lambda bert: TokenClassifier(bert, ["O", "B-PER"]),
        QuestionAnswerer,
        MultipleChoice,
        TextEmbedder,
    ],
)
def test_the_rows_of_every_task_model_add_up(bert, make):
    model = make(bert)
    check_sums(rows_of(model), model.count_params())
    rows = rows_of(model, expand_nested=True)
    check_sums(rows, model.count_params())
    assert ("blk_1", "TransformerEncoderBlock") in [(name, kind) for _, name, kind, *_ in rows]
    # Saved optimizers list their variables in this order.
    in_head = ["/head/" in f"/{weight.path}" for weight in model.weights]
    assert in_head == sorted(in_head)


def test_rows_show_blocks_sublayers_and_shapes(bert):
    rows = rows_of(bert, expand_nested=True)
    counts = [count for _, name, *_, count in rows if name == "token_embedding"]
    assert counts == [60 * 32, 0]  # a tied embedding counts once
    found = {}
    for level, name, kind, shape, count in rows:
        found.setdefault((level, name, kind), (shape, count))
    assert found[0, "encoder", "BERTEncoder"][0] == "(None, None, 32)"
    assert found[1, "pos_embedding", "Weight"] == ("(1, 16, 32)", 16 * 32)
    assert found[1, "token_embedding", "ReversibleEmbedding"][1] == 60 * 32
    assert found[1, "blk_0", "TransformerEncoderBlock"][0] == "(None, None, 32)"
    assert found[3, "W_o", "Dense"] == ("(None, None, 32)", 33 * 32)
    assert found[3, "dense1", "Dense"] == ("(None, None, 48)", 33 * 48)
    assert found[1, "bias", "Weight"] == ("(60)", 60)  # of the masked-language-model head
    assert not any(kind == "Dropout" for _, _, kind, *_ in rows)


@pytest.mark.slow
def test_the_rows_of_a_compiled_model_with_lora_add_up():
    model = make_bert()
    model.enable_lora(2)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    check_sums(rows_of(model, expand_nested=True), model.count_params())


def test_the_summary_does_not_change_the_model(bert, tmp_path):
    model = bert
    before = [weight.path for weight in model.weights], model.layers
    model.summary(print_fn=lambda line: None, expand_nested=True)
    assert ([weight.path for weight in model.weights], model.layers) == before
    model.save_weights(tmp_path / "bert.weights.h5")
    twin = make_bert()
    twin.load_weights(tmp_path / "bert.weights.h5")
    for ours, theirs in zip(model.weights, twin.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (ours, theirs)))
