"""Unigram tokenizers in the graph compared with those of tokenizers and transformers."""

import base64
import gzip
import json
import lzma
import random
import unicodedata

import pytest
import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer
from keras_bert_d2l.text.definition import from_json
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")
sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece: make test-peers")

SPECIALS = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]"]
NUM_RARE = 5000
# The type of the model, SentencePiece's rules, options and changes of the file.
RUNS = {"replace": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
CASES = {
    "xlm-roberta": ("xlm-roberta", "nmt_nfkc", {}, {}),
    "xlm-roberta-cf": ("xlm-roberta", "nmt_nfkc_cf", {}, {}),
    "camembert": ("camembert", "nmt_nfkc", {}, {}),
    "albert": ("albert", "nmt_nfkc", {}, {}),
    "albert-cased": ("albert", "nmt_nfkc", {"do_lower_case": False}, {}),
    "albert-accents": ("albert", "nmt_nfkc", {"keep_accents": True}, {}),
    "deberta": ("deberta-v2", "nmt_nfkc", {}, {}),
    "deberta-splits": ("deberta-v2", "nmt_nfkc_cf", {"split_by_punct": True}, {}),
    **{
        f"{form}-{scheme}": (
            "xlm-roberta",
            "nmt_nfkc",
            {},
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": form}, STRIP, RUNS["replace"]],
                },
                "pre_tokenizer": {
                    "type": "Metaspace",
                    "replacement": "▁",
                    "prepend_scheme": scheme,
                    "split": split,
                },
            },
        )
        for form, scheme, split in (
            ("NFC", "first", True),
            ("NFKC", "first", False),
            ("NFD", "never", True),
            ("NFKD", "always", False),
        )
    },
}


@pytest.fixture(scope="module")
def lines(data_dir):
    """Return the lines of WikiText-2's training data, and those of the other two files."""
    folder = data_dir / "corpus" / "wikitext-2"
    train = lzma.decompress((folder / "wiki.train.tokens.xz").read_bytes()).decode()
    others = [
        gzip.decompress((folder / f"wiki.{part}.tokens.gz").read_bytes()).decode()
        for part in ("valid", "test")
    ]
    return train.split("\n"), "".join(others).split("\n")


@pytest.fixture(scope="module")
def models(lines, tmp_path_factory):
    """Return functions that train SentencePiece, each once."""
    folder, made = tmp_path_factory.mktemp("models"), {}
    albert = {
        **dict.fromkeys(("bos_id", "eos_id"), -1),
        "pad_id": 0,
        "unk_id": 1,
        "control_symbols": SPECIALS[5:],
        "user_defined_symbols": ["(", ")", "-"],
    }

    deberta = albert | {
        "pad_piece": "[PAD]",
        "unk_piece": "[UNK]",
        "control_symbols": SPECIALS[5:7],
    }

    def model(model_type, rules):
        options = {"albert": albert, "deberta-v2": deberta}.get(model_type, {})
        name = folder / f"{rules}-{model_type if options else ''}"
        if name not in made:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.strip() for line in lines[0][:6000] if line.strip()),
                model_prefix=str(name),
                vocab_size=4000,
                normalization_rule_name=rules,
                num_threads=1,
                minloglevel=2,
                **options,
            )
            made[name] = name.with_suffix(".model").read_bytes()
        return made[name]

    return model


@pytest.fixture(scope="module", params=nightly_except(["deberta"], [*CASES]))
def pair(request, models):
    """Return our tokenizer, in a graph, and the one of tokenizers."""
    model_type, rules, options, changes = CASES[request.param]
    fields = sentencepiece_fields(models(model_type, rules), model_type, options) | changes
    fields["added_tokens"][-1].setdefault("id", len(fields["model"]["vocab"]))
    if changes:
        fields["added_tokens"][-1]["normalized"] = True
    vocab = Vocab(*from_json(fields))
    signature = [tf.TensorSpec([None], tf.string)]
    ours = tf.function(Tokenizer(vocab).with_offsets, input_signature=signature, autograph=False)
    return ours, tokenizers.Tokenizer.from_str(vocab.to_text())


def different(pair, texts):
    ours, theirs = pair
    found = []
    for i in range(0, len(texts), 500):
        part = texts[i : i + 500]
        rows = {name: values.to_list() for name, values in ours(tf.constant(part)).items()}
        encodings = theirs.encode_batch(part, add_special_tokens=False)
        for row, encoding in enumerate(encodings):
            offsets = [*zip(rows["starts"][row], rows["ends"][row], strict=True)]
            if (rows["tokens"][row], offsets) != (encoding.ids, encoding.offsets):
                found.append(part[row])
    return found


def rare_texts():
    generator = random.Random(0)
    codes = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Co")]
    odd = [
        code
        for code in codes
        if unicodedata.category(chr(code))[0] in "MZC" or unicodedata.decomposition(chr(code))
    ]
    low, plain = [code for code in codes if code < 0x600], [*map(ord, " a\u0301\u0323▁`'-")]
    for _ in range(NUM_RARE):
        pools = [generator.choice([codes, odd, low]), odd, low, plain]
        length = generator.randint(1, 30)
        yield "".join(chr(generator.choice(generator.choice(pools))) for _ in range(length))


def test_rare_characters_have_the_same_ids_and_offsets(pair):
    assert different(pair, [*rare_texts()]) == []


def test_wikitext_has_the_same_ids_and_offsets(pair, lines):
    assert different(pair, lines[1]) == []


def test_special_tokens_in_a_text_have_the_same_ids_and_offsets(pair, lines):
    generator, texts = random.Random(1), []
    for text in [*rare_texts()][:1500] + lines[1][:500]:
        for _ in range(generator.randint(1, 3)):
            place = generator.randint(0, len(text))
            spaces = generator.choice(["", " ", "  ", "\u2003"])
            text = text[:place] + spaces + generator.choice(SPECIALS) + text[place:]
        texts.append(text)
    assert different(pair, texts) == []


def test_tricky_lines_have_the_same_ids_and_offsets(pair, data_dir):
    text = (data_dir / "golden" / "tokenization" / "tricky_bert.jsonl").read_text(encoding="utf-8")
    assert different(pair, [json.loads(line)["text"] for line in text.splitlines()]) == []


@pytest.mark.parametrize("kind", ["XLMRoberta", "Camembert"])
def test_a_model_of_sentencepiece_is_read_as_by_transformers(kind, models, lines, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    converters = pytest.importorskip("transformers.convert_slow_tokenizer")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(models("other", "nmt_nfkc"))
    options = {"tokenizer_class": f"{kind}Tokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    vocab, options, unsupported = read_tokenizer(tmp_path)
    assert (options, unsupported) == ({}, "")
    file = str(tmp_path / "sentencepiece.bpe.model")
    model = sentencepiece.SentencePieceProcessor(model_file=file)
    pieces = [(model.id_to_piece(n), model.get_score(n)) for n in range(len(model))]
    shifted = getattr(converters, f"{kind}Converter").convert_from_spm(vocab=pieces)
    (normalizer,) = vocab.definition["normalizer"]["normalizers"]
    charsmap = base64.b64decode(normalizer["precompiled_charsmap"])
    theirs = getattr(transformers, f"{kind}Tokenizer")(
        **shifted, _spm_precompiled_charsmap=charsmap
    )
    texts = [line for line in lines[1][:300] if "<" not in line]
    assert [*vocab] == [piece for piece, _ in shifted["vocab"]]
    ids = theirs(texts, add_special_tokens=False)["input_ids"]
    assert Tokenizer(vocab).tokenize(texts).to_list() == ids
