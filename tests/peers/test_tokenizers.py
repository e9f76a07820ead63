"""`Tokenizer(compat="huggingface")` compared with Hugging Face's own tokenizer."""

import gzip
import lzma
import random
import tarfile

import numpy as np
import pytest

from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import write_tokenizer
from keras_bert_d2l.checkpoints.loading import load_tokenizer
from keras_bert_d2l.checkpoints.saving import save_tokenizer
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")

SAMPLE = 500
# Without pieces for them, most words with accents or several Chinese characters would be unknown.
MORE_CHARACTERS = [
    *map(chr, (*range(0xC0, 0x250), *range(0x370, 0x530))),
    *"中国豈更𠀀一\u0301\u0307ẞḱ",
]
MORE_TOKENS = [*MORE_CHARACTERS, *(f"##{character}" for character in MORE_CHARACTERS)]


# The vocabulary, `strip_accents` and `tokenize_chinese_chars`.
PUBLISHED = [("uncased", None, True), ("cased", None, True)]
PAIRS = [
    *PUBLISHED,
    ("uncased", False, True),
    ("cased", True, True),
    ("uncased", None, False),
    ("cased", None, False),
    ("uncased", False, False),
]


def name_of_pair(pair):
    return "-".join(map(str, pair))


@pytest.fixture(scope="module", params=nightly_except(PUBLISHED, PAIRS), ids=name_of_pair)
def pair(request, data_dir, tmp_path_factory):
    """Return our tokenizer and Hugging Face's tokenizer."""
    name, strip_accents, tokenize_chinese_chars = request.param
    lowercase = name == "uncased"
    published = Vocab.from_file(data_dir / "vocab" / f"bert-base-{name}-vocab.txt").tokens
    vocab = Vocab(list(dict.fromkeys([*published, *MORE_TOKENS])))
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    vocab.to_file(path)
    ours = Tokenizer(
        vocab,
        lowercase,
        compat="huggingface",
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )
    return ours, tokenizers.BertWordPieceTokenizer(
        str(path),
        lowercase=lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=tokenize_chinese_chars,
    )


@pytest.fixture(scope="module")
def corpus(data_dir):
    """Return the lines of each file, 41 MB in all."""
    return {name: text.split("\n") for name, text in _files(data_dir / "corpus")}


def _files(folder):
    yield "sample_text.txt", (folder / "sample_text.txt").read_text(encoding="utf-8")
    for path in sorted((folder / "wikitext-2").iterdir()):
        unpack = gzip.decompress if path.suffix == ".gz" else lzma.decompress
        yield path.name, unpack(path.read_bytes()).decode("utf-8")
    with tarfile.open(folder / "novels.tar.xz") as archive:
        for member in archive:
            if member.isfile():
                yield member.name, archive.extractfile(member).read().decode("utf-8")


def different(pair, texts):
    ours, theirs = pair
    found = []
    for i in range(0, len(texts), 2000):
        part = texts[i : i + 2000]
        expected = theirs._tokenizer.encode_batch_fast(part, add_special_tokens=False)
        actual = ours.tokenize(part)
        values = [ids for encoding in expected for ids in encoding.ids]
        lengths = [len(encoding.ids) for encoding in expected]
        same = np.array_equal(actual.flat_values, values)
        if not same or not np.array_equal(actual.row_lengths(), lengths):
            rows = zip(part, actual.to_list(), expected, strict=True)
            found += [text for text, row, encoding in rows if row != encoding.ids]
    return found


def test_lines_of_the_corpus_have_the_same_ids(pair, corpus):
    for name, lines in corpus.items():
        assert different(pair, lines[:: max(1, len(lines) // SAMPLE)]) == [], name
    assert sum(map(len, corpus.values())) > 200_000


@pytest.mark.long
@pytest.mark.parametrize("pair", PUBLISHED, ids=name_of_pair, indirect=True)
def test_all_lines_of_the_corpus_have_the_same_ids(pair, corpus):
    for name, lines in corpus.items():
        assert different(pair, lines) == [], name


@pytest.mark.parametrize(
    "step", [29, pytest.param(1, marks=pytest.mark.long)], ids=["sample", "all"]
)
def test_every_code_point_has_the_same_ids(pair, step):
    codes = [code for code in range(1, 0x110000, step) if not 0xD800 <= code < 0xE000]
    assert different(pair, [f"a{chr(code)}b {chr(code)}" for code in codes]) == []


def random_texts(number):
    draw = random.Random(0)
    alphabet = (
        "abcdeÀéñüßΑΣσςΐЖйЙÌĮ  .,!'-\t\u00ad\u200b\u0301\u0307İı東한국ﬁ½²\ue000\u2e43\u1734"
        "中国豈更𠀀\U0002b820\U000f0000\u166d"
    )
    for _ in range(number):
        letters = draw.choices([*alphabet, "[MASK]", "the ", "ing "], k=draw.choice((5, 20, 200)))
        yield "".join(letters)


def test_random_texts_have_the_same_ids(pair):
    assert different(pair, list(random_texts(2000))) == []


@pytest.mark.parametrize("split_special_tokens", [False, True])
def test_the_tokenizer_json_that_we_write_has_the_same_ids(pair, split_special_tokens, tmp_path):
    options = {**pair[0].options, "split_special_tokens": split_special_tokens}
    ours = Tokenizer(pair[0].vocab, **options)
    write_tokenizer(tmp_path, ours.vocab, ours.options)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.enable_padding(pad_id=ours.vocab.pad_id)
    texts = [*random_texts(1000), "[CLS] a [SEP][MASK]", "x" * 100, "x" * 101, ""]
    for texts_b in (None, texts[::-1]):
        rows = texts if texts_b is None else list(zip(texts, texts_b, strict=True))
        encodings = theirs.encode_batch(rows)
        batch = ours(texts, texts_b)
        np.testing.assert_array_equal(batch["tokens"], [e.ids for e in encodings])
        np.testing.assert_array_equal(batch["segments"], [e.type_ids for e in encodings])
        lengths = [sum(e.attention_mask) for e in encodings]
        np.testing.assert_array_equal(batch["valid_lens"], lengths)


OWN = [
    "[E1]",
    "[/E1]",
    "[e1]",
    "<é>",
    "@",
    "@@",
    "new york",
    "[unused1]",
    "東",
    "ab",
    "bc",
    "\u0301",
]


def test_special_tokens_of_the_user_have_the_same_ids_and_offsets(pair, tmp_path):
    vocab = Vocab(list(dict.fromkeys([*pair[0].vocab.tokens, *OWN])))
    own = [token for token in OWN if pair[0].options["tokenize_chinese_chars"] or token != "東"]
    ours = Tokenizer(vocab, **{**pair[0].options, "special_tokens": own})
    save_tokenizer(ours, tmp_path / "ours")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    draw = random.Random(0)
    texts = [*random_texts(300), "@@@ [[E1]]", "abcab bc", "[E1][e1]É[/E1]"]
    texts += ["".join(draw.choices([*texts[:30], *OWN, " ", "a"], k=9)) for _ in range(500)]
    encodings = theirs.encode_batch(texts, add_special_tokens=False)
    offsets = ours.with_offsets(texts)
    assert ours.tokenize(texts).to_list() == [e.ids for e in encodings]
    assert offsets["tokens"].to_list() == [e.ids for e in encodings]
    assert different_offsets(offsets, encodings) == []


@pytest.mark.parametrize("own", [[], ["[E1]", "[unused1]"]])
def test_transformers_reads_the_tokenizer_that_we_save_alone(data_dir, own, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    published = Vocab.from_file(data_dir / "vocab" / "bert-base-cased-vocab.txt").tokens
    ours = Tokenizer(
        Vocab([*published, "[E1]"]), lowercase=False, compat="huggingface", special_tokens=own
    )
    save_tokenizer(ours, tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = "[E1]A film[E1] [unused1] [MASK]!"
    encoded = theirs(text, return_offsets_mapping=True)
    assert ours(text)["tokens"].numpy().tolist() == [encoded["input_ids"]]
    assert len(theirs) == len(ours.vocab)
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_tokenizer(tmp_path / "theirs")
    assert again.vocab == ours.vocab
    assert sorted(again.options.pop("special_tokens", [])) == sorted(own)
    assert again.tokenize(text).to_list() == ours.tokenize(text).to_list()


def test_added_tokens_of_the_normalized_text_are_found_in_the_same_way(pair, tmp_path):
    ours, _ = pair
    added = ["url", "hash", "Hashtag", "New York", "中国", "Éa", "mask", "[sep]", "ß", "😀"]
    own = ["[E1]", " [X]"]
    new = [token for token in (*added, *own) if token not in ours.vocab]
    vocab = ours.vocab.with_tokens(new)
    options = {"special_tokens": own, "normalized_tokens": sorted(added, key=vocab.__getitem__)}
    ours = Tokenizer(vocab, **ours.options, **options)
    write_tokenizer(tmp_path, ours.vocab, ours.options)
    assert load_tokenizer(tmp_path).options == ours.options
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    parts = [*added, *own, "CURLs", "hashtags", "[MASK]", "[SEP]", "new\tyork", "e\u0301a", " "]
    draw = random.Random(0)
    texts = ["".join(draw.choices(parts, k=6)) for _ in range(SAMPLE)]
    encodings = theirs.encode_batch(texts, add_special_tokens=False)
    assert ours.tokenize(texts).to_list() == [encoding.ids for encoding in encodings]
    assert different_offsets(ours.with_offsets(texts), encodings) == []


def different_offsets(offsets, encodings):
    spans = zip(offsets["starts"].to_list(), offsets["ends"].to_list(), strict=True)
    actual = [list(zip(*both, strict=True)) for both in spans]
    rows = zip(actual, encodings, strict=True)
    return [(a, e.tokens, e.offsets) for a, e in rows if a != e.offsets]


def test_random_texts_have_the_same_offsets(pair):
    ours, theirs = pair
    texts = list(random_texts(300))
    encodings = theirs._tokenizer.encode_batch(texts, add_special_tokens=False)
    assert different_offsets(ours.with_offsets(texts), encodings) == []


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("truncation", ["only_first", "only_second", "longest_first"])
def test_pairs_are_truncated_in_the_same_way(pair, truncation, side):
    ours, theirs = pair
    ours = Tokenizer(ours.vocab, **ours.options, truncation_side=side)
    theirs._tokenizer.enable_truncation(16, strategy=truncation, direction=side)
    try:
        draw = random.Random(1)
        for _ in range(30):
            a, b = ("the cat " * draw.randrange(1, 5) + "sat" for _ in range(2))
            encoding = theirs.encode(a, b)
            batch = ours(a, b, max_len=16, truncation=truncation)
            length = batch["valid_lens"][0]
            assert batch["tokens"][0, :length].numpy().tolist() == encoding.ids
            assert batch["segments"][0, :length].numpy().tolist() == encoding.type_ids
    finally:
        theirs.no_truncation()
