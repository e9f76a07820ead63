"""The page of the playground: it answers as Keras does, and it works without a network."""

import json
import re

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.inspection.playground import rounded
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS

WORDS = "the cat sat on a mat and dog ##s ran home . , old new man".split()
TEXTS = ["the old cat sat on a mat .", "a dog ran home .", "the new man sat ."]
SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 24, "num_heads": 2, "num_blks": 2, "max_len": 24}


def tiny_model(name="google", **fields):
    """Return a random model whose predictions are far from uniform."""
    vocab = kb.Vocab([*GOOGLE_SPECIALS, *WORDS])
    config = kb.BERTConfig.preset(name, **{"vocab_size": len(vocab), **SIZES, **fields})
    model = kb.BERTModel.from_bert_config(config)
    generator = np.random.default_rng(0)
    for weight in model.weights:
        if "seed" not in weight.path:
            noise = generator.normal(weight.name == "gamma", 0.4, weight.shape)
            weight.assign(noise.astype("float32"))
    model.tokenizer = kb.Tokenizer(vocab)
    return model


def round_weights(model):
    """Round the weights of a model as the page does."""
    for name, weight in named_weights(model).items():
        value = keras.ops.convert_to_numpy(weight)
        value = value[0] if weight.ndim == 3 else value
        if value.ndim == 2 and not name.startswith(("hidden", "nsp")):
            rows = value.T if name.endswith("/kernel") else value
            scales, integers = rounded(rows)
            rows = scales[:, None] * integers
            value = rows.T if name.endswith("/kernel") else rows
            weight.assign(np.reshape(value, weight.shape))
    if model.bert_config.positions == "sinusoidal":
        scales, integers = rounded(model.encoder.pos_embedding[0])
        model.encoder.pos_embedding = (scales[:, None] * integers)[None]


def candidates(page, text, position):
    """Return what the page computes: the candidates of each block."""
    return page.run(
        f"model.answer({json.dumps(text)}, new Set(), () => false)"
        f".then(found => found.lens({position}))"
    )


@pytest.mark.slow
def test_the_page_masks_the_other_words_one_by_one(page, tmp_path):
    model = tiny_model()
    kb.playground(model, tmp_path / "page.html", texts=["the old [MASK] sat"])
    page.open(tmp_path / "page.html")
    page.wait("!document.getElementById('occlusion-card').hidden")
    rows = page.run("[...document.querySelectorAll('#occlusion li')].map(one => one.innerText)")
    round_weights(model)
    [best] = kb.fill_mask(model, "the old [MASK] sat", top_k=1)[0]
    assert {row.split()[0] for row in rows} == {"the", "old", "sat"}
    for row in rows:
        word, *_, label = row.split()
        text = "the old [MASK] sat".replace(word, "[MASK]")
        masks = kb.fill_mask(model, text, top_k=len(model.tokenizer.vocab))
        of_mask = masks[0 if word == "sat" else 1]
        fall = best.score - next(one.score for one in of_mask if one.token == best.token)
        assert float(label.strip("+−<%")) / 100 == pytest.approx(abs(fall), abs=0.006)
        assert label.startswith("+" if fall < 0 else "−")
    assert page.problems == []


ARCHITECTURES = [
    ("google", {}),
    ("huggingface", {"num_blks": 1, "mlm_head": "linear"}),
    ("d2l", {}),
    ("d2l-torch", {"positions": "none", "activation": "gelu"}),
    ("iksran", {"first_segment_id": 2}),
    ("codertimo", {"final_norm": True}),
    ("codertimo", {"tie_embeddings": True, "mlm_head": "mlp", "zero_padding": False}),
    ("google", {"num_blks": 0}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fields"), ARCHITECTURES, ids=str)
def test_every_architecture_answers_as_in_keras(page, tmp_path, name, fields):
    model = tiny_model(name, **fields)
    kb.playground(model, tmp_path / "page.html")
    page.open(tmp_path / "page.html")
    text = "the [MASK] sat . [PAD] dogs"  # padding has the id 0, which some models do not attend to
    found = candidates(page, text, 2)
    hidden, attention = page.run(
        f"(async () => {{ const {{ tokenizer, encoder }} = model;"
        f"const ids = tokenizer.tokenize({json.dumps(text)}).map(({{ id }}) => id);"
        "const { hidden, attention } = await encoder.run(ids);"
        "return [hidden, attention].map(rows => rows.map(row => Array.from(row))); })()"
    )
    round_weights(model)
    batch = model.tokenizer([text])
    outputs = model.encoder(**batch, return_hidden_states=True, return_attention=True)
    T, D = batch["tokens"].shape[1], SIZES["num_hiddens"]
    np.testing.assert_allclose(
        np.reshape(hidden[-1], (T, D)), outputs["encoded"][0], rtol=0, atol=2e-5
    )
    for ours, expected in zip(attention, outputs["attention"], strict=True):
        np.testing.assert_allclose(np.reshape(ours, (-1, T, T)), expected[0], rtol=0, atol=1e-5)
    [expected] = kb.fill_mask(model, text, top_k=10)
    assert [token for token, _ in found[-1]["candidates"]] == [one.token for one in expected]
    shares = [share for _, share in found[-1]["candidates"]]
    np.testing.assert_allclose(shares, [one.score for one in expected], rtol=1e-4)
    assert len(found) == model.bert_config.num_blks + 1
    assert page.problems == []


SUBJECTS = (
    *("the old man", "a child", "my sister", "the captain", "no one", "the doctor"),
    *("her mother", "a tall woman", "the king", "his friend"),
)
PREDICATES = (
    *(
        "looked at the [MASK] .",
        "went into the [MASK] and sat down .",
        "said that [MASK] was ill .",
    ),
    *("had never seen such a [MASK] before .", "[MASK] nothing , and smiled ."),
    *("opened the [MASK] with a key .", "was very [MASK] of his horse ."),
    *("gave her a [MASK] for her birthday .", "came back in the [MASK] ."),
    "put a [MASK] on the table .",
)


@pytest.mark.long
def test_the_model_of_the_package_predicts_the_same_top_five_as_keras(page, tmp_path):
    model, *_ = kb.load_pretrained("novels-small")
    sentences = [f"{subject} {predicate}" for subject in SUBJECTS for predicate in PREDICATES]
    assert kb.playground(model, tmp_path / "page.html", texts=sentences).num_bytes < 12e6
    page.open(tmp_path / "page.html")
    places = [sentence.split().index("[MASK]") + 1 for sentence in sentences]
    found = [
        candidates(page, sentence, place)[-1]["candidates"][:5]
        for sentence, place in zip(sentences, places, strict=True)
    ]
    round_weights(model)
    expected = [masks[0] for masks in kb.fill_mask(model, sentences)]
    assert len(expected) == 100
    assert [[token for token, _ in row] for row in found] == [
        [one.token for one in row] for row in expected
    ]
    np.testing.assert_allclose(
        [[share for _, share in row] for row in found],
        [[one.score for one in row] for row in expected],
        atol=1e-5,
    )
    assert page.problems == []


@pytest.fixture(scope="module")
def live_page(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "page.html"
    kb.playground(tiny_model(), path, texts=TEXTS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("text", "word"), [("a dog ran home .", "ran"), ("a [MASK] ran .", None)])
def test_the_page_opens_with_one_mask_and_its_candidates(page, tmp_path, text, word):
    kb.playground(tiny_model(), tmp_path / "page.html", texts=[text])
    page.open(tmp_path / "page.html")
    masks = page.run("answer.pieces.filter(({ token }) => token === '[MASK]')")
    assert [mask.get("original") for mask in masks] == [word]
    about = f"For the mask in place of “{word}”." if word else "For the mask in the text."
    assert page.run("document.getElementById('candidates-about').innerText") == about


WORD = "[...document.querySelectorAll('button.word')].find(word => word.innerText.startsWith({!r}))"


@pytest.mark.slow
def test_a_text_is_typed_a_word_masked_and_a_candidate_chosen_without_a_network(page, live_page):
    page.look()
    page.open(live_page)
    page.click("document.getElementById('text')")
    page.run("document.getElementById('text').select()")
    page.type("a dog sat on the mat")
    page.wait("document.getElementById('pieces').innerText.includes('dog')")
    page.click(WORD.format("dog"))
    page.wait("document.querySelector('.word.masked')")
    tokens = page.run("[...document.querySelectorAll('#candidates .token')].map(x => x.innerText)")
    model = tiny_model()
    round_weights(model)
    [expected] = kb.fill_mask(model, "a [MASK] sat on the mat", top_k=10)
    assert tokens == [one.token for one in expected]
    assert page.run("document.querySelectorAll('#lens tbody tr').length") == 3
    page.click("document.querySelector('#candidates button')")
    page.wait("!document.querySelector('.word.masked')")
    best = expected[0].token.removeprefix("##")
    assert page.run("document.getElementById('text').value") == f"a {best} sat on the mat"
    assert page.problems == []


@pytest.mark.slow
def test_heads_and_views_are_switched_with_the_mouse_and_the_keyboard(page, live_page):
    page.look()
    page.open(live_page)
    assert page.run("document.getElementById('head-name').innerText") == "Block 1, head 1"
    page.click("document.querySelector('[aria-label=\"Block 2, head 2\"]')")
    assert page.run("document.getElementById('head-name').innerText") == "Block 2, head 2"
    page.click("document.getElementById('view-matrix')")
    num_tokens = page.run("answer.pieces.length")
    assert page.run("document.querySelectorAll('#attention .cell').length") == num_tokens**2
    page.run("document.querySelector('#attention .from').focus()")
    page.press("ArrowDown")
    first = page.run("answer.pieces[1].token")
    weights = page.run("Array.from(answer.attention(1, 1).subarray(answer.pieces.length))")
    most = page.run(f"answer.pieces[{int(np.argmax(weights[:num_tokens]))}].token")
    sentence = page.run("document.getElementById('attends').innerText")
    assert sentence.startswith(f"“{first}” attends to “{most}”")
    assert page.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_the_window(page, live_page, width):
    page.look(width=width)
    page.open(live_page)
    assert page.run("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_a_large_model_has_stored_answers(page, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bert_d2l.inspection.playground._MOST_WEIGHTS", 100)
    model = tiny_model()
    with pytest.raises(ValueError, match=r"`texts` is required .* Received: texts=None"):
        kb.playground(model)
    kb.playground(model, tmp_path / "page.html", texts=TEXTS)
    page.look()
    page.open(tmp_path / "page.html")
    page.click(WORD.format("cat"))
    page.wait("document.querySelector('.word.masked')?.innerText.includes('cat')")
    tokens = page.run("[...document.querySelectorAll('#candidates .token')].map(x => x.innerText)")
    [expected] = kb.fill_mask(model, TEXTS[0].replace("cat", "[MASK]"), top_k=10)
    assert tokens == [one.token for one in expected]
    attention = model.encoder(**model.tokenizer(TEXTS[:1]), return_attention=True)["attention"]
    stored = page.run("Array.from(answer.attention(1, 0))")
    np.testing.assert_allclose(stored, np.ravel(attention[1][0, 0]), atol=1 / 500)
    similar = page.run("[...document.querySelectorAll('#neighbors em')].map(x => +x.innerText)")
    scores = [match.score for match in kb.similar(model, TEXTS[0], TEXTS)[1:]]
    np.testing.assert_allclose(similar, scores, atol=0.02)
    assert page.problems == []


@pytest.mark.slow
def test_texts_are_compared_as_embed_does(page, live_page):
    page.open(live_page)
    found = page.run(
        "model.answer('a cat sat .', new Set(), () => false).then(found => found.neighbors())"
    )
    model = tiny_model()
    vectors = kb.embed(model, TEXTS)
    round_weights(model)
    scores = dict(zip(TEXTS, vectors @ kb.embed(model, "a cat sat ."), strict=True))
    assert sorted(scores, key=scores.get, reverse=True) == [text for text, _ in found]
    np.testing.assert_allclose(
        [score for _, score in found], sorted(scores.values(), reverse=True), atol=0.01
    )


@pytest.mark.slow
def test_an_embedder_has_no_candidates(page, tmp_path):
    embedder = kb.TextEmbedder(tiny_model(), pooling="max")
    kb.playground(embedder, tmp_path / "page.html", texts=TEXTS)
    page.look()
    page.open(tmp_path / "page.html")
    assert page.run("document.getElementById('candidates-card').hidden")
    assert page.run("document.querySelectorAll('#neighbors li').length") == 2
    found = page.run(
        "model.encoder.pooled(new Float32Array(32).map((_, i) => i), [1, 2], 'max')[0]"
    )
    assert found == 16
    assert page.problems == []


def test_a_notebook_shows_the_page_and_nothing_is_loaded_from_elsewhere():
    result = kb.playground(tiny_model(), texts=["</script><b>a cat</b>"])
    assert not re.search(
        r"(https?:)?//(?!www\.w3\.org/2000/svg)[a-z]+\.[a-z]+", re.sub(r"// .*", "", result.html)
    )
    assert result.html.count("</script>") == 4
    shown = result._repr_html_()
    assert shown.startswith("<iframe ")
    assert shown.count("<") == 2
    assert repr(result) == f"Page('BERT playground', {result.num_bytes:,} bytes)"


@pytest.mark.slow
def test_the_page_works_in_the_frame_of_a_notebook(page, tmp_path):
    (tmp_path / "cell.html").write_text(kb.playground(tiny_model(), texts=TEXTS)._repr_html_())
    document = "document.querySelector('iframe')?.contentDocument"
    page.open(tmp_path / "cell.html", document)
    assert page.run(f"{document}.querySelectorAll('#candidates li').length") == 10
    assert page.problems == []


def test_wrong_arguments_are_named():
    model = tiny_model()
    with pytest.raises(ValueError, match="`tokenizer` must be a `Tokenizer`"):
        kb.playground(model, texts="one text", tokenizer=3)
    with pytest.raises(ValueError, match="`model` must be a BERTModel or a Text"):
        kb.playground(kb.SequenceRegressor(model))
