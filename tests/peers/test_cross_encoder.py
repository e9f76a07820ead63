"""A `Reranker` gives the scores of a `CrossEncoder` of sentence-transformers, and vice versa."""

import json

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.weights import named_weights
from tests.checkpoints.sbert_folders import CONFIG, VOCAB, edit_json
from tests.checkpoints.small import random_model

NEEDED = "needs sentence-transformers: make test-peers"
library = pytest.importorskip("sentence_transformers", reason=NEEDED)

QUERY = "the cat on Café"
TEXTS = ["", "cat", "The cats on the mat", "mat " * 40, "Café café cafe", "on on", "cat"]
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
OLD, NEW = "sbert_ce_default_activation_function", "sentence_transformers"
OF_BERT = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
OF_BERT["modality_config"] = {"text": {"method": "forward", "method_output_name": "logits"}}
FOLDERS = {  # fields of config.json, of config_sentence_transformers.json and of the tokenizer
    "of transformers": ({}, None, {}),
    "before version 4": ({OLD: IDENTITY}, None, {}),
    "before version 4, sigmoid": ({OLD: SIGMOID}, None, {}),
    "since version 4": ({NEW: {"activation_fn": IDENTITY, "version": "4.1.0"}}, None, {}),
    "without activation": ({NEW: {"version": "4.1.0"}}, None, {}),
    "both": ({OLD: SIGMOID, NEW: {"activation_fn": IDENTITY}}, None, {}),
    "of version 6": ({NEW: {"activation_fn": SIGMOID}}, {"activation_fn": IDENTITY}, {}),
    "of version 6, from config.json": ({NEW: {"activation_fn": IDENTITY}}, {}, {}),
    "short": ({OLD: IDENTITY}, None, {"model_max_length": 12}),
}


def reranker(**options):
    """Return a model whose logits differ, also where its scores are close to 0 or 1."""
    config = kb.BERTConfig.from_dict(CONFIG.to_dict() | {"pooler": True, "max_len": 32})
    model = kb.Reranker(random_model(config), pooling="cls", **options)
    for name, weight in named_weights(model).items():
        weight.assign(0 * weight if name.endswith(("bias", "beta")) else 3 * weight)
    model.head.kernel.assign(np.linspace(-2, 2, 4)[:, None])
    model.tokenizer = kb.Tokenizer(VOCAB, lowercase=False, compat="huggingface")
    return model


def assert_alike(ours, theirs):
    encoder = library.CrossEncoder(str(theirs), device="cpu")
    expected = encoder.predict([(QUERY, text) for text in TEXTS])
    with pytest.warns(kb.text_arguments.TruncationWarning):
        found = kb.rerank(ours, QUERY, TEXTS)
    scores = {one.index: one.score for one in found}
    np.testing.assert_allclose([scores[n] for n in range(len(TEXTS))], expected, atol=1e-5)
    ranks = [one["corpus_id"] for one in encoder.rank(QUERY, TEXTS)]
    assert [one.index for one in found] == ranks


@pytest.mark.parametrize("name", FOLDERS)
def test_the_scores_of_folders_are_equal_and_saving_keeps_them(name, tmp_path):
    fields, of_version_6, of_tokenizer = FOLDERS[name]
    folder = tmp_path / "theirs"
    kb.save_pretrained(reranker(), folder, format="huggingface")
    (folder / "SHA256SUMS").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, NEW: {}, **fields}))
    edit_json(folder / "tokenizer_config.json", of_tokenizer)
    if of_version_6 is not None:
        encoder = {"model_type": "CrossEncoder", **of_version_6}
        edit_json(folder / "config_sentence_transformers.json", encoder)
        module = {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", **module}]))
        edit_json(folder / "sentence_bert_config.json", OF_BERT)
    assert_alike(folder, folder)
    ours = kb.Reranker.from_pretrained(folder)
    kb.save_pretrained(ours, tmp_path / "saved", format="huggingface")
    assert_alike(ours, tmp_path / "saved")


@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
def test_folders_that_the_library_writes_are_rerankers(activation, tmp_path):
    kb.save_pretrained(reranker(activation=activation), tmp_path / "ours", format="huggingface")
    theirs = library.CrossEncoder(str(tmp_path / "ours"), device="cpu", max_length=14)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    found = kb.load_pretrained(tmp_path / "theirs", verbose=False).model
    assert (type(found), found.activation, found.max_len) == (kb.Reranker, activation, 14)
    assert_alike(found, tmp_path / "theirs")


def test_a_prompt_is_refused(tmp_path):
    kb.save_pretrained(reranker(), tmp_path / "ours", format="huggingface")
    prompts = {"prompts": {"query": "on "}, "default_prompt_name": "query"}
    library.CrossEncoder(str(tmp_path / "ours"), device="cpu", **prompts).save_pretrained(
        str(tmp_path / "theirs")
    )
    with pytest.raises(ValueError, match=r"`default_prompt_name` must be null.*'on '"):
        kb.rerank(tmp_path / "theirs", QUERY, TEXTS)
