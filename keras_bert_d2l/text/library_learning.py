"""Vocabularies of byte-level BPE and Unigram, which the libraries of these tokenizers learn.

The library tokenizers learns byte-level BPE and the library sentencepiece learns Unigram. Both
results depend only on the text. Unigram of tokenizers gives another vocabulary in each process,
because it adds numbers in the order of a hash table.
"""

import importlib
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from keras_bert_d2l.text.definition import BYTES, TOKEN_FLAGS, from_json, template
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.types import ConfigDict

_PAD, UNK, CLS, SEP, MASK = GOOGLE_SPECIALS
_SPECIAL = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, GOOGLE_SPECIALS))})\s*)+")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
_MOST_CHARACTERS = 64  # of a token of BPE: longer ones are rows of dashes
_MOST_SENTENCE_BYTES = 2**30  # sentencepiece skips longer ones
_COVERAGE = 0.9999  # of the characters of the text; others are unknown
# The sums of sentencepiece depend on their division among the threads, which must thus be fixed.
_NUM_THREADS = 16


def learn_byte_pairs(batches: Iterable[list[str]], size: int, lowercase: bool) -> Vocab:
    """Learn a vocabulary of byte-level BPE.

    Args:
        batches: The texts, in lists.
        size: Maximum size of the vocabulary.
        lowercase: Whether to lowercase the texts and strip their accents.

    Raises:
        ImportError: The library tokenizers is missing.
        ValueError: The texts have no word twice.
    """
    tokenizers = _library("tokenizers")
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    options: ConfigDict = {"vocab_size": size, "min_frequency": 2, "show_progress": False}
    options |= {"special_tokens": [*GOOGLE_SPECIALS], "initial_alphabet": [*BYTES]}
    options["max_token_length"] = _MOST_CHARACTERS
    trainer = tokenizers.trainers.BpeTrainer(**options)
    learned.train_from_iterator(_texts(batches, lowercase), trainer)
    model = json.loads(learned.to_str())["model"]
    if not model["merges"]:
        raise ValueError("`corpus` must contain words that occur at least twice. Received: none.")
    fields = {"model": model, "pre_tokenizer": _BYTE_LEVEL, "decoder": _BYTE_LEVEL}
    return _vocab(fields, [], lowercase, _BYTE_LEVEL)


def learn_unigram(batches: Iterable[list[str]], size: int, lowercase: bool) -> Vocab:
    """Learn a vocabulary of Unigram, with the arguments of `learn_byte_pairs`.

    Raises:
        ImportError: The library sentencepiece is missing.
        ValueError: The library cannot learn that many tokens from the texts.
    """
    options: ConfigDict = {"model_type": "unigram", "vocab_size": size, "hard_vocab_limit": False}
    options |= {"normalization_rule_name": "nmt_nfkc", "character_coverage": _COVERAGE}
    options |= {"max_sentence_length": _MOST_SENTENCE_BYTES, "num_threads": _NUM_THREADS}
    options |= {"user_defined_symbols": [MASK], "minloglevel": 2}
    for number, role in enumerate(("pad", "unk", "bos", "eos")):
        options |= {f"{role}_id": number, f"{role}_piece": GOOGLE_SPECIALS[number]}
    train, data = _library("sentencepiece").SentencePieceTrainer.train, io.BytesIO()
    try:
        train(sentence_iterator=_texts(batches, lowercase), model_writer=data, **options)
    except RuntimeError as error:
        raise ValueError(
            f"`corpus` must have enough text for {size} tokens of Unigram. Received from "
            f"sentencepiece: {error!s:.300} Pass more text or another `size`."
        ) from error
    fields = sentencepiece_fields(data.getvalue(), "plain", {})
    fields["model"]["unk_id"] = GOOGLE_SPECIALS.index(UNK)
    return _vocab(fields, fields["normalizer"]["normalizers"], lowercase)


def _vocab(
    fields: ConfigDict, normalizers: list[ConfigDict], lowercase: bool, *processors: ConfigDict
) -> Vocab:
    """Return a vocabulary with BERT's special tokens and its frames around texts."""
    before = [{"type": kind} for kind in ("NFD", "StripAccents", "Lowercase")] if lowercase else []
    flags = dict.fromkeys(TOKEN_FLAGS, False) | {"special": True}
    ids = {token: number for number, token in enumerate(GOOGLE_SPECIALS)}
    frame = [*processors, template(CLS, SEP, ids, 1, segment=1)]
    # The mask replaces a word with the space before it, which `lstrip` removes.
    added = [{"id": n, "content": t, **flags, "lstrip": t == MASK} for t, n in ids.items()]
    fields["normalizer"] = {"type": "Sequence", "normalizers": [*before, *normalizers]}
    fields["post_processor"] = {"type": "Sequence", "processors": frame}
    return Vocab(*from_json(fields | {"added_tokens": added}))


def _texts(batches: Iterable[list[str]], lowercase: bool) -> Iterator[str]:
    """Yield texts without special tokens, which are not learned."""
    for text in (_SPECIAL.sub(" ", text) for texts in batches for text in texts):
        characters = unicodedata.normalize("NFD", text) if lowercase else ""
        kept = (c for c in characters if unicodedata.category(c) != "Mn")
        yield "".join(kept).lower() if lowercase else text


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"Learning this kind of vocabulary requires {name}: "
            '`pip install "keras-bert-d2l[vocab]"`.'
        ) from error
