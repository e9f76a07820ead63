"""Tests of folders of `export_onnx` on the development server: they answer like SavedModels."""

import numpy as np
import pytest

from keras_bert_d2l.inference.heads import fill_mask
from keras_bert_d2l.serving.onnx_model import export_onnx
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.serving.server.served import Limits, ask
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from tests.family import PRESETS, bert_of
from tests.nightly import nightly_except
from tests.serving.conftest import NAMES, PAIRS, TOP_K

pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")
pytestmark = pytest.mark.slow

TEXTS = ["red blue", "", "Greenish [MASK] é 日本 \x00x [MASK]", "red " * 40, "[SEP] blue"]
TEXTS_B = ["green", "blue", "", "blue " * 30, "[MASK] blue"]
IDS = {"tokens": [[2, 5, 3], [2, 3, 0]], "segments": [[0, 0, 0], [0, 1, 0]], "valid_lens": [3, 2]}


@pytest.fixture
def load_onnx(task_models, model, tokenizer, tmp_path):
    """A function that exports a model as ONNX and loads it as the server does."""

    def load_onnx(name, **options):
        export_onnx(task_models.get(name, model), tmp_path / "mine", tokenizer, **options)
        return local_server.load(tmp_path / "mine")

    return load_onnx


@pytest.mark.parametrize(
    "name", nightly_except({"demo", "classifier", "tagger", "embedder"}, NAMES)
)
def test_a_folder_answers_like_the_saved_model(name, load, load_onnx, monkeypatch):
    monkeypatch.setattr("keras_bert_d2l.serving.onnx_model.DEFAULT_TOP_K", TOP_K)
    monkeypatch.setattr("keras_bert_d2l.serving.server.served_onnx._TOP_K", TOP_K)
    right, given = load(name), load_onnx(name, pairs=name == PAIRS)
    assert right.interfaces.keys() - {"embed_sparse"} == given.interfaces.keys()
    for signature, interface in given.interfaces.items():
        specs = right.interfaces[signature].inputs
        for number in (len(TEXTS), 0):
            texts = IDS | {"text": TEXTS[:number], "text_b": TEXTS_B[:number]}
            texts |= {"question": TEXTS_B[:number], "context": TEXTS[:number]}
            texts |= {"query": TEXTS_B[1], "texts": TEXTS[:number] * 9}
            texts["words"] = [*map(list, zip(TEXTS, TEXTS_B, strict=True))][:number]
            inputs = {key: texts[key] for key in interface.inputs}
            columns = {key: inputs.get(key, [[], []]) for key in specs}
            expected = ask(right, signature, columns, Limits())
            found = ask(given, signature, inputs, Limits())
            for key, spec in interface.outputs.items():
                assert spec == right.interfaces[signature].outputs[key]
                assert found[key].dtype == expected[key].dtype
                if spec.dtype == np.float32:
                    np.testing.assert_allclose(found[key], expected[key], rtol=0, atol=1e-5)
                else:
                    np.testing.assert_array_equal(found[key], expected[key])
        omitted = right.interfaces[signature].outputs.keys() - interface.outputs.keys()
        assert omitted <= ({"encoded", "mlm_logits"} if signature == "tokens" else set())


@pytest.mark.parametrize("side", ["right", "left"])
def test_pairs_of_all_lengths_are_truncated_like_those_of_the_tokenizer(
    model, tokenizer, side, tmp_path
):
    tokenizer = Tokenizer(tokenizer.vocab, truncation_side=side)
    export_onnx(model, tmp_path / "mine", tokenizer)
    model = local_server.load(tmp_path / "mine")
    lengths = [(a, b) for a in range(0, 28, 3) for b in range(26)]
    firsts, seconds = (
        [word * pair[i] + "green" for pair in lengths] for i, word in enumerate(("red ", "a "))
    )
    expected = tokenizer(firsts, seconds, max_len=model.max_len)
    batch, truncated = model._rows.of_texts(
        *(np.array([x.encode() for x in texts]) for texts in (firsts, seconds))
    )
    for name, rows in expected.items():
        np.testing.assert_array_equal(batch[name], rows)
    assert truncated.tolist() == [a + b + 5 > model.max_len for a, b in lengths]


def test_the_texts_of_pairs_must_have_the_same_number(load_onnx):
    with pytest.raises(ValueError, match="the same number of texts"):
        ask(load_onnx("demo"), "nsp", {"text": TEXTS, "text_b": TEXTS[:1]}, Limits())


@pytest.mark.filterwarnings("ignore:Truncated to 48 tokens")
@pytest.mark.parametrize("kind", nightly_except({"roberta", "albert"}, PRESETS))
def test_relatives_answer_pairs_and_fill_masks_like_in_python(kind, tmp_path):
    bert = bert_of(kind)
    model = SequenceClassifier(bert, ["bad", "good"])
    texts, texts_b = ["the cat", "", "a mat " * 40], ["sat <mask>", "good", "a film " * 39]
    export_onnx(model, tmp_path / "pairs", pairs=True)
    served = local_server.load(tmp_path / "pairs")
    found = ask(served, "serving_default", {"text": texts, "text_b": texts_b}, Limits())
    expected = classify(model, texts, texts_b)
    assert found["label"].tolist() == [one.label.encode() for one in expected]
    np.testing.assert_allclose(found["score"], [one.score for one in expected], atol=1e-5)
    export_onnx(bert, tmp_path / "bert")
    mask = bert.tokenizer.vocab.special_tokens[-1]
    text = f"the {mask} sat on a {mask}"
    found = ask(local_server.load(tmp_path / "bert"), "fill_mask", {"text": [text]}, Limits())
    expected = fill_mask(bert, text)
    tokens, ids = ([[getattr(x, k) for x in row] for row in expected] for k in ("token", "id"))
    assert found["ids"][0].tolist() == ids
    assert [[x.decode() for x in row] for row in found["tokens"][0]] == tokens
    scores = [[x.score for x in row] for row in expected]
    np.testing.assert_allclose(found["scores"][0], scores, atol=1e-5)


@pytest.mark.parametrize("kind", nightly_except({"roberta", "albert"}, PRESETS))
def test_relatives_read_long_texts_like_in_python(kind, tmp_path):
    bert = bert_of(kind)
    texts = ["the cat  sat on a\u3000mat. " * 30, "", "caf\u0065\u0301 a\u0300 film\n\u4e2d mat "]
    tagger = TokenClassifier(bert, ["x", "y"])
    export_onnx(tagger, tmp_path / "tagger")
    served = local_server.load(tmp_path / "tagger")
    found = ask(served, "serving_default", {"text": texts}, Limits())
    for row, tags in enumerate(tag(tagger, texts)):
        for n, one in enumerate(tags):
            assert found["words"][row, n].decode() == one.word
            assert found["labels"][row, n].decode() == one.label
            assert (found["starts"][row, n], found["ends"][row, n]) == (one.start, one.end)
        scores = [x.score for x in tags]
        np.testing.assert_allclose(found["scores"][row, : len(tags)], scores, atol=1e-5)
    words = [["", "cat", "<mask>", "caf\u0065\u0301 a", "\u4e2d", "\u200b"], ["film"] * 90]
    found = ask(served, "words", {"words": [words[0] + [""] * 84, words[1]]}, Limits())
    for row, tags in enumerate(tag(tagger, words)):
        labels, scores = zip(*((one.label.encode(), one.score) for one in tags), strict=True)
        assert found["labels"][row, : len(tags)].tolist() == [*labels]
        np.testing.assert_allclose(found["scores"][row, : len(tags)], scores, atol=1e-5)
    answerer = QuestionAnswerer(bert)
    texts[1] = "a"
    asked = {"question": ["who sat", "cat " * 9, "a"], "context": texts}
    for threshold in (None, -100.0, 100.0):  # always an answer, none and an answer
        folder = tmp_path / f"answerer {threshold}"
        export_onnx(answerer, folder, null_threshold=threshold)
        found = ask(local_server.load(folder), "serving_default", asked, Limits())
        expected = answer(answerer, asked["question"], texts, top_k=5, null_threshold=threshold)
        for row, best in enumerate(expected):
            of_row = {k: found[k][row][: len(best)] for k in ("answers", "starts", "scores")}
            np.testing.assert_allclose(of_row["scores"], [x.score for x in best], atol=1e-5)
            if kind.startswith("deberta") and not row:
                continue  # by distances alone, equal parts of the text have equal scores
            assert [x.decode() for x in of_row["answers"]] == [x.text for x in best]
            assert of_row["starts"].tolist() == [x.start for x in best]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [[2, -1, 3], [2, 3, 0]]}, "`tokens` must be from 0 to 8. Received: -1"),
        ({"tokens": [[2, 9, 3], [2, 3, 0]]}, "`tokens` must be from 0 to 8. Received: 9"),
        ({"segments": [[0, 0, 0], [0, 2, 0]]}, "`segments` must be from 0 to 1"),
        ({"valid_lens": [3, 4]}, "`valid_lens` must be from 1 to 3"),
        ({"valid_lens": [3]}, "must have the same rows"),
        ({"tokens": [[2] * 25], "segments": [[0] * 25], "valid_lens": [25]}, "from 1 to 24"),
    ],
)
def test_wrong_ids_are_rejected(load_onnx, change, message):
    with pytest.raises(ValueError, match=message):
        ask(load_onnx("embedder"), "tokens", IDS | change, Limits())


def test_other_tasks_and_changed_folders_are_refused(load_onnx, make_model, tmp_path):
    export_onnx(make_model(), tmp_path / "ids")
    with pytest.raises(ValueError, match="has a tokenizer and an answer. Received: .*ids'"):
        local_server.load(tmp_path / "ids")
    load_onnx("regressor")
    with (tmp_path / "mine" / "tokenizer.json").open("a") as file:
        file.write(" ")
    with pytest.raises(ValueError, match="has changed since it was written"):
        local_server.load(tmp_path / "mine")
    local_server.load(tmp_path / "mine", verify=False)
    for name, old, new, problem in (
        ("model_card.json", '"size": 9', '"size": 8', "must have the vocabulary of the model"),
        ("model_card.json", '"config"', '"other"', "folder of `export --format onnx`: it lacks"),
    ):
        file = tmp_path / "mine" / name
        file.write_text(file.read_text().replace(old, new))
        with pytest.raises(ValueError, match=f"{problem}.* --format onnx"):
            local_server.load(tmp_path / "mine", verify=False)


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", None), ("tokenizer.json", b"{}"), ("model.onnx", b"{}")],
)
def test_damaged_files_are_named(load_onnx, tmp_path, name, content):
    load_onnx("regressor")
    file = tmp_path / "mine" / name
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}' is damaged. Export the model again"):
        local_server.load(tmp_path / "mine", verify=False)


SERVE = """
import json, sys, urllib.request
from keras_bert_d2l.serving.server.local_server import LocalServer, load, running

with running(LocalServer(load(sys.argv[1]))) as url:
    body = json.dumps({"model": "mine", "input": "red"}).encode()
    answer = json.load(urllib.request.urlopen(f"{url}/v1/embeddings", body))
    assert answer["usage"]["prompt_tokens"] == 3
    body = json.dumps({"inputs": ["red"]}).encode()
    urllib.request.urlopen(f"{url}/v1/models/mine:predict", body)
    body = json.dumps({"signature_name": "fill_mask", "inputs": ["[MASK]"]}).encode()
    urllib.request.urlopen(f"{url}/v1/models/mine:predict", body)
    urllib.request.urlopen(f"{url}/v1/models/mine/metadata")
assert not {"tensorflow", "keras"} & sys.modules.keys()
"""


def test_neither_tensorflow_nor_keras_is_imported(load_onnx, tmp_path, fresh_process):
    load_onnx("demo")
    fresh_process(SERVE, str(tmp_path / "mine"))
