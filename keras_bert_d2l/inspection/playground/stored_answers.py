"""Answers for given texts, computed in advance for models that are too large for a page.

T tokens, L blocks, N heads, D hidden width, V vocabulary, R rows, M predictions.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from keras import ops

from keras_bert_d2l.inference.pretraining.fill_mask import top_predictions
from keras_bert_d2l.inspection.playground.model_data import page_length
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import TextEmbedder
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import ConfigDict, Tensor

NUM_CANDIDATES = 10
_NO_WORD = -1  # of special tokens
_PIECE = "##"


def stored_answers(
    model: BERTModel | TextEmbedder, tokenizer: Tokenizer, texts: Sequence[str]
) -> Iterator[ConfigDict]:
    """Yield what the page shows for each text, and for each text with one word masked.

    Yields: `pieces`, a token and the number of its word for each of the T tokens; `attention`, the
        weights of the text without a mask, L lists of N T T integers from 0 to 255; and, with an
        MLM head, `lens`, the candidates of each block by the masked word and the position.
    """
    for text in texts:
        batch = {name: x.numpy() for name, x in tokenizer(text, max_len=page_length(model)).items()}
        ids = batch["tokens"][0, : int(batch["valid_lens"][0])]  # (T,)
        tokens = tokenizer.vocab.to_tokens(ids)
        words = _word_numbers(tokens)
        # Row 0 has no mask, and row r has masks in place of the word r - 1.
        is_masked = words == np.arange(_NO_WORD, words.max() + 1)[:, None]  # (R, T)
        is_masked[0] = False
        rows = np.where(is_masked, tokenizer.vocab.mask_id, ids).astype("int32")
        outputs = model.encoder(
            rows, np.zeros_like(rows), return_hidden_states=True, return_attention=True
        )
        weights = [np.rint(255 * ops.convert_to_numpy(block[0])) for block in outputs["attention"]]
        answer: ConfigDict = {
            "pieces": list(zip(tokens, words.tolist(), strict=True)),
            "attention": [block.astype(int).ravel().tolist() for block in weights],
        }
        if isinstance(model, BERTModel) and "mlm" in model.usable_heads:
            is_masked[0] = True  # without a mask, the candidates of every position
            answer["lens"] = _lens(
                model, tokenizer, outputs["hidden_states"], np.argwhere(is_masked), ids
            )
        yield answer


def _word_numbers(tokens: Sequence[str]) -> np.ndarray:
    """Return the number of the word of each token, int `(T,)`; -1 for the first and the last."""
    is_first = [not token.startswith(_PIECE) or token == _PIECE for token in tokens]
    words = np.cumsum(is_first) - 2
    words[-1] = _NO_WORD
    return words


def _lens(
    model: BERTModel,
    tokenizer: Tokenizer,
    hidden_states: Sequence[Tensor],
    places: np.ndarray,
    ids: np.ndarray,
) -> dict[str, list[ConfigDict]]:
    """Return the candidates of the MLM head after every block.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        hidden_states: L + 1 tensors `(R, T, D)`.
        places: Row and position of each prediction, int `(M, 2)`.
        ids: Ids of the text without masks, int `(T,)`.

    Returns: for each "word:position", L + 1 predictions.
    """
    found: dict[str, list[ConfigDict]] = {f"{r - 1}:{p}": [] for r, p in places.tolist()}
    originals = ids[places[:, 1]]  # (M,)
    for X in hidden_states:
        X = X if model.encoder.final_ln is None else model.encoder.final_ln(X)
        rows = ops.convert_to_numpy(X)[places[:, 0], places[:, 1]][None]  # (1, M, D)
        logits = model.mlm(rows, np.arange(len(places))[None])  # (1, M, V)
        scores, candidates = map(
            ops.convert_to_numpy, top_predictions(logits, min(NUM_CANDIDATES, logits.shape[-1]))
        )
        logits = ops.convert_to_numpy(ops.cast(logits[0], "float32"))
        of_original = np.take_along_axis(logits, originals[:, None], axis=1)  # (M, 1)
        ranks = 1 + (logits > of_original).sum(axis=1)
        for number, lines in enumerate(found.values()):
            names = tokenizer.vocab.to_tokens(candidates[0, number])
            shares = (float(f"{score:.4g}") for score in scores[0, number])
            lines.append(
                {
                    "candidates": list(zip(names, shares, strict=True)),
                    "rank": int(ranks[number]),
                }
            )
    return found
