"""Surgery: changing the vocabulary or the maximum length does not affect other outputs."""

import dataclasses
import functools

import numpy as np
import pytest

from keras_bert_d2l.checkpoints.surgery import (
    add_tokens,
    keep_blocks,
    resize_positions,
    stack_blocks,
)
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.checkpoints import small

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = Vocab(["play", *SPECIALS, "##ing", "##s", "the", "cat", "-", "##er"])
TOKENIZER = Tokenizer(VOCAB)
MAX_LEN = 7
UNTIED = BERTConfig(len(VOCAB), 8, 16, 2, 2, 0.1, MAX_LEN)
TIED = dataclasses.replace(UNTIED, tie_embeddings=True, embedding_norm=True)
EMBEDDING = "encoder/token_embedding/embeddings"


@functools.cache
def random_model(config):
    """Return a model, which no test changes."""
    model = small.random_model(config)
    model.tokenizer = TOKENIZER
    return model


def array(model, name):
    return named_weights(model)[name].numpy()


def answers(model, texts=("the cats play [MASK]", "the player")):
    batch = model.tokenizer(list(texts))
    length = batch["tokens"].shape[1]
    positions = np.tile(np.arange(length), (len(texts), 1))
    encoded, mlm, _ = model(**batch, pred_positions=positions)
    return encoded.numpy(), mlm.numpy()


# Adding tokens


@pytest.mark.slow
@pytest.mark.parametrize("config", [UNTIED, TIED], ids=["mlp", "tied"])
def test_a_new_token_is_the_mean_of_its_old_pieces_and_changes_no_other_output(config):
    model = random_model(config)
    larger = add_tokens(model, ["playing", "##ings", "##ingers"], tokenizer=TOKENIZER)
    assert larger.tokenizer.vocab.tokens == (*VOCAB.tokens, "playing", "##ings", "##ingers")
    assert larger.tokenizer.tokenize(["playing"]).to_list() == [[len(VOCAB)]]
    assert larger.bert_config == dataclasses.replace(config, vocab_size=len(VOCAB) + 3)
    pieces = [["play", "##ing"], ["##ing", "##s"], ["##ing", "##er", "##s"]]
    for name, axis in ((EMBEDDING, 0), *_head_weights(config)):
        old = np.moveaxis(array(model, name), axis, 0)
        new = np.moveaxis(array(larger, name), axis, 0)
        np.testing.assert_array_equal(new[: len(VOCAB)], old)
        for row, tokens in zip(new[len(VOCAB) :], pieces, strict=True):
            np.testing.assert_allclose(row, old[VOCAB[tokens]].mean(0), rtol=1e-6)
    (encoded, mlm), (new_encoded, new_mlm) = answers(model), answers(larger)
    np.testing.assert_array_equal(new_encoded, encoded)
    np.testing.assert_allclose(new_mlm[..., : len(VOCAB)], mlm, rtol=0, atol=1e-5)


def _head_weights(config):
    if config.tie_embeddings:
        return [("mlm/bias", 0)]
    return [("mlm/mlp/logits/kernel", 1), ("mlm/mlp/logits/bias", 0)]


def test_a_token_of_the_vocabulary_is_not_added_again():
    with pytest.raises(ValueError, match="must be distinct. Received: 'cat'"):
        add_tokens(random_model(UNTIED), ["cat"])


@pytest.mark.slow
def test_added_special_tokens_stay_whole_in_a_text():
    larger = add_tokens(random_model(UNTIED), ["[E1]", "[/E1]"], special=True)
    assert larger.tokenizer.tokenize("the[E1]Cat[/E1]").to_list() == [[8, 12, 9, 13]]


# Adding positions


@pytest.mark.slow
def test_other_numbers_of_positions_do_not_change_the_outputs_for_texts_that_fit():
    model, name = random_model(UNTIED), "encoder/pos_embedding"
    longer = resize_positions(model, 15)
    assert longer.tokenizer is TOKENIZER
    assert longer.bert_config == dataclasses.replace(UNTIED, max_len=15)
    old, new = array(model, name), array(longer, name)  # new positions repeat the old ones
    np.testing.assert_array_equal(new, np.concatenate([old, old, old[:, :1]], axis=1))
    shorter = resize_positions(longer, MAX_LEN)
    np.testing.assert_array_equal(array(shorter, name), old)
    for before, after in zip(answers(model), answers(longer), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("max_len", [0, 2.5])
def test_an_impossible_number_of_positions_is_rejected(max_len):
    with pytest.raises(ValueError, match=f"`max_len` must be .* Received: max_len={max_len}"):
        resize_positions(random_model(UNTIED), max_len)


# Other numbers of blocks


def test_a_model_keeps_its_head_and_any_blocks():
    bert = random_model(dataclasses.replace(UNTIED, num_blks=3))
    model = SequenceClassifier(bert, ["bad", "good"], long_texts="mean", dropout=0.3)
    smaller = keep_blocks(model, [1, 3])
    assert smaller.task_config() == model.task_config()
    assert smaller.tokenizer is TOKENIZER
    old, new = named_weights(model), named_weights(smaller)
    assert len(new) == len(old) - len([name for name in old if "/blk_1/" in name])
    for name, weight in new.items():
        np.testing.assert_array_equal(weight, old[name.replace("/blk_1/", "/blk_2/")])


def test_stacked_blocks_compute_what_the_blocks_would_do_again():
    model = random_model(UNTIED)
    batch = TOKENIZER(["the cats play"])
    deeper = stack_blocks(model, 2)
    assert deeper.bert_config == dataclasses.replace(UNTIED, num_blks=2 * UNTIED.num_blks)
    X = model.encoder(**batch)
    for block in model.encoder.blks:
        X = block(X, valid_lens=batch["valid_lens"])
    np.testing.assert_allclose(deeper.encoder(**batch), X, atol=1e-6)
    assert deeper.tokenizer is TOKENIZER
    with pytest.raises(ValueError, match="`times` must be .*Received: times=0"):
        stack_blocks(model, 0)
    with pytest.raises(ValueError, match="needs a model with blocks. Received: num_blks=0"):
        stack_blocks(random_model(dataclasses.replace(UNTIED, num_blks=0)))


def test_blocks_must_exist_and_lora_be_merged():
    model = small.random_model(UNTIED)
    for blocks in ([], [0], [2, 1], [1, 1], [3], [1.0], [True], [False]):
        with pytest.raises(ValueError, match=r"`blocks` must be numbers from 1 to 2"):
            keep_blocks(model, blocks)
    model.enable_lora(2)
    with pytest.raises(ValueError, match="call `merge_lora` first"):
        keep_blocks(model, [1])
