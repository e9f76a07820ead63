"""Every function takes models of BERT's relatives, with the tokenizers that they come with."""

import json

import numpy as np
import pytest
import tensorflow as tf
import yaml

import keras_bert_d2l as kb
from keras_bert_d2l.block_config import OF_RELATIVES
from keras_bert_d2l.cli import main
from tests.family import PRESETS, WORDS, bert_of, config_of, tokenizer_of
from tests.nightly import nightly_except

pytestmark = pytest.mark.slow
each = pytest.mark.parametrize("name", nightly_except(["roberta"], PRESETS))
each_night = pytest.mark.parametrize("name", nightly_except([], PRESETS))
PLAIN = {"epochs": 1, "batch_size": 4, "verbose": False, "precision": "float32", "jit": False}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with a text, and labeled files for each task."""
    folder = tmp_path_factory.mktemp("family")
    random = np.random.default_rng(0)

    def line(number):
        return " ".join(random.choice(WORDS, number))

    documents = ["\n".join(f"{line(6)}." for _ in range(4)) for _ in range(12)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    rows = [f"{line(5)}\t{line(3)}\t{'ab'[n % 2]}" for n in range(8)]
    (folder / "classify.tsv").write_text("\n".join(["text\ttext_b\tlabel", *rows]))
    rows = [f"{line(5)}\t{line(3)}\t{n / 8}" for n in range(8)]
    (folder / "embed.tsv").write_text("\n".join(["text\ttext_b\tscore", *rows]))
    words = "Ada B-PER\nlives O\nin O\nLondon B-LOC\n. O\n"
    (folder / "tag.conll").write_text("\n".join([words] * 4))
    context = "Paris is big. " * 4 + "Ada lives in London."
    question = {
        "id": "1",
        "question": "who lives",
        "answers": [{"text": "Ada", "answer_start": 56}],
    }
    squad = {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}
    (folder / "answer.json").write_text(json.dumps(squad))
    choices = {"text": "the cat", "choices": ["sat on", "Paris is"]}
    lines = [json.dumps({**choices, "label": n % 2}) for n in range(4)]
    (folder / "choose.jsonl").write_text("\n".join(lines))
    return folder


@each
def test_the_mask_takes_the_space_before_it_and_predictions_are_text(name):
    model = bert_of(name)
    cat = model.tokenizer.tokenize(["a cat"]).to_list()[0][-1]
    model.mlm.bias.assign(50.0 * np.eye(len(model.tokenizer.vocab))[cat])  # always predict it
    (best,) = kb.fill_mask(model, "the <mask> sat", top_k=1)[0]
    space = "" if model.tokenizer.vocab.kind == "wordpiece" else " "
    assert (best.id, best.token) == (cat, f"{space}cat")


@pytest.mark.parametrize("name", nightly_except(["roberta"], ["roberta", "mpnet", "xlm-roberta"]))
@pytest.mark.parametrize("is_layer", nightly_except([False], [False, True]))
def test_an_export_takes_texts_of_any_shape(name, is_layer, tmp_path):
    classifier = kb.SequenceClassifier(bert_of(name), ["a", "b"])
    texts = ["the cat sat", "a good film", "Paris is big"]
    expected = [found.score for found in kb.classify(classifier, texts)]
    folder = str(kb.export_saved_model(classifier, tmp_path))
    if is_layer:
        function = tf.keras.layers.TFSMLayer(folder, call_endpoint="serving_default")
    else:
        loaded = tf.saved_model.load(folder)
        function = loaded.signatures["serving_default"]

    def call(x):
        return function(x)["score"]

    for shape in ((3,), (3, 1)):
        x = tf.reshape(tf.constant(texts), shape)
        np.testing.assert_allclose(call(x), expected, atol=1e-6)
        mapped = tf.data.Dataset.from_tensor_slices(x).batch(3).map(call)
        np.testing.assert_allclose(next(iter(mapped)), expected, atol=1e-6)
    single = tf.data.Dataset.from_tensor_slices(texts).map(call)
    np.testing.assert_allclose(np.concatenate([*single]), expected, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(B,\), \(B, 1\) or \(\)"):
        call(tf.constant([texts, texts]))


@each_night
def test_a_text_has_the_same_vectors_whatever_the_padding(name):
    model = bert_of(name)
    texts = ["the cat sat", "a good film about London, Paris and a big cat"]
    vectors = kb.embed(model, texts)
    assert np.abs(vectors[0] - kb.embed(model, texts[0])).max() < 1e-5


@each
def test_a_pair_has_the_separators_of_its_template(name):
    tokenizer = tokenizer_of(name)
    vocab = tokenizer.vocab
    a, b = tokenizer.tokenize(["the cat", "a film"]).to_list()
    batch = tokenizer(["the cat"], ["a film"], max_len=40)
    row = [0, *a, *[2] * vocab.num_separators, *b, 2]
    assert batch["tokens"][0].numpy().tolist() == row + [1] * (40 - len(row))
    assert int(batch["segments"].numpy().sum()) == len(b) + 1
    short = tokenizer(["the cat sat on"], ["a good film"], max_len=9)["tokens"][0].numpy().tolist()
    assert short.count(2) == vocab.num_separators + 1
    assert 1 not in short


@each
@pytest.mark.parametrize("aggregate", nightly_except(["first"], ["simple", "first", "max"]))
def test_tags_are_those_of_the_words_at_their_places(name, aggregate):
    model = kb.TokenClassifier(bert_of(name), labels=["O", "B-PER"])
    text = "Ada lives in  London\nParis🙂 is 🙂 big"
    tags = kb.tag(model, text)
    assert [tag.word for tag in tags] == text.split()
    assert all(text[tag.start : tag.end] == tag.word for tag in tags)
    assert [tag.word for tag in kb.tag(model, [text.split()])[0]] == text.split()
    for entity in kb.tag(model, text, aggregate=aggregate):
        assert entity.text == text[entity.start : entity.end] == entity.text.strip()


@each_night
def test_answers_are_parts_of_a_context_of_several_windows(name):
    model = kb.QuestionAnswerer(bert_of(name))
    context = "Ada lives in London. Paris is big. " * 6
    found = kb.answer(model, "the cat is", context, top_k=5)
    assert len(found) == 5
    assert all(one.text == context[one.start : one.end] == one.text.strip() for one in found)


@each_night
def test_answers_about_texts_are_the_outputs_for_their_tokens(name):
    bert, text, others = bert_of(name), "the cat sat", ["good film", "Paris is big"]
    batch = bert.tokenizer([text] * 2, others)

    def assert_scores(found, logits):
        expected = tf.nn.softmax(logits).numpy().tolist()
        assert list(found.scores.values()) == pytest.approx(expected, abs=1e-6)

    model = kb.SequenceClassifier(bert, labels=["entailment", "neutral", "contradiction"])
    logits = model(batch).numpy()
    assert_scores(kb.classify(model, text, others[0]), logits[0])
    assert_scores(kb.zero_shot(model, text, others, template="{}"), logits[:, 0])
    choices, regressor = kb.MultipleChoice(bert), kb.SequenceRegressor(bert)
    assert kb.choose(choices, text, others).index == choices(batch).numpy().argmax()
    score = kb.regress(regressor, text, others[0]).score
    assert score == pytest.approx(float(regressor(batch)[0, 0]), abs=1e-6)


@each_night
def test_perplexity_counts_the_tokens_of_a_text(name):
    model = bert_of(name)
    found = kb.pseudo_perplexity(model, "the cat sat")
    assert found.num_tokens == len(model.tokenizer.tokenize(["the cat sat"]).to_list()[0])
    pairs = {"sentence_good": ["the cat sat"], "sentence_bad": ["cat the sat"]}
    assert 0 <= kb.minimal_pairs(model, pairs).accuracy <= 1


@each
def test_whole_words_are_masked_together(name):
    tokenizer = tokenizer_of(name)
    vocab = tokenizer.vocab
    batch = tokenizer(["the xyz cats sat on Londoners and mats about zebras"] * 64, max_len=40)
    masking = kb.Masking("whole_word", rate=0.3, replace=(1, 0, 0))
    keys, options = np.arange(64), {"vocab": vocab, "masking": masking, "num_predictions": 12}
    masked = kb.mask_tokens(batch["tokens"], batch["valid_lens"], keys, **options).tokens.numpy()
    before = batch["tokens"].numpy()
    is_masked = masked == vocab.mask_id
    is_special = np.isin(before, vocab.special_ids)
    continues = vocab.continues[before] & ~np.roll(is_special, 1, axis=1)
    together = is_masked == np.roll(is_masked, 1, axis=1)
    assert is_masked.any()
    assert together[continues].all()
    assert not is_masked[is_special].any()


@each_night
def test_changed_vocabularies_keep_the_answers_for_other_tokens(name):
    model = bert_of(name)
    vector = kb.embed(model, "the cat sat")
    larger = kb.add_tokens(model, ["[E1]"], special=True)
    assert larger.tokenizer.tokenize(["[E1]"]).to_list() == [[len(model.tokenizer.vocab)]]
    for changed in (larger, kb.resize_positions(model, 60)):
        assert np.abs(kb.embed(changed, "the cat sat") - vector).max() < 1e-5


@each_night
def test_blocks_are_kept_where_their_attention_stays_the_same(name):
    model = bert_of(name)
    assert kb.keep_blocks(model, [1]).bert_config.num_blks == 1
    if name == "modernbert":  # every third block attends everywhere
        with pytest.raises(ValueError, match=r"blocks.*such that every place.*\[1, 2\].*\[1, 3\]"):
            kb.keep_blocks(model, [1, 3])


@each_night
def test_a_page_has_stored_answers_of_what_it_cannot_compute(name):
    model = bert_of(name)
    with pytest.raises(ValueError, match="`texts` is required .* relative of BERT"):
        kb.playground(model)
    assert "computed in advance" in kb.playground(model, texts=["the cat sat"]).html


@pytest.mark.parametrize("fields", [{}, {"first_position_id": 0, "mask_from": "tokens"}])
def test_another_padding_token_than_that_of_the_positions_or_the_mask_is_refused(fields):
    model = bert_of("roberta", pad_id=0, **fields)
    with pytest.raises(ValueError, match="padding token .* must have the id 0.*Received: 1"):
        kb.embed(model, "the cat")


def test_options_of_wordpiece_are_refused_at_the_door(corpus, tmp_path, capsys):
    vocab = tokenizer_of("roberta").vocab
    with pytest.raises(ValueError, match=r"`lowercase` is an option of WordPiece.*Omit lowercase"):
        kb.pretrain(corpus / "text.txt", tmp_path, vocab=vocab, lowercase=False, verbose=False)
    file = tmp_path / "tokenizer.json"
    vocab.to_file(file)
    command = ["pretrain", corpus / "text.txt", "--vocab", file, "--cased"]
    with pytest.raises(SystemExit):
        main([*map(str, command), "--run-dir", str(tmp_path / "run")])
    assert "Received: --cased with a vocabulary" in (message := capsys.readouterr().err)
    assert message.endswith("Omit --cased.\n")


@pytest.fixture(scope="module")
def run_of(corpus, tmp_path_factory):
    """Return the run of a model that was pretrained from scratch, with its options."""
    runs = {}

    def run_of(name):
        if name not in runs:
            folder = tmp_path_factory.mktemp(name)
            vocab = tokenizer_of(name).vocab
            vocab.to_file(folder / vocab.file_name)
            config_of(name).to_json(folder / "config.json")
            runs[name] = folder / "run"
            kb.pretrain(
                corpus / "text.txt",
                runs[name],
                vocab=folder / vocab.file_name,
                bert_config=folder / "config.json",
                masking="whole_word",
                rows="packed",
                **pretraining(folder),
            )
        return runs[name]

    return run_of


def pretraining(folder):
    return {
        **{name: PLAIN[name] for name in ("batch_size", "verbose", "precision", "jit")},
        "cache_dir": folder / "stores",
        "layout": "lines",
        "max_len": 32,
        "steps": 2,
        "evaluate_every": 2,
    }


@each_night
def test_a_run_keeps_its_vocabulary_resumes_and_starts_other_runs(name, run_of, corpus, tmp_path):
    run, vocab = run_of(name), tokenizer_of(name).vocab
    assert {vocab.file_name, "report.html"} <= {file.name for file in run.iterdir()}
    lowercase = yaml.safe_load((run / "run.yaml").read_text())["lowercase"]
    assert lowercase is (True if vocab.kind == "wordpiece" else None)
    model, tokenizer, _ = kb.load_pretrained(run, verbose=False)
    assert (tokenizer.vocab, model.bert_config.pad_id) == (vocab, vocab.pad_id)
    result = kb.pretrain(None, run, resume=True, verbose=False)
    assert result.metrics[-1]["step"] == 2
    text, options = corpus / "text.txt", pretraining(tmp_path)
    for number, more in enumerate(({"lora": 2}, {"objective": "nsp", "masking": "span"})):
        found = kb.pretrain(text, tmp_path / f"{number}", init=run, **more, **options)
        assert np.isfinite(found.metrics[-1]["val_loss"])
    store = kb.build_store(kb.Corpus.open(text, layout="lines"), tokenizer, tmp_path / "store")
    student = kb.distill(model, store, [1], epochs=1, batch_size=4, max_len=32, verbose=False)
    assert student.bert_config.num_blks == 1


def losses(name, folder, dtype="float32", **options):
    """Return the losses of training from the weights in a folder."""
    config = config_of(name, pooler=False, next_sentence=False)
    model = kb.BERTModel.from_bert_config(config, dtype=dtype)
    if (start := folder / f"{name}.weights.h5").exists():
        model.load_weights(start)
    model.save_weights(start)
    model.compile(kb.BERTAdamW(1e-3), **options)
    text, rows = kb.Corpus.open(folder / "text.txt", layout="lines"), {"objective": "none"}
    rows |= {"batch_size": 8, "max_len": 32, "num_predictions": 4}
    data = kb.pretraining_dataset(text, tokenizer_of(name), **rows)
    return model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]


@each_night
def test_micro_batches_and_half_precision_have_the_losses_of_plain_training(name, corpus):
    expected = losses(name, corpus)
    assert expected[-1] < expected[0]
    assert losses(name, corpus, micro_batches=2) == pytest.approx(expected, rel=1e-4)
    for dtype in ("mixed_bfloat16", "mixed_float16"):
        assert losses(name, corpus, dtype) == pytest.approx(expected, rel=1e-2)


@each_night
def test_training_with_jax_has_the_losses_of_tensorflow(name, corpus, fresh_process):
    pytest.importorskip("jax", reason="needs JAX: make test-peers")
    expected = losses(name, corpus)
    code = """
        import pathlib, sys
        from tests.test_family import losses
        print(losses(sys.argv[1], pathlib.Path(sys.argv[2])))
    """
    jax = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    found = json.loads(fresh_process(code, name, corpus, **jax).splitlines()[-1])
    assert found == pytest.approx(expected, rel=1e-4)


@each_night
def test_pairs_of_pretraining_have_the_separators_of_the_template(name, corpus, tmp_path):
    tokenizer = tokenizer_of(name)
    vocab = tokenizer.vocab
    text = kb.Corpus.open(corpus / "text.txt", layout="lines")
    store = kb.build_store(text, tokenizer, tmp_path / "store")
    assert kb.TokenStore.open(tmp_path / "store").tokenizer().vocab == vocab
    for rows in ("padded", "packed", "bucketed"):
        options = {"batch_size": 4, "max_len": 40, "rows": rows, "num_predictions": 2}
        masking = kb.Masking(replace=(0, 0, 1))
        batches = kb.pretraining_dataset(store, tokenizer, masking=masking, **options)
        features, _, weights = next(iter(batches))
        number = np.sum(weights["nsp"].numpy())
        ends = features["tokens"].numpy() == vocab.sep_id
        assert ends.sum() == number * (vocab.num_separators + 1)
        lens = features["valid_lens"].numpy()
        assert (np.sum(features["tokens"].numpy() != vocab.pad_id, axis=1) == lens).all()


@each_night
@pytest.mark.parametrize(
    ("task", "file", "options"),
    [
        ("classify", "classify.tsv", {"freeze_blocks": 2}),
        ("tag", "tag.conll", {"lora": 2}),
        ("answer", "answer.json", {}),
        ("choose", "choose.jsonl", {}),
        ("embed", "embed.tsv", {}),
        ("regress", "embed.tsv", {}),
    ],
)
def test_each_task_is_finetuned_and_evaluated(name, task, file, options, run_of, corpus, tmp_path):
    data = {"train": corpus / file, "dev": corpus / file, "model": run_of(name)}
    run = tmp_path / "run"
    found = kb.finetune_files(run, task=task, max_len=32, **data, **PLAIN, **options)
    assert np.isfinite(found.metrics["best"]["loss"])
    assert (run / "report.html").is_file()
    assert all(map(np.isfinite, kb.evaluate(run, corpus / file).metrics.values()))


def test_plain_bert_has_no_field_of_its_relatives():
    assert not kb.BERTConfig.preset("base").to_dict().keys() & OF_RELATIVES
