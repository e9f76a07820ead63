"""Folders of sentence-transformers give the vectors of sentence-transformers, or an error."""

import shutil

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.sbert_folders import FOLDERS, LOWER, TEXT, edit_json, write


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plain") / "plain")


def vector(path):
    model = kb.load_task(kb.TextEmbedder, path, verbose=False).model
    return model, kb.embed(model, TEXT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Truncated to")
@pytest.mark.parametrize("name", FOLDERS)
def test_the_vectors_are_those_of_the_library_also_after_saving(name, tmp_path):
    options, expected = FOLDERS[name]
    model, found = vector(write(tmp_path / "theirs", **options))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    format = "native" if name == "truncated" else "huggingface"
    kb.save_pretrained(model, tmp_path / "saved", format=format)
    np.testing.assert_array_equal(vector(tmp_path / "saved")[1], found)


@pytest.mark.parametrize("inside", ["", "0_Transformer"])
def test_the_tokenizer_alone_lowercases_too(inside, tmp_path):
    tokenizer = kb.load_tokenizer(write(tmp_path, bert=LOWER, inside=inside))
    words = tokenizer.vocab.to_tokens(tokenizer.tokenize(["The CAFÉ"])[0].numpy())
    assert words == ["the", "café"]


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "mean and cls and Normalize"),
        ("2_Normalize/config.json", {"module_input_name": "x"}, "mean and Normalize of 'x'"),
        ("sentence_bert_config.json", {"tokenizer_args": {"a": 1}}, "Transformer with tokenizer_a"),
        ("sentence_bert_config.json", {"query_length": 32}, "query_length=32 and mean"),
        (
            "sentence_bert_config.json",
            {"do_lower_case": "yes"},
            "`do_lower_case` must be True",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "`max_seq_length` must be .* least 3"),
    ],
)
def test_an_unsupported_setting_is_an_error(file, fields, message, plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "edited")
    edit_json(folder / file, fields)
    with pytest.raises(ValueError, match=message):
        kb.load_task(kb.TextEmbedder, folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": ("Pooling", "Dense", "Normalize")}, "mean and Dense and Normalize"),
        ({"steps": ("Normalize", "Pooling")}, "Normalize and mean"),
        ({"classes": {"Pooling": "my_code.Pooling"}}, "my_code.Pooling"),
    ],
)
def test_another_computation_is_an_error_that_describes_it(options, message, tmp_path):
    folder = write(tmp_path, **options)
    with pytest.raises(ValueError, match=f"embeds texts with .*{message}.*, which a TextEmbedder"):
        kb.load_task(kb.TextEmbedder, folder)
    assert kb.load_task(kb.TextEmbedder, folder, pooling="cls").model.pooling == "cls"


def test_a_default_prompt_is_reported(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "prompt")
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    edit_json(folder / "config_sentence_transformers.json", prompts)
    with pytest.warns(UserWarning, match=r"puts 'query: ' before each text.*put it there yourself"):
        kb.load_task(kb.TextEmbedder, folder)


def test_the_length_of_a_text_embedder_must_fit_its_bert():
    bert = kb.BERTModel(9, 4, 8, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    assert kb.TextEmbedder(bert, max_len=16).max_row_len == 16
    for max_len in (2, 17):
        with pytest.raises(ValueError, match="`max_len` must be"):
            kb.TextEmbedder(bert, max_len=max_len)
