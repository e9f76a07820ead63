"""BPE of characters and the steps before other models, compared with Hugging Face's tokenizers."""

import gzip
import json
import random

import pytest
import tensorflow as tf

from keras_bert_d2l.text.definition import from_json, template
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except
from tests.peers.test_unigram import different, rare_texts
from tests.published import read

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")

SPECIALS = ["<pad>", "<unk>", "<bos>", "<eos>", "<mask>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(0x100)]
SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
DECODERS = [{**SPACE, "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]


def step(kind, **fields):
    return {"type": kind, **fields}


def split(pattern, behavior, invert=False):
    return step("Split", pattern=pattern, behavior=behavior, invert=invert)


def metaspace(scheme, is_split=True, mark="\u2581"):
    return step("Metaspace", replacement=mark, prepend_scheme=scheme, split=is_split)


BEHAVIORS = ("Removed", "MergedWithPrevious", "Contiguous", "MergedWithNext")
MARKS = [step("Punctuation", behavior=name) for name in BEHAVIORS]
STEPS = {  # the model, and the steps before it
    "gemma": ("BPE", [split({"String": " "}, "MergedWithPrevious")]),
    "generated-merges": ("BPE", []),
    "unigram-digits": ("Unigram", [step("Digits", individual_digits=True), metaspace("never")]),
    "unigram-marks": ("Unigram", [*MARKS[:2], metaspace("always", False)]),
    "words-marks": ("WordLevel", [step("WhitespaceSplit"), *MARKS[2:]]),
    "words-split": ("WordLevel", [split({"Regex": r"\p{N}+"}, "Removed"), step("Whitespace")]),
    "words-inverted": ("WordLevel", [split({"String": " "}, "MergedWithNext", True)]),
}


@pytest.fixture(scope="module")
def lines(data_dir):
    """Return lines to learn from, and other lines."""
    packed = (data_dir / "corpus" / "wikitext-2" / "wiki.valid.tokens.gz").read_bytes()
    wikitext = gzip.decompress(packed).decode("utf-8").split("\n")
    return wikitext[:1500], [*read(data_dir / "real/lines.json")["lines"], *wikitext[1500:2000]]


def generated(vocab):
    """Return all merges of two tokens to a third, as transformers generates them."""
    texts = [token for token in vocab if token not in {*SPECIALS, *BYTES}]
    places = {token: place for place, token in enumerate(texts)}
    halves = [(n, t[:k], t[k:]) for n, t in enumerate(texts) for k in range(1, len(t))]
    found = [(n, places[a], places[b]) for n, a, b in halves if a in places and b in places]
    return [[texts[a], texts[b]] for _, a, b in sorted(found)]


@pytest.fixture(scope="module", params=nightly_except(["gemma", "unigram-marks"], [*STEPS]))
def pair(request, lines):
    """Return our tokenizer, in a graph, and the one of tokenizers."""
    kind, steps = STEPS[request.param]
    options = {"fuse_unk": True, "byte_fallback": True} if kind == "BPE" else {}
    arguments = {} if kind == "Unigram" else {"unk_token": "<unk>", **options}
    theirs = tokenizers.Tokenizer(getattr(tokenizers.models, kind)(**arguments))
    is_words = kind == "WordLevel"
    theirs.normalizer = None if is_words else tokenizers.normalizers.Replace(" ", "\u2581")
    at_space = tokenizers.pre_tokenizers.Split("\u2581", "merged_with_next")
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace() if is_words else at_space
    options = {"unk_token": "<unk>"} if kind == "Unigram" else {}
    trainer = getattr(tokenizers.trainers, f"{kind.replace('BPE', 'Bpe')}Trainer")(
        vocab_size=2000, special_tokens=[*SPECIALS, *BYTES], show_progress=False, **options
    )
    theirs.train_from_iterator(lines[0], trainer)
    fields = json.loads(theirs.to_str())
    fields["added_tokens"] = [entry for entry in fields["added_tokens"] if entry["id"] < 5]
    ids = {token: theirs.token_to_id(token) for token in SPECIALS}
    fields["post_processor"] = template("<bos>", "<eos>", ids, 1, 1)
    fields["pre_tokenizer"] = step("Sequence", pretokenizers=steps)
    if request.param == "generated-merges":
        fields["model"]["merges"] = generated(fields["model"]["vocab"])
    if kind != "WordLevel":
        fields["decoder"] = step("Sequence", decoders=DECODERS)
        fields["model"]["byte_fallback"] = True
    vocab = Vocab(*from_json(fields, SPECIALS))
    signature = [tf.TensorSpec([None], tf.string)]
    ours = tf.function(Tokenizer(vocab).with_offsets, input_signature=signature, autograph=False)
    return ours, tokenizers.Tokenizer.from_str(vocab.to_text())


def test_published_lines_have_the_same_ids_and_offsets(pair, lines):
    assert different(pair, lines[1]) == []


def test_rare_characters_and_special_tokens_have_the_same_ids_and_offsets(pair):
    generator, texts = random.Random(2), []
    for text in [*rare_texts()][:2000]:
        place = generator.randint(0, len(text))
        added = generator.choice(["", "", "<mask>", " <eos> ", "<0x41>", "\u2581\u2581"])
        texts.append(text[:place] + added + text[place:])
    assert different(pair, texts) == []
