"""BERTs whose tokenizer tells the texts of a pair apart by separators alone."""

import pathlib

import numpy as np

import keras_bert_d2l as kb
from tests.family import unigram


def test_a_bert_with_the_tokenizer_of_xlm_r_puts_both_texts_of_a_pair_in_segment_0(
    tmp_path: pathlib.Path,
) -> None:
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
