"""The `tokenizer.json` of a WordPiece tokenizer, which the library tokenizers reads.

Source: github.com/huggingface/tokenizers.
"""

from collections.abc import Sequence

from keras_bert_d2l.text.definition import TOKEN_FLAGS, template
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

# Longer words become the unknown token.
MAX_WORD_CHARACTERS = {"google": 200, "huggingface": 100}
# The parts that our tokenizer cannot vary.
FIXED: dict[str, dict[str, object]] = {
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
OPTIONS = {  # names in the normalizer, and those of the options of `Tokenizer`
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


def wordpiece_fields(
    vocab: Vocab,
    *,
    split_special_tokens: bool,
    special_tokens: Sequence[str] = (),
    normalized_tokens: Sequence[str] = (),
    **options: object,
) -> ConfigDict:
    """Return the fields of the file. The arguments are those of `Tokenizer`."""
    # An added token is recognized in a text. Tokens that are not added remain in the vocabulary.
    special = [*vocab.special_tokens, *special_tokens]
    whole = [] if split_special_tokens else special
    flags = dict.fromkeys(TOKEN_FLAGS, False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocab[token],
                "content": token,
                **flags,
                "normalized": token in normalized_tokens,
                "special": token in special,
            }
            for token in sorted({*whole, *normalized_tokens}, key=vocab.__getitem__)
        ],
        "normalizer": {
            **FIXED["normalizer"],
            **{theirs: options[ours] for theirs, ours in OPTIONS.items()},
        },
        "pre_tokenizer": FIXED["pre_tokenizer"],
        "post_processor": frame_of(vocab),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            **FIXED["model"],
            "unk_token": vocab.special_tokens[1],
            "vocab": {token: number for number, token in enumerate(vocab.tokens)},
        },
    }


def frame_of(vocab: Vocab) -> ConfigDict:
    """Return the part of the file that adds the special tokens to a text."""
    cls, sep = vocab.special_tokens[2:4]
    ids = {token: vocab[token] for token in (cls, sep)}
    return template(cls, sep, ids, vocab.num_separators, segment=1)
