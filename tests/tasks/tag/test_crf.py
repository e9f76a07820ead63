import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.onnx_model import export_onnx
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.serving.server.served import Limits, ask
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag
from keras_bert_d2l.training.finetuning.finetune import finetune_files
from keras_bert_d2l.training.optimization.optimizers import BERTAdamW
from tests.nightly import nightly_except

LABELS = ["O", "B-PET", "I-PET"]
WORDS = "the cat dogs sat badly on mat".split()
TEXTS = [WORDS, ["cat"], [], ["cat", "dogs", "mat"] * 15]  # the last has several windows


def make_tagger(bert, labels=LABELS, **options):
    """Return a tagger whose sequences depend on its CRF."""
    model = TokenClassifier(bert, labels, crf=True, **options)
    rng = np.random.default_rng(0)
    for weight in model.head.weights + model.crf.weights:
        weight.assign(rng.normal(size=weight.shape))
    model.run_eagerly = True
    return model


@pytest.fixture
def tagger(words_bert):
    return make_tagger(words_bert)


def tags_of(model, texts=TEXTS):
    found = tag(model, texts)
    labels = [[one.label for one in row] for row in found]
    return labels, np.array([one.score for row in found for one in row])


def assert_equal_tags(found, expected):
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], atol=2e-6)


def test_all_windows_of_a_text_are_decoded_together(tagger):
    rows = tagger.preprocessor.rows(tf.ragged.constant([TEXTS[3]]))
    firsts = rows["split"].firsts
    places = tf.stack(rows["windows"].places(firsts.value_rowids(), firsts.values), axis=1)
    logits = np.asarray(tagger({name: rows[name] for name in ("tokens", "segments", "valid_lens")}))
    assert len(logits) > 2
    of_words = tf.gather_nd(logits, places)[None]
    expected = np.asarray(tagger.crf.viterbi(of_words))[0]
    marginals = np.asarray(tagger.crf.marginals(of_words))[0]
    labels, scores = tags_of(tagger, TEXTS[3:])
    assert labels == [[LABELS[number] for number in expected]]
    np.testing.assert_allclose(scores, marginals[range(len(expected)), expected], atol=2e-6)


def test_a_new_crf_has_the_loss_of_independent_tags(words_bert, words_tokenizer):
    labels = [["O"] * len(text) for text in TEXTS]
    losses = []
    for crf in (False, True):
        model = TokenClassifier(words_bert, LABELS, dropout=0.0, crf=crf)
        model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
        model.compile("adam")
        x, y = model.preprocessor(TEXTS, labels)
        losses.append(float(model.loss(y, model(x), np.arange(len(y)))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.long
def test_micro_batches_and_xla_do_not_change_a_step(words_bert):
    bert = BERTModel.from_config({**words_bert.get_config(), "dropout": 0.0})
    bert.tokenizer = words_bert.tokenizer
    y, weights = [["O"] * len(text) for text in TEXTS], np.array([1.0, 2.0, 1.0, 0.5])
    found = []
    for options in ({}, {"micro_batches": 3}, {"jit_compile": True}):
        model = make_tagger(bert)
        model.freeze_encoder()
        model.run_eagerly = False
        model.compile(keras.optimizers.SGD(0.1), **options)
        model.fit(TEXTS, y, batch_size=4, sample_weight=weights, verbose=0)
        found.append([np.asarray(weight) for weight in model.crf.weights])
    for other in found[1:]:
        for weight, expected in zip(other, found[0], strict=True):
            np.testing.assert_allclose(weight, expected, atol=2e-6)


def test_what_a_crf_does_not_have_is_refused(tagger, words_bert):
    with pytest.raises(ValueError, match="aggregate"):
        tag(tagger, "the cat", aggregate="average")
    with pytest.raises(ValueError, match="`loss`"):
        tagger.compile("adam", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="`metrics`"):
        tagger.compile("adam", metrics=["accuracy"])
    with pytest.raises(ValueError, match="class_weights"):
        tagger.compile("adam", class_weights={"O": 0.5})
    with pytest.raises(ValueError, match="probabilities"):
        tagger.predict(TEXTS[:1], probabilities=True)
    with pytest.raises(ValueError, match="num_words"):
        tagger.answer(np.zeros((1, 2, 3), "float32"))
    tagger.compile("adam")
    with pytest.raises(ValueError, match="sample_weight"):
        tagger.loss(np.zeros((1, 2)), np.zeros((1, 2, 3)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="valid_tags"):
        TokenClassifier(words_bert, LABELS, valid_tags=True)
    with pytest.raises(ValueError, match="valid_tags"):
        TokenClassifier(words_bert, ["noun", "verb"], crf=True, valid_tags=True)


def test_valid_tags_follow_the_scheme(tagger):
    def num_invalid():
        pairs = [pair for row in tags_of(tagger)[0] for pair in itertools.pairwise(["O", *row])]
        return pairs.count(("O", "I-PET"))

    assert num_invalid() > 0
    tagger.valid_tags = True
    assert num_invalid() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "format", nightly_except(["huggingface"], ["keras", "native", "huggingface"])
)
def test_files_keep_the_crf(words_tokenizer, format, tmp_path):
    config = BERTConfig.preset("tiny", vocab_size=len(words_tokenizer.vocab), max_len=16)
    bert = BERTModel.from_bert_config(config)
    model = make_tagger(bert, tokenizer=words_tokenizer, valid_tags=True)
    model.compile(BERTAdamW(1e-3))
    model.optimizer.build(model.trainable_variables)
    if format == "keras":
        model.save(tmp_path / "tagger.keras")
        loaded = keras.saving.load_model(tmp_path / "tagger.keras")
        assert loaded.loss.crf is loaded.crf
    else:
        save_pretrained(model, tmp_path / "tagger", format=format)
        loaded = load_pretrained(tmp_path / "tagger").model
    assert loaded.valid_tags
    assert_equal_tags(tags_of(loaded), tags_of(model))


@pytest.mark.long
def test_a_saved_model_answers_with_tensorflow_alone(words_bert, tmp_path, fresh_process):
    model, texts = (
        make_tagger(words_bert, valid_tags=True, temperature=2.0),
        [" ".join(text) for text in TEXTS],
    )
    folder = export_saved_model(model, tmp_path / "tagger")
    code = """
        import json, sys, tensorflow as tf, tensorflow_text
        loaded = tf.saved_model.load(sys.argv[1])
        texts = tf.constant(sys.argv[2:])
        words = tf.strings.split(texts).to_tensor()
        answers = loaded.signatures["serving_default"](texts), loaded.signatures["words"](words)
        assert "keras_bert_d2l" not in sys.modules
        columns = [[x[name].numpy().tolist() for name in ("ids", "scores")] for x in answers]
        print(json.dumps(columns))
    """
    for columns in json.loads(fresh_process(code, folder, *texts)):
        assert_served(*columns, model, texts)


@pytest.mark.slow
def test_the_onnx_folder_answers_like_the_model(words_bert, tmp_path):
    pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")
    model, texts = make_tagger(words_bert, valid_tags=True), [" ".join(text) for text in TEXTS]
    export_onnx(model, tmp_path / "tagger")
    served = local_server.load(tmp_path / "tagger")
    words = [text + [""] * (45 - len(text)) for text in TEXTS]
    for signature, given in (("serving_default", {"text": texts}), ("words", {"words": words})):
        found = ask(served, signature, given, Limits())
        assert_served(found["ids"], found["scores"], model, texts)


def assert_served(ids, scores, model, texts):
    """Check the padded outputs of a server."""
    sizes = [len(text) for text in TEXTS]
    labels = [[LABELS[x] for x in row[:n]] for row, n in zip(ids, sizes, strict=True)]
    of_words = [x for row, n in zip(scores, sizes, strict=True) for x in row[:n]]
    assert_equal_tags((labels, of_words), tags_of(model, texts))
    assert not np.any(scores[1][1:])


@pytest.mark.long
def test_a_crf_learns_a_rule_that_independent_tags_cannot(words_tokenizer):
    # Equal words have alternating tags, and the encoder reads no positions.
    keras.utils.set_random_seed(0)
    bert = BERTModel(len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16)
    bert.encoder.pos_embedding.assign(np.zeros(bert.encoder.pos_embedding.shape))
    texts = tuple(("cat",) * size for size in range(2, 8))
    examples = WordExamples(
        words=texts,
        labels=tuple(("O", "B", "O", "B", "O", "B", "O")[: len(text)] for text in texts),
    )
    scores = []
    for crf in (False, True):
        model = TokenClassifier(bert, ["O", "B"], crf=crf, tokenizer=words_tokenizer)
        model.freeze_encoder()
        model.compile(keras.optimizers.Adam(0.2))
        x, y = model.preprocessor([*map(list, texts)], [*map(list, examples.labels)])
        model.fit(x, y, epochs=40, verbose=0)
        scores.append(evaluate(model, examples).metrics["accuracy"])
    assert scores[0] < 0.6
    assert scores[1] == 1


@pytest.mark.long
def test_a_run_with_a_crf_resumes(words_bert, tmp_path):
    save_pretrained(words_bert, tmp_path / "bert")
    rows = "".join(f"{word}\t{'B-PET' if word == 'cat' else 'O'}\n" for word in WORDS) + "\n"
    (tmp_path / "train.tsv").write_text(rows * 8, encoding="utf-8")
    options = {"task": "tag", "model": str(tmp_path / "bert"), "crf": True, "epochs": 1}
    options |= dict.fromkeys(("train", "dev"), str(tmp_path / "train.tsv"))
    run = tmp_path / "run"
    model = finetune_files(run, **options, valid_tags=True, verbose=0).model
    assert model.valid_tags
    assert np.abs(np.asarray(model.crf.transitions)).max() > 1e-4
    resumed = finetune_files(run, resume=True, verbose=0).model
    np.testing.assert_array_equal(resumed.crf.transitions, model.crf.transitions)
    with pytest.raises(ValueError, match="crf"):
        finetune_files(tmp_path / "other", **{**options, "task": "classify"}, verbose=0)
