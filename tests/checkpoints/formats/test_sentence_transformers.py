"""Folders of sentence-transformers give the vectors of sentence-transformers, or an error."""

import json
import shutil

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.sbert_folders import FOLDERS, TEXT, VECTORS, edit_json, write
from tests.nightly import nightly_except

DENSE = ("Pooling", "Dense", "Normalize")
DAILY = {"cased", "without accents", "truncated by the tokenizer", "of version 6"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plain") / "plain")


def vector(path):
    model = kb.TextEmbedder.from_pretrained(path, verbose=False)
    return model, kb.embed(model, TEXT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Truncated to")
@pytest.mark.parametrize("name", nightly_except(DAILY, FOLDERS))
def test_the_vectors_are_those_of_the_library_also_after_saving(name, tmp_path):
    model, found = vector(write(tmp_path / "theirs", **FOLDERS[name]))
    np.testing.assert_allclose(found, VECTORS[name], atol=1e-5)
    format = "native" if name == "truncated" else "huggingface"
    kb.save_pretrained(model, tmp_path / "saved", format=format)
    np.testing.assert_array_equal(vector(tmp_path / "saved")[1], found)


POOLING, NORMALIZE = "1_Pooling/config.json", "2_Normalize/config.json"
BERT, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        (POOLING, {"pooling_mode": ["mean", "median"]}, "with pooling_mode='median', which"),
        (POOLING, {"include_prompt": 1}, "`include_prompt` must be True or False"),
        (NORMALIZE, {"module_input_name": "x"}, "with Normalize of 'x' as 'x', which"),
        (MODEL, {"similarity_fn_name": "maxsim"}, "with similarity_fn_name='maxsim', which"),
        (MODEL, {"truncate_dim": 0}, "`truncate_dim` must be .* least 1"),
        (MODEL, {"default_prompt_name": "x"}, "`default_prompt_name` must be null or one of"),
        (MODEL, {"prompts": ["query: "]}, "`prompts` must be an object of texts"),
        (BERT, {"do_lower_case": "yes"}, "`do_lower_case` must be True or False"),
        (BERT, {"max_seq_length": 2}, "`max_seq_length` must be .* least 3"),
    ],
)
def test_an_unsupported_setting_is_an_error(file, fields, message, plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "edited")
    edit_json(folder / file, fields)
    with pytest.raises(ValueError, match=message):
        kb.TextEmbedder.from_pretrained(folder)


RELU = {"settings": {"Dense": {"out_features": 3, "activation_function": "torch.nn.Softmax"}}}
OTHERS = [("Dense with activation_function='torch.nn.Softmax'", {"steps": DENSE, **RELU})]
OTHERS += [("Normalize and Pooling", {"steps": ("Normalize", "Pooling")})]
OTHERS += [("my_code.Pooling", {"classes": {"Pooling": "my_code.Pooling"}})]


@pytest.mark.parametrize(("message", "options"), OTHERS)
def test_another_computation_is_an_error_that_describes_it(message, options, tmp_path):
    folder = write(tmp_path, **options)
    with pytest.raises(ValueError, match=f"embeds texts with .*{message}.*, which a TextEmbedder"):
        kb.TextEmbedder.from_pretrained(folder)
    assert kb.TextEmbedder.from_pretrained(folder, pooling="cls").pooling == "cls"
    with pytest.raises(ValueError, match=f"'kerashub' cannot store.*{message}.*BERT alone"):
        kb.convert_checkpoint(folder, tmp_path / "preset", format="kerashub")


def test_fields_that_change_no_result_here_are_no_obstacle(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "edited")
    edit_json(folder / MODEL, {"similarity_fn_name": None, "prompts": {"query": None}})
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    edit_json(folder / BERT, {"modality_config": {"text": text, "message": {"method": "x"}}})
    found = kb.TextEmbedder.from_pretrained(folder)
    assert found.normalize
    assert found.similarity == "cosine"
    assert found.prompts == {"query": ""}


def test_the_file_of_the_pooling_must_be_there_and_inside_the_folder(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "embedder")
    (folder / "1_Pooling").rename(tmp_path / "1_Pooling")
    with pytest.raises(FileNotFoundError, match=r"no file.*embedder/1_Pooling/config.json"):
        kb.load_pretrained(folder)
    kind = "sentence_transformers.models.Pooling"
    for path in ("../1_Pooling", str(tmp_path), None, 1):
        modules = [1] if path == 1 else [{"type": kind, "path": path}]
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(ValueError, match="modules.json': `modules` must be a list .*`path`"):
            kb.load_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    assert isinstance(kb.load_pretrained(folder).model, kb.BERTModel)
