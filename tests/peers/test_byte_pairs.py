"""Byte-level BPE compared with Hugging Face's tokenizers: ids, offsets, pairs, texts and files."""

import gzip
import json
import random

import pytest

from keras_bert_d2l.text.definition import from_json
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")

ROBERTA, MODERNBERT = "roberta", "modernbert"
CHANGES = {  # normalizers that change characters, with their arguments
    "lowercase": [["Lowercase"]],
    "accents": [["NFD"], ["StripAccents"], ["Lowercase"], ["NFC"]],
    "replace": [
        ["Replace", "ll", ""],
        ["Replace", " ", "  "],
        ["Strip"],
        ["Replace", "e", "\u00e9a"],
    ],
}
VARIANTS = (ROBERTA, MODERNBERT, "prefix-space", "ignore-merges", "NFD", "NFKC", "NFKD", "no-regex")
VARIANTS += (*CHANGES, "accents-prefix-space")
PIECES = "  | |\n|\t|\u00a0|\r\n|'s|'ll|'re|[MASK]|<mask>|</s>|the | of|é|1|२|\x00".split("|")
MARKS = "\u0301\u0323\u3099\u11a8\u0334"
VOCAB_SIZE = 2000


@pytest.fixture(scope="module")
def lines(data_dir):
    packed = (data_dir / "corpus" / "wikitext-2" / "wiki.valid.tokens.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8").split("\n")


@pytest.fixture(scope="module", params=nightly_except([ROBERTA, MODERNBERT, "replace"], VARIANTS))
def pair(request, lines):
    """Return our tokenizer and that of tokenizers."""
    theirs = trained(request.param, lines)
    return Tokenizer(Vocab(*from_json(json.loads(theirs.to_str())))), theirs


def trained(variant, lines):
    found = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=variant == "ignore-merges"))
    adds_space = variant.endswith("prefix-space")
    is_modern = variant in (MODERNBERT, "ignore-merges") or variant.startswith("NF")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    found.pre_tokenizer = byte_level(adds_space, use_regex=True)
    found.decoder = tokenizers.decoders.ByteLevel()
    specials = (
        ["[CLS]", "[PAD]", "[SEP]", "[UNK]"] if is_modern else ["<s>", "<pad>", "</s>", "<unk>"]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=specials,
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator(lines, trainer)
    found.pre_tokenizer = byte_level(adds_space, use_regex=variant != "no-regex")
    token = tokenizers.AddedToken
    cls, sep = (specials[0], 0), (specials[2], 2)
    if is_modern:
        form = variant if variant.startswith("NF") else "NFC"
        found.normalizer = getattr(tokenizers.normalizers, form)()
        found.add_tokens([token(" " * n, normalized=True) for n in range(24, 1, -1)])
        found.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[cls, sep]
        )
    else:
        found.post_processor = tokenizers.processors.RobertaProcessing(sep, cls, True, adds_space)
    if steps := CHANGES.get(variant.removesuffix("-prefix-space")):
        made = [getattr(tokenizers.normalizers, name)(*arguments) for name, *arguments in steps]
        found.normalizer = tokenizers.normalizers.Sequence(made)
        found.add_tokens([token("The", normalized=True), token("of", lstrip=True)])
    found.add_special_tokens([token("[MASK]" if is_modern else "<mask>", lstrip=True)])
    return found


def random_texts(number):
    draw = random.Random(0)
    for _ in range(number):
        letters = []
        for _ in range(draw.choice((5, 20, 60))):
            kind = draw.randrange(14)
            code = draw.randrange(0x110000) if kind == 0 else draw.randrange(0x20, 0x3000)
            rare = chr(code) if not 0xD800 <= code < 0xE000 else "a"
            plain = chr(code % 0x60 + 0x20)
            choices = [rare] * 4 + [plain] * 3 + [draw.choice(MARKS)] + [draw.choice(PIECES)] * 6
            letters.append(choices[kind])
        yield "".join(letters)


def different(pair, texts):
    """Return the texts whose ids or offsets differ."""
    ours, theirs = pair
    found = []
    for i in range(0, len(texts), 1000):
        part = texts[i : i + 1000]
        rows = zip(*(values.to_list() for values in ours.with_offsets(part).values()), strict=True)
        encodings = theirs.encode_batch(part, add_special_tokens=False)
        for text, (ids, starts, ends), one in zip(part, rows, encodings, strict=True):
            if ids != one.ids or list(zip(starts, ends, strict=True)) != one.offsets:
                found.append(text)
    return found


@pytest.mark.parametrize(
    "number", [500, pytest.param(5000, marks=pytest.mark.long)], ids=["sample", "all"]
)
def test_random_texts_have_the_same_ids_and_offsets(pair, number):
    assert different(pair, list(random_texts(number))) == []


def test_lines_of_a_corpus_have_the_same_ids_and_offsets(pair, lines):
    assert different(pair, lines) == []


def test_golden_lines_have_the_same_ids_and_offsets_and_word_ids(pair, data_dir):
    texts, split = [], []
    for name in ("tricky_bert", "pairs_truncated", "word_alignment"):
        text = (data_dir / "golden" / "tokenization" / f"{name}.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        texts += [row[key] for row in rows for key in ("text", "text_a", "text_b") if key in row]
        split += [row["words"] for row in rows if "words" in row]
    assert different(pair, texts + [" ".join(words) for words in split]) == []

    ours, theirs = pair
    spaced = [" " * (n > 0) + word for words in split for n, word in enumerate(words)]
    encodings = theirs.encode_batch(spaced, add_special_tokens=False)
    assert ours.tokenize_words(split).to_list() == [one.ids for one in encodings]


@pytest.mark.parametrize(
    "step", [97, pytest.param(1, marks=pytest.mark.long)], ids=["sample", "all"]
)
def test_every_code_point_has_the_same_ids_and_offsets(pair, step):
    codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
    assert different(pair, [f"a{chr(c)}b {chr(c)}1{chr(c)}\u0334" for c in codes]) == []


def test_pairs_and_texts_and_files_are_the_same(pair, tmp_path):
    ours, theirs = pair
    texts = [*random_texts(200), "", "a"]
    others = texts[::-1]
    encodings = theirs.encode_batch(list(zip(texts, others, strict=True)))
    batch = ours(texts, others)
    rows = [
        row[:n]
        for row, n in zip(batch["tokens"].numpy().tolist(), batch["valid_lens"], strict=True)
    ]
    assert rows == [one.ids for one in encodings]

    vocab = ours.vocab
    framing = (vocab.pad_id, vocab.cls_id, vocab.sep_id)
    kept = [[number for number in row if number not in framing] for row in rows]
    expected = [theirs.decode(row, skip_special_tokens=False) for row in kept]
    assert [text.decode() for text in ours.detokenize(rows).numpy()] == expected

    vocab.to_file(tmp_path / "tokenizer.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert json.loads(again.to_str()) == json.loads(theirs.to_str())
