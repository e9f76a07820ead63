"""Tiny models of BERT's relatives, each with a tokenizer of its kind."""

import functools

import keras_bert_d2l as kb
from keras_bert_d2l.text.definition import BYTES, TOKEN_FLAGS

WORDS = "the cat sat on a mat good bad film Paris is big Ada lives in London sport about".split()
SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 2, "max_len": 48}
PRESETS = {
    "roberta": ("roberta-base", {}),
    "xlm-roberta": ("xlm-roberta-base", {}),
    "modernbert": ("modernbert-base", {"local_attention": 8, "num_blks": 4}),
    "albert": ("albert-base", {"embedding_width": 8}),
    "mpnet": ("mpnet-base", {}),
    "deberta": ("deberta-base", {"relative_embeddings": 12}),
    "deberta-v3": ("deberta-v3-small", {"relative_embeddings": 8, "relative_max_distance": 32}),
}
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


@functools.cache
def tokenizer_of(name: str) -> kb.Tokenizer:
    """Return the tokenizer of a model in `PRESETS`: Unigram, WordPiece, or byte-level BPE."""
    if name == "mpnet":
        letters = sorted({letter for word in WORDS for letter in word.lower()})
        words = [word.lower() for word in WORDS if len(word) > 1]
        pieces = [*letters, *(f"##{letter}" for letter in letters), *words, "."]
        return kb.Tokenizer(kb.Vocab([*SPECIALS[:3], "[UNK]", *pieces, "<mask>"]))
    num_separators = 2 if name in ("roberta", "xlm-roberta") else 1
    learned = unigram if name in ("xlm-roberta", "albert", "deberta-v3") else byte_pairs
    return kb.Tokenizer(learned(num_separators))


def config_of(name: str, **fields: object) -> kb.BERTConfig:
    """Return a tiny configuration for `tokenizer_of(name)`."""
    preset, own = PRESETS[name]
    vocab = tokenizer_of(name).vocab
    fields = {**SIZES, **own, "vocab_size": len(vocab), "pad_id": vocab.pad_id, **fields}
    return kb.BERTConfig.preset(preset, **fields).with_dropout(0.0)


def bert_of(name: str, **fields: object) -> kb.BERTModel:
    """Return a tiny `BERTModel` with its tokenizer."""
    model = kb.BERTModel.from_bert_config(config_of(name, **fields))
    model.tokenizer = tokenizer_of(name)
    return model


def byte_pairs(num_separators: int) -> kb.Vocab:
    """Return a byte-level BPE vocabulary: all bytes, and `WORDS` with a space before them."""
    tokens, merges = [*SPECIALS, *BYTES], []
    for word in WORDS:
        symbols = ["Ġ", *word]
        while len(symbols) > 1:
            if symbols[:2] not in merges:
                merges.append(symbols[:2])
                tokens.append("".join(symbols[:2]))
            symbols[:2] = ["".join(symbols[:2])]
    model = {"type": "BPE", "num_tokens": len(tokens), "merges": merges}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    definition = {
        "model": model,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": template(num_separators),
        "decoder": byte_level,
        **added(),
    }
    return kb.Vocab([*tokens, "<mask>"], definition)


def unigram(num_separators: int = 2) -> kb.Vocab:
    """Return a Unigram vocabulary: letters, and `WORDS` with "▁" before them."""
    letters = sorted({letter for word in WORDS for letter in word})
    tokens = [*SPECIALS, "▁", *letters, *(f"▁{word}" for word in WORDS)]
    scores = [0.0] * len(SPECIALS) + [-float(8 - len(token)) for token in tokens[len(SPECIALS) :]]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    split = {"type": "WhitespaceSplit"}
    definition = {
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "byte_fallback": False,
            "num_tokens": len(tokens),
            "scores": scores,
        },
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, metaspace]},
        "post_processor": template(num_separators),
        "decoder": metaspace,
        **added(),
    }
    return kb.Vocab([*tokens, "<mask>"], definition)


def template(num_separators: int) -> dict[str, object]:
    """Return a post-processor: `<s> a </s>`, and with two separators `<s> a </s></s> b </s>`."""
    start, end = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("<s>", "</s>"))
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    ids = {"<s>": 0, "</s>": 2}
    return {
        "type": "TemplateProcessing",
        "single": [start, texts[0], end],
        "pair": [start, texts[0], *[end] * num_separators, texts[1], end],
        "special_tokens": {t: {"id": t, "ids": [n], "tokens": [t]} for t, n in ids.items()},
    }


def added() -> dict[str, object]:
    """Return the added tokens. `<mask>` includes the space before it (`lstrip`)."""
    flags = dict.fromkeys(TOKEN_FLAGS, False) | {"special": True}
    tokens = [{"content": token, **flags} for token in SPECIALS]
    return {
        "added_tokens": [*tokens, {"content": "<mask>", **flags, "lstrip": True}],
        "special_tokens": ["<pad>", "<unk>", "<s>", "</s>", "<mask>"],
    }
