import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    MODEL_FILE,
    POOLING_FILE,
)
from tests.checkpoints.sbert_folders import edit_json, write


def test_the_fields_of_the_whole_model_are_kept_and_applied(tmp_path):
    folder = write(tmp_path / "edited")
    edit_json(folder / POOLING_FILE, {"include_prompt": False, "pooling_mode": ["max", "cls"]})
    prompts = {"prompts": {"query": "cat ", "x": "on "}, "default_prompt_name": "x"}
    edit_json(
        folder / MODEL_FILE, {**prompts, "similarity_fn_name": "euclidean", "truncate_dim": 5}
    )
    found = kb.TextEmbedder.from_pretrained(folder)
    kb.save_pretrained(found, tmp_path / "saved", format="huggingface")
    again = kb.TextEmbedder.from_pretrained(tmp_path / "saved")
    assert again.task_config() == found.task_config()
    assert again.pooling == ("max", "cls")
    assert (again.similarity, again.embedding_width, again.include_prompt) == (
        "euclidean",
        5,
        False,
    )
    assert [again.prompt(name) for name in (None, "query", "document")] == ["on ", "cat ", ""]
    np.testing.assert_array_equal(kb.embed(again, "mat", prompt="on "), kb.embed(again, "mat"))
