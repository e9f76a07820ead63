"""Folders of sentence-transformers give the vectors of sentence-transformers, or an error."""

import json
import shutil

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.sbert_folders import FOLDERS, TEXT, VECTORS, edit_json, write
from tests.nightly import nightly_except

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
    np.testing.assert_allclose(found, VECTORS[name], atol=4e-6)
    format = "native" if name == "truncated" else "huggingface"
    kb.save_pretrained(model, tmp_path / "saved", format=format)
    np.testing.assert_array_equal(vector(tmp_path / "saved")[1], found)


POOLING, NORMALIZE = "1_Pooling/config.json", "2_Normalize/config.json"
BERT, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        (POOLING, {"pooling_mode": ["mean", "cls"]}, "mean and cls and Normalize"),
        (NORMALIZE, {"module_input_name": "x"}, "mean and Normalize of 'x' as 'x'"),
        (BERT, {"do_lower_case": "yes"}, "`do_lower_case` must be True or False"),
        (BERT, {"max_seq_length": 2}, "`max_seq_length` must be .* least 3"),
    ],
)
def test_an_unsupported_setting_is_an_error(file, fields, message, plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "edited")
    edit_json(folder / file, fields)
    with pytest.raises(ValueError, match=message):
        kb.TextEmbedder.from_pretrained(folder)


OTHERS = [("mean and Dense and Normalize", {"steps": ("Pooling", "Dense", "Normalize")})]
OTHERS += [("Normalize and mean", {"steps": ("Normalize", "Pooling")})]
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
    edit_json(folder / POOLING, {"include_prompt": False})
    edit_json(folder / MODEL, {"similarity_fn_name": "dot", "prompts": {"query": ""}})
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    edit_json(folder / BERT, {"modality_config": {"text": text, "message": {"method": "x"}}})
    assert kb.TextEmbedder.from_pretrained(folder).normalize
    edit_json(folder / MODEL, {"prompts": {"query": "query: "}})
    with pytest.raises(ValueError, match="mean and include_prompt=False and Normalize"):
        kb.TextEmbedder.from_pretrained(folder)
    shutil.rmtree(folder / "2_Normalize")
    modules = json.loads((folder / "modules.json").read_text())[:-1]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="include_prompt=False and similarity_fn_name='dot'"):
        kb.TextEmbedder.from_pretrained(folder)


def test_a_default_prompt_is_reported(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "prompt")
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    edit_json(folder / "config_sentence_transformers.json", prompts)
    with pytest.warns(UserWarning, match=r"puts 'query: ' before each text.*put it there yourself"):
        kb.TextEmbedder.from_pretrained(folder)


@pytest.mark.parametrize("prompts", [["query: "], "query: ", 3, {"a": "b"}, True])
def test_damaged_prompts_are_an_error_that_names_the_file(prompts, plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "prompt")
    name = {"default_prompt_name": ["a"]} if isinstance(prompts, dict) else {}
    edit_json(folder / "config_sentence_transformers.json", {"prompts": prompts, **name})
    field = "default_prompt_name" if name else "prompts"
    with pytest.raises(ValueError, match=f"config_sentence_transformers.json.*`{field}` must be"):
        kb.TextEmbedder.from_pretrained(folder)


def test_the_file_of_the_pooling_must_be_there_and_inside_the_folder(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "embedder")
    (folder / "1_Pooling").rename(tmp_path / "1_Pooling")
    with pytest.raises(ValueError, match=r"no file.*embedder/1_Pooling/config.json"):
        kb.load_pretrained(folder)
    kind = "sentence_transformers.models.Pooling"
    for path in ("../1_Pooling", str(tmp_path), None, 1):
        modules = [1] if path == 1 else [{"type": kind, "path": path}]
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(ValueError, match=r"modules.json' .*(`path`|list)"):
            kb.load_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    assert isinstance(kb.load_pretrained(folder).model, kb.BERTModel)
