"""Vocab: the two-way map, its special tokens, its file and invalid input."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.text.vocab import (
    BOOK_SPECIALS,
    GOOGLE_SPECIALS,
    MPNET_SPECIALS,
    Vocab,
    vocab_file_in,
)

WORDS = ["the", "cat", "##s", "sat"]


@pytest.fixture(
    params=[GOOGLE_SPECIALS, BOOK_SPECIALS, MPNET_SPECIALS], ids=["google", "book", "mpnet"]
)
def specials(request):
    return request.param


def test_the_position_of_a_token_is_its_id(specials):
    vocab = Vocab([*specials, *WORDS])
    assert len(vocab) == 9
    assert [vocab[token] for token in vocab] == list(range(9))
    assert vocab[["cat", ["##s", "the"]]] == [6, [7, 5]]
    assert vocab.to_tokens([6, [7, 5]]) == ["cat", ["##s", "the"]]
    assert vocab.tokens == (*specials, *WORDS)


def test_special_tokens_may_have_any_id(specials):
    pad, unk, cls, sep, mask = specials
    vocab = Vocab(["the", mask, sep, "cat", pad, cls, unk])
    named = (vocab.pad_id, vocab.unk_id, vocab.cls_id, vocab.sep_id, vocab.mask_id)
    assert vocab.special_ids == named == (4, 6, 5, 2, 1)
    assert vocab.special_tokens == specials
    assert vocab["dog"] == vocab.unk_id
    assert "dog" not in vocab
    assert "cat" in vocab


def test_a_vocabulary_with_several_spellings_is_of_mpnet_if_it_begins_so():
    mpnet = Vocab(["<s>", "<pad>", "</s>", "<unk>", *GOOGLE_SPECIALS, *WORDS, "<mask>"])
    assert (mpnet.special_ids, mpnet.num_separators) == ((1, 5, 0, 2, 13), 2)
    added = Vocab([*GOOGLE_SPECIALS, *WORDS, "<s>", "</s>", "<pad>", "<mask>"])
    assert (added.special_tokens, added.num_separators) == (GOOGLE_SPECIALS, 1)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([[5, 6], [7, 8]]),
        tf.constant([[5, 6], [7, 8]]),
        tf.ragged.constant([[5, 6], [7, 8]]),
        ((np.int32(5), 6), (7, 8)),
    ],
    ids=["numpy", "tensor", "ragged", "tuples"],
)
def test_ids_may_be_any_array(ids):
    assert Vocab([*GOOGLE_SPECIALS, *WORDS]).to_tokens(ids) == [["the", "cat"], ["##s", "sat"]]


def test_a_file_round_trips_byte_for_byte(specials, tmp_path):
    vocab = Vocab([*specials, *WORDS, "münchen", "\u2028", "東"])
    vocab.to_file(tmp_path / "new" / "vocab.txt")
    written = (tmp_path / "new" / "vocab.txt").read_bytes()
    assert written.decode() == "".join(f"{token}\n" for token in vocab)
    assert Vocab.from_file(tmp_path / "new" / "vocab.txt") == vocab
    assert vocab.fingerprint == hashlib.sha256(written).hexdigest()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vocab.txt"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\r\n", "\r"])
def test_a_file_with_other_line_ends_and_a_byte_order_mark_is_read(tmp_path, end, last):
    (tmp_path / "vocab.txt").write_bytes(f"\ufeff{end.join(GOOGLE_SPECIALS)}{last}".encode())
    assert Vocab.from_file(tmp_path / "vocab.txt").tokens == GOOGLE_SPECIALS


def test_a_line_of_any_length_is_one_token(specials, tmp_path):
    tokens = [*specials, "a b" * 50_000, "the"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    assert Vocab.from_file(tmp_path / "vocab.txt").tokens == tuple(tokens)


def test_vocabularies_are_equal_when_their_tokens_are():
    vocab = Vocab([*GOOGLE_SPECIALS, *WORDS])
    same, other = Vocab((*GOOGLE_SPECIALS, *WORDS)), Vocab([*GOOGLE_SPECIALS, *WORDS[::-1]])
    assert vocab == same
    assert hash(vocab) == hash(same)
    assert vocab != other
    assert vocab.fingerprint != other.fingerprint


def test_added_tokens_get_the_next_ids(specials):
    vocab = Vocab([*specials, *WORDS])
    assert vocab.with_tokens(["dog", "##ed"]).tokens == (*specials, *WORDS, "dog", "##ed")
    assert len(vocab) == 9
    with pytest.raises(ValueError, match="'cat' as the ids 6 and 9"):
        vocab.with_tokens(["cat"])
    with pytest.raises(ValueError, match="one string: 'dog'"):
        vocab.with_tokens("dog")


def test_the_first_tokens_are_a_vocabulary(specials):
    assert Vocab([*specials, "cat", "##s"]).first_tokens(6).tokens == (*specials, "cat")


def test_the_fingerprint_of_googles_vocabulary_is_that_of_its_file(data_dir):
    path = data_dir / "vocab" / "bert-base-uncased-vocab.txt"
    vocab = Vocab.from_file(path)
    assert len(vocab) == 30522
    assert vocab.special_ids == (0, 100, 101, 102, 103)
    assert vocab.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (WORDS, r"special tokens.*Missing: \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ([*BOOK_SPECIALS[:-1], *WORDS], "Missing: <mask>"),
        ([*GOOGLE_SPECIALS, "cat", "dog", "cat"], r"'cat' as the ids 5 and 7"),
        ([*GOOGLE_SPECIALS, ""], r"'' as id 5 \(line 6"),
        ([*GOOGLE_SPECIALS, "a\nb"], "without control characters such as line breaks"),
        ([*GOOGLE_SPECIALS, 7], "Tokens must be strings.*Received: 7"),
        ("cat", "tokens='cat'"),
    ],
)
def test_invalid_tokens_are_rejected(tokens, message):
    with pytest.raises(ValueError, match=message):
        Vocab(tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"[PAD]\ncaf\xe9\n", r"must be UTF-8. Received: byte 9 is 0xe9"),
        (b"cat\ndog\n", "Missing"),
    ],
)
def test_the_error_for_an_invalid_file_names_the_file(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        Vocab.from_file(tmp_path / "vocab.txt")
    assert "vocab.txt" in str(caught.value)


# The ids of the words are those of transformers 5.24, `BertTokenizer(vocab_file)`.
@pytest.mark.parametrize(
    ("lines", "renamed"),
    [
        (["", "cat", "dog"], {5: "[line 6]"}),
        (["cat", "dog", "cat"], {5: "[line 6]"}),  # the last one counts: id 7
        (["cat", "\x96", "dog", "a\x7f", "b\tc"], {6: "[line 7]", 8: "[line 9]", 9: "[line 10]"}),
        (["cat", "[MASK]", "[PAD]", "dog"], {4: "[line 5]", 0: "[line 1]"}),
        (["cat", "\x85", "dog", "\x0c", "##"], {6: "[line 7]", 8: "[line 9]"}),
        (["cat", "", "dog", "[line 8]", "[[line 7]"], {6: "[[[line 7]"}),  # a token has this name
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_that_are_no_tokens_keep_their_ids_with_a_warning(tmp_path, lines, renamed, end):
    lines = [*GOOGLE_SPECIALS, *lines]
    (tmp_path / "vocab.txt").write_bytes("".join(line + end for line in [*lines, "", ""]).encode())
    with pytest.warns(UserWarning, match=rf"vocab.txt': {len(renamed)} tokens are empty"):
        vocab = Vocab.from_file(tmp_path / "vocab.txt")
    assert vocab.tokens == tuple(renamed.get(i, line) for i, line in enumerate(lines))
    for word in {"cat", "dog", *GOOGLE_SPECIALS}:
        assert vocab[word] == max(i for i, line in enumerate(lines) if line == word)


def test_lines_of_other_white_space_are_tokens(tmp_path):
    tokens = [*GOOGLE_SPECIALS, " ", "\u2028", "\u00a0", "##q "]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(tokens).encode())
    assert Vocab.from_file(tmp_path / "vocab.txt").tokens == tuple(tokens)


def test_ids_that_are_not_in_the_vocabulary_are_rejected():
    vocab = Vocab([*GOOGLE_SPECIALS, *WORDS])
    for ids in (9, -1, [0, 9], np.array([9])):
        with pytest.raises(ValueError, match=r"must be in 0\.\.8.*Received: (9|-1)"):
            vocab.to_tokens(ids)
    for ids in (1.0, "cat", True, None, np.array([1.5])):
        with pytest.raises(ValueError, match="must be integers"):
            vocab.to_tokens(ids)
    with pytest.raises(ValueError, match="to_tokens"):
        vocab[3]


def test_a_foreign_file_beside_a_vocabulary_is_not_the_vocabulary(tmp_path):
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / name).touch()
        assert vocab_file_in(tmp_path).name == name
