"""`Masking`: validated options of masked language modeling."""

import dataclasses
import math
import numbers
from typing import Literal, TypeAlias, get_args

from keras_bert_d2l.checks import (
    check_choice,
    check_integer,
    check_list,
    check_share,
    check_type,
)

Strategy: TypeAlias = Literal["token", "whole_word", "ngram", "span"]
Count: TypeAlias = Literal["round", "ceil", "bernoulli"]
STRATEGIES = get_args(Strategy)
COUNTS = get_args(Count)


@dataclasses.dataclass(frozen=True)
class Masking:
    """Options of masked language modeling: which tokens to predict and how to corrupt them.

    Strategies:

    - `"token"`: single tokens, all equally likely (Devlin et al. 2018, section 3.1).
    - `"whole_word"`: whole words. A word is a token and the `##` pieces that follow it
      (github.com/google-research/bert, create_pretraining_data.py).
    - `"ngram"`: one, two or three consecutive words, with probabilities proportional to 1/n and
      without overlap (github.com/tensorflow/models, official/nlp/data/create_pretraining_data.py).
    - `"span"`: 1 to 10 consecutive words, geometrically distributed with p = 0.2
      (Joshi et al. 2019, SpanBERT).

    The words of a row are visited in random order, and a word, n-gram or span starts at each until
    the row has enough predictions. A unit that exceeds the remaining count is shortened word by
    word. A single word that does not fit is skipped, so a row may have one or two predictions fewer
    than its count. No unit contains a special or an excluded token.

    Args:
        strategy: One of the strategies above.
        rate: Share of tokens to predict, in (0, 1).
        replace: Shares of the predicted tokens that are replaced with the mask token, replaced
            with a random token, and kept. `"ngram"` and `"span"` make this choice once per unit
            instead of once per token, as their sources do.
        count: How the number of predictions of a row is computed. `"round"`:
            `max(1, round(rate * n))` for n tokens including special tokens, halves rounded to even
            (BERT). `"ceil"`: `ceil(rate * n)` for n tokens that may be chosen (tf.text).
            `"bernoulli"`: every token that may be chosen counts with probability `rate`, so the
            number is binomially distributed (Hugging Face).
        exclude: Ids that, like the special tokens, are neither chosen nor inserted.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import keras_bert_d2l as kb
        >>> masking = kb.Masking("whole_word", rate=0.2)
        >>> masking.num_predictions(128)
        26
    """

    strategy: Strategy = "token"
    rate: float = 0.15
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    count: Count = "round"
    exclude: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, STRATEGIES)
        check_choice("count", self.count, COUNTS)
        check_share("rate", self.rate)
        shares = self.replace if isinstance(self.replace, tuple | list) else ()
        are_numbers = len(shares) == 3 and all(isinstance(x, numbers.Real) for x in shares)
        if not are_numbers or min(shares) < 0 or not math.isclose(sum(shares), 1):
            raise ValueError(
                "`replace` must be three shares that add up to 1: mask tokens, random tokens and "
                f"kept tokens. Received: replace={self.replace!r}."
            )
        check_list("exclude", self.exclude, "token ids")
        for token in self.exclude:
            check_integer("exclude", token, 0)

    @classmethod
    def of(cls, masking: "Strategy | Masking") -> "Masking":
        """Convert the name of a strategy to a `Masking`, and return a `Masking` unchanged."""
        if isinstance(masking, str):
            return cls(masking)
        check_type(
            "masking",
            masking,
            cls,
            f"Pass one of {', '.join(map(repr, STRATEGIES))} or a `Masking`.",
        )
        return masking

    def num_predictions(self, max_len: int) -> int:
        """Return P, the number of predictions needed for a full row of `max_len` tokens.

        For `count="bernoulli"` this is four standard deviations above the mean.
        """
        mean = self.rate * max_len
        if self.count == "ceil":
            return math.ceil(mean)
        if self.count == "bernoulli":
            return min(max_len, math.ceil(mean + 4 * math.sqrt(mean * (1 - self.rate))))
        return max(1, round(mean))
