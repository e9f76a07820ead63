"""`playground`: an HTML page that shows what a model predicts and what it attends to.

The page holds the weights, rounded to integers, or the answers of a model that is too large.

T tokens, L blocks, N heads, D hidden width, V vocabulary, R rows, M predictions.
"""

import base64
import gzip
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.formats.checkpoint import task_fields
from keras_bert_d2l.checkpoints.weights import stored_weights
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.files import write_text
from keras_bert_d2l.inference.heads import top_predictions
from keras_bert_d2l.inference.prediction import asked_model, model_at
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.pages import Page, render
from keras_bert_d2l.tasks.embed.predictions import embed
from keras_bert_d2l.text.normalization import normalization_of
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.unicode_gaps import stand_ins
from keras_bert_d2l.text.wordpiece_file import MAX_WORD_CHARACTERS
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import ConfigDict, PathLike, Tensor

_MOST_WEIGHTS = 30_000_000  # in a page of at most 40 MB
SCRIPTS = ("unpack.js", "tokenizer.js", "encoder.js", "answers.js", "drawing.js", "page.js")
MOST_TOKENS = 128  # per text; the views of the attention are unreadable beyond
_LARGEST = 127  # integers from -127 to 127
# 6 bits, for large tables of token vectors: after compression, they need a quarter less space.
_LARGEST_IN_LARGE_TABLE = 31
_LARGE_TABLE = 4_000_000  # weights
NUM_CANDIDATES = 10
_NO_WORD = -1  # of special tokens
_NOT_USED = {"pad_id", "pooler_activation", "pooler_norm", "use_one_hot_embeddings"}  # by the page


def playground(
    model: BERTModel | TaskModel | PathLike,
    path: PathLike | None = None,
    *,
    texts: Sequence[str] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Page:
    """Write a page to try a model and look inside it, without a server.

    The page is one HTML file that contains the model and needs no network. Type a text, click a
    word to mask it, and see the candidates for the word; the candidates after each block (the
    MLM head applied to its hidden states, the "logit lens"); the attention of every head; and the
    most similar of `texts`. Weights are rounded to 8 bits, with one scale per row, and large token
    embeddings to 6 bits.

    A model of more than 30 million weights is not put into the page. The page cannot compute
    relatives of BERT or tokenizers other than WordPiece either. The answers of all these models are
    computed in advance, for each of `texts` and each text with one word masked, with weights that
    are not rounded.

    Source: nostalgebraist 2020 (logit lens); Vig 2019 (the views of the attention).

    Args:
        model: The model, or the path or the name of its checkpoint. Without a trained MLM head,
            the page has no candidates.
        path: File to write. `None`: write no file; a notebook shows the result.
        texts: Texts to choose from and to compare with; required if the answers are computed in
            advance.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.

    Returns: the page.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, is quantized or cannot be used without
            `texts`, `texts` is not a list of texts, or the tokenizer is missing or does
            not match the model.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.playground(model, "page.html", texts=["the cat", "the cat sat"], tokenizer=tokenizer)
    ```
    """
    loaded = cast(BERTModel, model_at(model))
    asked: BERTModel | TaskModel
    asked, tokenizer = asked_model(loaded, BERTModel, embedder(), tokenizer=tokenizer)
    found = [] if texts is None else text_list("texts", texts)
    weights = page_weights(asked)
    num_weights = sum(value.size for value in weights.values())
    is_stored = num_weights > _MOST_WEIGHTS or not _computes(asked.bert_config, tokenizer)
    if is_stored and not found:
        raise ValueError(
            f"`texts` is required for a model of more than {_MOST_WEIGHTS / 1e6:.0f} million "
            "weights, a relative of BERT, and a tokenizer that is not plain WordPiece, because the "
            f"answers are computed in advance. Received: texts={shown(texts)}."
        )
    page = _page(asked, tokenizer, found, {} if is_stored else weights)
    if path is not None:
        write_text(path, page.html)
    return page


def _computes(config: BERTConfig, tokenizer: Tokenizer) -> bool:
    """Return whether the page can compute the answers of an architecture and a tokenizer."""
    is_known = tokenizer.vocab.kind == "wordpiece" and tokenizer.vocab.num_separators == 1
    is_known &= not tokenizer.options.get("normalized_tokens")
    return config.unlike_bert.keys() <= _NOT_USED and is_known


def _page(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer,
    texts: list[str],
    weights: dict[str, np.ndarray],
) -> Page:
    """Return the page of a model with these weights or, without weights, with stored answers."""
    is_embedder = not isinstance(model, BERTModel)
    data: ConfigDict = {
        "config": {**model.bert_config.to_dict(), "max_len": page_length(model)},
        "numWeights": model.count_params(),
        "hasHead": not is_embedder and "mlm" in model.usable_heads,
        "numCandidates": min(NUM_CANDIDATES, len(tokenizer.vocab)),
        "maskToken": tokenizer.vocab.to_tokens(tokenizer.vocab.mask_id),
        "pooling": model.pooling if is_embedder else "mean",
        "texts": texts,
    }
    if weights:
        data["tokenizer"] = tokenizer_data(tokenizer)
    else:
        data["answers"] = list(stored_answers(model, tokenizer, texts))
    if texts:
        vectors = embed(model, texts, tokenizer=tokenizer)
        weights = {**weights, "vectors": vectors}
    data["shapes"] = {name: value.shape for name, value in weights.items()}
    floats, integers = weight_bytes(weights)
    return render(
        "inspection/playground_page/page.html.jinja",
        "BERT playground",
        styles=["inspection/playground_page/page.css"],
        scripts=[f"inspection/playground_page/{name}" for name in SCRIPTS],
        data={
            "data": _packed(json.dumps(data).encode()),
            "floats": _packed(floats),
            "integers": _packed(integers),
        },
    )


def _packed(data: bytes) -> str:
    """Return compressed data in base64; `unpack.js` reads it."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode()


def page_length(model: BERTModel | TaskModel) -> int:
    """Return the maximum number of tokens per text on the page."""
    return min(model.bert_config.max_len, MOST_TOKENS)


def page_weights(model: BERTModel | TaskModel) -> dict[str, np.ndarray]:
    """Return the float32 weights of the encoder and, if it is trained, of the MLM head.

    Kernels are transposed, so the rows of all matrices are the outputs or the tokens.

    Raises:
        ValueError: The model is quantized.
    """
    weights = stored_weights(model, native.table(model.bert_config, task_fields(model)))
    found = {
        name: value.T if name.endswith("/kernel") else value
        for name, value in weights.items()
        if name.startswith(("encoder/", "mlm/"))
    }
    for name in {"mlm/bias", "mlm/mlp/logits/bias"} & found.keys():
        found[name] = found[name] + model.mlm.penalty.astype("float32")
    found.pop("encoder/pos_embedding", None)
    if model.encoder.pos_embedding is not None:  # learned or sinusoidal
        table = np.asarray(model.encoder.pos_embedding, "float32")[0]
        found["encoder/pos_embedding"] = table[: page_length(model)]
    return found


def rounded(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to integers with one scale per row.

    Args:
        weights: float32 `(rows, columns)`.

    Returns: the scales, float32 `(rows,)`, and the integers, int8 `(rows, columns)`, whose product
        approximates the weights.
    """
    largest = _LARGEST_IN_LARGE_TABLE if weights.size > _LARGE_TABLE else _LARGEST
    scales = np.maximum(np.abs(weights).max(axis=1), 1e-30).astype("float32") / largest
    return scales, np.rint(weights / scales[:, None]).astype("int8")


def weight_bytes(weights: Mapping[str, np.ndarray]) -> tuple[bytes, bytes]:
    """Return the vectors and the scales as float32, and the rounded matrices as int8."""
    floats, integers = [], []
    for value in weights.values():
        if value.ndim == 2:
            value, values = rounded(value)  # the scales take the place of the matrix
            integers.append(values.ravel())
        floats.append(value)
    return np.concatenate(floats).astype("<f4").tobytes(), np.concatenate(integers).tobytes()


def tokenizer_data(tokenizer: Tokenizer) -> ConfigDict:
    """Return the vocabulary and the options of a tokenizer."""
    vocab, options = tokenizer.vocab, tokenizer.options
    normalization = normalization_of(options, vocab.special_tokens)
    # Characters that Hugging Face's older Unicode tables treat as letters or as punctuation.
    unusual = stand_ins(normalization.compat, True)
    is_letter = {code: unicodedata.category(chr(new)) == "Co" for code, new in unusual.items()}
    return {
        "tokens": list(vocab.tokens),
        "standardTokens": list(vocab.special_tokens),
        "ownTokens": list(normalization.special_tokens),
        "lowercase": normalization.lowercase,
        "stripAccents": normalization.strips_accents,
        "splitChinese": normalization.tokenize_chinese_chars,
        "splitSpecials": normalization.split_special_tokens,
        "likeGoogle": normalization.compat == "google",
        "maxCharacters": MAX_WORD_CHARACTERS[normalization.compat],
        "letters": [code for code in is_letter if is_letter[code]],
        "punctuation": [code for code in is_letter if not is_letter[code]],
    }


def stored_answers(
    model: BERTModel | TaskModel, tokenizer: Tokenizer, texts: Sequence[str]
) -> Iterator[ConfigDict]:
    """Yield what the page shows for each text, and for each text with one word masked.

    Yields: `pieces`, a token and the number of its word for each of the T tokens; `attention`, the
        weights of the text without a mask, L lists of N T T integers from 0 to 255; and, with an
        MLM head, `lens`, the candidates of each block by the masked word and the position.
    """
    for text in texts:
        batch = {name: x.numpy() for name, x in tokenizer(text, max_len=page_length(model)).items()}
        ids = batch["tokens"][0, : int(batch["valid_lens"][0])]  # (T,)
        tokens = [tokenizer.vocab.spelled(int(token)) for token in ids]
        words = _word_numbers(tokenizer.vocab.continues[ids])
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


def _word_numbers(continues: np.ndarray) -> np.ndarray:
    """Return the number of the word of each token, int `(T,)`; -1 for the first and the last."""
    is_first = ~continues
    is_first[:2] = True
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
        hidden_states: L + 1 tensors `(R, T, D)`, the last one after the final normalization.
        places: Row and position of each prediction, int `(M, 2)`.
        ids: Ids of the text without masks, int `(T,)`.

    Returns: for each "word:position", L + 1 predictions.
    """
    found: dict[str, list[ConfigDict]] = {f"{r - 1}:{p}": [] for r, p in places.tolist()}
    originals = ids[places[:, 1]]  # (M,)
    norm = model.encoder.final_ln or (lambda X: X)
    for X in (*map(norm, hidden_states[:-1]), hidden_states[-1]):
        rows = ops.convert_to_numpy(X)[places[:, 0], places[:, 1]][None]  # (1, M, D)
        logits = model.mlm(rows, np.arange(len(places))[None])  # (1, M, V)
        scores, candidates = map(
            ops.convert_to_numpy, top_predictions(logits, min(NUM_CANDIDATES, logits.shape[-1]))
        )
        logits = ops.convert_to_numpy(ops.cast(logits[0], "float32"))
        of_original = np.take_along_axis(logits, originals[:, None], axis=1)  # (M, 1)
        ranks = 1 + (logits > of_original).sum(axis=1)
        for number, lines in enumerate(found.values()):
            names = [tokenizer.vocab.spelled(int(token)) for token in candidates[0, number]]
            shares = (float(f"{score:.4g}") for score in scores[0, number])
            lines.append(
                {"candidates": list(zip(names, shares, strict=True)), "rank": int(ranks[number])}
            )
    return found
