"""Sample examples, mask them as in training, count the masks, and convert some to text.

R: rows, T: tokens in a row.
"""

import dataclasses

import numpy as np

from keras_bert_d2l.data.pretraining.masking import Masking, mask_tokens
from keras_bert_d2l.data.pretraining.packing import Layout, lay_out
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Examples
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.vocab import Vocab

LABELS = {"nsp": ("not next", "next"), "sop": ("swapped", "in order"), "none": ("", "")}
_PREDICTED = ("masked", "replaced", "kept")
_NUM_TOKENS = 1 << 19  # enough to measure the mask rate to within 0.1 %
_ROWS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class Word:
    """A token of an example, as text.

    Attributes:
        seen: The token that the model sees, without `##`.
        original: The token before masking, without `##`.
        kind: `"text"` or `"special"`; for predicted tokens `"masked"`, `"replaced"` or `"kept"`.
        starts_word: Whether a space precedes it.
    """

    seen: str
    original: str
    kind: str
    starts_word: bool


@dataclasses.dataclass(frozen=True)
class Example:
    """A row without its padding.

    Attributes:
        words: Its tokens.
        label: The label of the pair as text, or an empty string if there is none.
    """

    words: tuple[Word, ...]
    label: str


def mask_sample(
    store: TokenStore,
    examples: Examples,
    options: ExampleOptions,
    *,
    vocab: Vocab,
    masking: Masking,
    num_shown: int,
) -> tuple[int, dict[str, int], tuple[Example, ...]]:
    """Mask half a million tokens of random examples, and convert some examples to text.

    Returns:
        The number of these tokens; how many are `"masked"`, `"replaced"` and `"kept"`; and
        `num_shown` examples.
    """
    random = np.random.default_rng((options.seed, 1))
    num_rows = max(num_shown, _NUM_TOKENS // options.max_len)
    order = random.permutation(len(examples))[:num_rows]
    stored = np.asarray(store.tokens)
    num_tokens, counts = 0, dict.fromkeys(_PREDICTED, 0)
    shown: list[Example] = []
    for first in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[first : first + _ROWS_AT_ONCE]
        splits = np.arange(len(rows) + 1)
        layout = lay_out(stored, examples, rows, splits, vocab=vocab, max_len=options.max_len)
        keys = random.integers(1 << 63, size=len(rows))
        seen, kinds = _mask(layout, keys, vocab, masking)
        num_tokens += int(layout.valid_lens.sum())
        for kind in _PREDICTED:
            counts[kind] += int(np.sum(kinds == kind))
        for row in range(min(len(rows), num_shown - len(shown))):
            label = LABELS[options.objective][layout.labels[row, 0]]
            shown.append(Example(_words(layout, row, seen, kinds, vocab), label))
    return num_tokens, counts, tuple(shown)


def _mask(
    layout: Layout, keys: np.ndarray, vocab: Vocab, masking: Masking
) -> tuple[np.ndarray, np.ndarray]:
    """Return the corrupted tokens and the kind of each token, both `(R, T)`."""
    num_predictions = masking.num_predictions(layout.tokens.shape[1])
    masked = mask_tokens(
        layout.tokens,
        layout.valid_lens,
        keys,
        vocab=vocab,
        masking=masking,
        num_predictions=num_predictions,
    )
    seen, positions, _, weights = (tensor.numpy() for tensor in masked)
    row, slot = np.nonzero(weights)
    is_predicted = np.zeros(seen.shape, bool)
    is_predicted[row, positions[row, slot]] = True
    is_special = np.isin(layout.tokens, [vocab.cls_id, vocab.sep_id])
    kinds = np.select(
        [~is_predicted & is_special, ~is_predicted, seen == layout.tokens, seen == vocab.mask_id],
        ["special", "text", "kept", "masked"],
        "replaced",
    )
    return seen, kinds


def _words(
    layout: Layout, row: int, seen: np.ndarray, kinds: np.ndarray, vocab: Vocab
) -> tuple[Word, ...]:
    words = []
    for n in range(layout.valid_lens[row]):
        before, after = vocab.tokens[layout.tokens[row, n]], vocab.tokens[seen[row, n]]
        starts_word = not before.startswith("##") or before == "##"
        before, after = (token.removeprefix("##") or token for token in (before, after))
        words.append(Word(after, before, str(kinds[row, n]), starts_word))
    return tuple(words)
