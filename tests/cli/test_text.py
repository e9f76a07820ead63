import pytest

from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

WORDS = "the dog cat owl fox hare bird mouse sees hears finds .".split()


@pytest.fixture
def vocab(folder):
    path = folder / "words.txt"
    Vocab([*GOOGLE_SPECIALS, *WORDS]).to_file(path)
    return path


@pytest.fixture
def store(run, folder, vocab):
    run("prepare", "text.txt", "--layout", "lines", "--vocab", vocab, "--out", "store")
    return folder / "store"


def test_prepare_writes_a_store_with_its_vocabulary(run, folder, vocab):
    arguments = ("prepare", "text.txt", "--layout", "lines", "--vocab", vocab, "--out", "new")
    first, second = run(*arguments).stdout, run(*arguments).stdout
    counts = "216 tokens in 36 sentences of 12 documents (0.00% unknown words)"
    assert first == f"Written: {counts}, in new\n"
    assert second == first.replace("Written", "Already complete")
    assert TokenStore.open(folder / "new").tokenizer().vocab.tokens[5:] == tuple(WORDS)


def test_prepare_can_discard_duplicates_and_preserve_case(run, folder, vocab):
    (folder / "twice.txt").write_text("the dog\n\nThe dog\n\nthe dog\n")
    out = run(
        *("prepare", "twice.txt", "--layout", "lines", "--vocab", vocab, "--out", "unique"),
        *("--deduplicate", "--cased", "--compat", "huggingface"),
    ).stdout
    assert out.endswith("(25.00% unknown words), in unique. Discarded duplicates: 1\n")
    tokenizer = TokenStore.open(folder / "unique").tokenizer()
    assert (tokenizer.options["lowercase"], tokenizer.options["compat"]) == (False, "huggingface")


def test_a_token_store_is_rejected_as_text(error, store, vocab):
    assert "already tokenized" in error("vocab", "store")
    assert "already tokenized" in error("prepare", "store", "--vocab", vocab, "--out", "again")


def test_vocab_learns_the_tokens_of_a_text(run, folder):
    arguments = ("vocab", "text.txt", "--layout", "lines", "--out", "made/v.txt", "--vocab-size")
    out = run(*arguments, 8000).stdout
    assert "v.txt, because the text has no more repeated pieces" in out
    assert "the" in Vocab.from_file(folder / "made/v.txt")
    assert "no more" not in run(*arguments, 12).stdout
    assert len(Vocab.from_file(folder / "made/v.txt")) == 12


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_vocab_learns_other_kinds(run, error, folder, kind):
    pytest.importorskip("sentencepiece", reason="needs the extra vocab")
    arguments = ("vocab", "text.txt", "--layout", "lines", "--kind", kind, "--vocab-size", 270)
    for options, is_lowercase in (((), False), (("--lowercase",), True)):
        run(*arguments, *options)
        vocab = Vocab.from_file(folder / "tokenizer.json")
        assert vocab.kind == kind
        assert ('"Lowercase"' in vocab.to_text()) == is_lowercase
    assert "must end in .json" in error(*arguments, "--out", "v.txt")
