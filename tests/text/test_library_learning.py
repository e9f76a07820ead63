"""learn_vocab with kind="bpe" or "unigram": vocabularies that other libraries learn."""

import sys

import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.text.tokenizer import tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
from tests.nightly import nightly_except
from tests.text.test_vocab_learning import documents

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra vocab")
pytest.importorskip("sentencepiece", reason="needs the extra vocab")

SIZES = {"bpe": 320, "unigram": 60}
CAFE = [["Ein Élan im Café.", "Der Élan geht ins Café, sagt [MASK] das Café. [UNK] [UNK]"] * 20]
TEXTS = ["Walks and talks.", "", "Élan opening [MASK] 東京  the Café", "ﬁve cafés\tnow", "a[MASK]"]


@pytest.fixture(params=SIZES)
def kind(request):
    return request.param


def test_the_result_depends_neither_on_the_run_nor_on_the_order_of_the_documents(kind):
    corpus = documents()
    vocab = kb.learn_vocab(corpus, SIZES[kind], kind=kind)
    assert len(vocab) == SIZES[kind]
    assert vocab.kind == kind
    assert {"bpe": {"Ġopen", "ing"}, "unigram": {"▁open", "▁opening"}}[kind] <= set(vocab)
    for same in (corpus, corpus[::-1]):
        assert kb.learn_vocab(same, SIZES[kind], kind=kind).fingerprint == vocab.fingerprint


def test_special_tokens_have_the_places_and_roles_of_bert(kind):
    vocab = kb.learn_vocab(CAFE, 300, kind=kind)
    assert vocab.tokens[:5] == vocab.special_tokens == GOOGLE_SPECIALS
    assert (vocab.has_segments, vocab.num_separators) == (True, 1)
    assert not {"MASK", "UNK", "ĠĠ"} & set(vocab)
    ids = kb.Tokenizer(vocab).tokenize(["Der [MASK] geht"])[0].numpy().tolist()
    assert vocab.mask_id in ids
    assert "Ġ" not in vocab.to_tokens(ids), "the mask includes the space before it"


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", nightly_except([True], [False, True]))
def test_the_file_means_the_same_to_the_library_tokenizers(kind, lowercase, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer, "are_short", lambda texts: False)  # TensorFlow's operations
    corpus = [*documents(), *CAFE]
    vocab = kb.learn_vocab(corpus, 330, lowercase=lowercase, kind=kind)
    vocab.to_file(tmp_path / "tokenizer.json")
    assert kb.Vocab.from_file(tmp_path / "tokenizer.json") == vocab
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [*TEXTS, *corpus[0], *CAFE[0]]
    ours = kb.Tokenizer(vocab)
    found = ours.with_offsets(texts)
    tokens, starts, ends = (found[name].to_list() for name in ("tokens", "starts", "ends"))
    for row, text in enumerate(texts):
        expected = theirs.encode(text, add_special_tokens=False)
        assert tokens[row] == expected.ids
        assert [*zip(starts[row], ends[row], strict=True)] == expected.offsets
    pair = theirs.encode("open", "walk")
    assert pair.type_ids == [0] * pair.type_ids.index(1) + [1] * pair.type_ids.count(1)
    text = ours.detokenize([ours.tokenize(["Élan"])[0]]).numpy()[0].decode().strip()
    assert text == ("elan" if lowercase else "Élan")


@pytest.mark.long
@pytest.mark.parametrize("kind", SIZES)
def test_a_learned_vocabulary_is_pretrained_exported_and_answers_strings(kind, tmp_path):
    file = tmp_path / "tokenizer.json"
    kb.learn_vocab(documents(), SIZES[kind], kind=kind).to_file(file)
    options = {"preset": "tiny", "batch_size": 8, "max_len": 24, "held_out": 0.2, "steps": 3}
    run = tmp_path / "run"
    result = kb.pretrain(documents(), run, vocab=str(file), verbose=0, **options)
    assert kb.load_pretrained(run / "last").tokenizer.vocab == kb.Vocab.from_file(file)
    path = kb.export_saved_model(result.model, tmp_path / "saved")
    text = "walks [MASK] opening."
    served = tf.saved_model.load(str(path)).signatures["fill_mask"](text=tf.constant([text]))
    expected = kb.fill_mask(result.model, text, top_k=5)[0]
    assert [token.decode() for token in served["tokens"].numpy()[0, 0]] == [
        result.tokenizer.vocab.spelled(one.id) for one in expected
    ]


def test_invalid_arguments_are_rejected(kind):
    with pytest.raises(ValueError, match="`kind` must be one of 'wordpiece', 'bpe', 'unigram'"):
        kb.learn_vocab(documents(), kind="BPE")
    with pytest.raises(ValueError, match="integer of at least 261"):
        kb.learn_vocab(documents(), 260, kind="bpe")
    with pytest.raises(ValueError, match="`corpus` must"):
        kb.learn_vocab([["[MASK]"]], 300, kind=kind)
    with pytest.raises(ValueError, match="each a list of sentences"):
        kb.learn_vocab(["text"], 300, kind=kind)


def test_a_missing_library_is_named_with_its_extra(kind, monkeypatch):
    library = {"bpe": "tokenizers", "unigram": "sentencepiece"}[kind]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"requires {library}.*keras-bert-d2l\[vocab\]"):
        kb.learn_vocab(documents(), 300, kind=kind)
