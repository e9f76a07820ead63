"""Token ids of short texts outside of graphs, by the library `tokenizers`.

The library splits a short text in a fraction of the time of TensorFlow's operations. It answers
where its ids and offsets are the same. This module does not need TensorFlow.
"""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from keras_bert_d2l.text.unicode_gaps import disputed_characters
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.text.wordpiece_file import MAX_WORD_CHARACTERS, wordpiece_fields
from keras_bert_d2l.types import ConfigDict

if TYPE_CHECKING:
    from tokenizers import Encoding

# Characters in all texts of a call. TensorFlow's operations take less time for more.
MOST_CHARACTERS = 2000
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")


class QuickTokenizer:
    """Splits a few texts into the tokens that the operations of `Tokenizer` give, in less time.

    Args:
        vocab: The vocabulary.
        options: The options of WordPiece, as for `Tokenizer`.
    """

    def __init__(self, vocab: Vocab, options: ConfigDict) -> None:
        self._disputed: frozenset[str] = frozenset()
        # `Tokenizer` knows this spelling of the unknown token in all vocabularies of WordPiece.
        self._unknown = "" if GOOGLE_SPECIALS[1] in vocab.special_tokens else GOOGLE_SPECIALS[1]
        if vocab.kind == "wordpiece":
            fields = wordpiece_fields(vocab, **options)
            longest = MAX_WORD_CHARACTERS[options["compat"]]
            fields["model"]["max_input_chars_per_word"] = longest
            text = json.dumps(fields)
            self._disputed = frozenset(map(chr, disputed_characters()))
        else:
            text = vocab.to_text()
        self._tokenizer = _from_str(text)

    @classmethod
    def of(cls, vocab: Vocab, options: ConfigDict) -> Self | None:
        """Return the tokenizer, or None if the library is missing or does not know its tokens."""
        found = cls(vocab, options)
        if found._tokenizer is None or not found.knows(options.get("normalized_tokens", ())):
            return None
        return found

    def encode(self, texts: Sequence[str]) -> "list[Encoding]":
        """Tokenize texts, without special tokens."""
        if len(texts) == 1:  # a batch would start threads
            return [self._tokenizer.encode(texts[0], add_special_tokens=False)]
        return [*self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def knows(self, texts: Sequence[str]) -> bool:
        """Return whether the tokens of texts are those of TensorFlow's operations."""
        return not self._disputed or all(map(self._is_undisputed, texts))

    def _is_undisputed(self, text: str) -> bool:
        if self._unknown and self._unknown in text:
            return False
        if text.isascii():
            return True
        return self._disputed.isdisjoint(text) and not _PRIVATE.search(text)


def _from_str(text: str) -> Any:
    """Return the library's tokenizer, or None if there is none."""
    try:
        import tokenizers

        return tokenizers.Tokenizer.from_str(text)
    except Exception:  # of the library, for a vocabulary that it does not read, or ImportError
        return None


def are_short(texts: Sequence[str]) -> bool:
    """Return whether texts are so short that TensorFlow's operations take more time."""
    return sum(map(len, texts)) <= MOST_CHARACTERS
