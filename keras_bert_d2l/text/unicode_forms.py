"""Unicode normalization forms as TensorFlow ops, as in Hugging Face's tokenizers.

N: characters of all texts.
"""

import tensorflow as tf

from keras_bert_d2l.text.definition import FORMS
from keras_bert_d2l.text.normalization import (
    decode,
    encode,
    rows_of_values,
    split_at,
    tensorflow_text,
)
from keras_bert_d2l.text.unicode_gaps import NUM_CODES, character_class, inert_characters

STABLE = {  # characters that no text in these ranges changes or combines with
    form: r"[\x{0}-\x{2ff}]*" if form == "NFC" else r"[\x{0}-\x{7f}]*" for form in FORMS
}


def normalize(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Bring texts into a normalization form, as Hugging Face's tokenizers do.

    Their tables are older than those of TensorFlow. Characters that they do not know neither change
    nor move, so the texts before and after such a character are normalized separately.

    Args:
        texts: Strings `(B,)`.
        form: One of `FORMS`.

    Returns:
        Strings `(B,)`.
    """
    inert = f"[{character_class(inert_characters())}]"
    places = tf.where(~tf.strings.regex_full_match(texts, STABLE[form]))

    def changed() -> tf.Tensor:
        some = tf.gather_nd(texts, places)
        parts = split_at(some, inert)
        values = parts.flat_values
        is_inert = tf.strings.regex_full_match(values, inert)
        values = tf.where(is_inert, values, tensorflow_text().normalize_utf8(values, form))
        some = tf.strings.reduce_join(parts.with_flat_values(values), axis=1)
        return tf.tensor_scatter_nd_update(texts, places, some)

    return tf.cond(tf.size(places) > 0, changed, lambda: texts)


def sources(before: tf.RaggedTensor, after: tf.RaggedTensor, form: str) -> tf.Tensor:
    """Return the character that each character of a normalized text comes from.

    This is the alignment of Hugging Face's tokenizers. An original character belongs to the new
    character that contains the first character of its decomposition. A new character to which none
    belongs comes from the last original character before it.

    Args:
        before: Code points of texts, int32 `(B, None)`.
        after: Those of the normalized texts.
        form: One of `FORMS`.

    Returns:
        The positions of the sources in the flat values of `before`, int64 `(N,)`.
    """
    decomposition = form.removesuffix("C").removesuffix("D") + "D"

    def elements(codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the characters of all decompositions: owners and sorted order."""
        parts = decode(normalize(encode(codes.flat_values[:, tf.newaxis]), decomposition))
        owners = rows_of_values(parts)
        rows = tf.gather(rows_of_values(codes), owners)
        keys = rows * NUM_CODES + tf.cast(parts.flat_values, tf.int64)
        return owners, tf.argsort(keys, stable=True)

    def aligned() -> tf.Tensor:
        # Both have the same elements. Equal elements of a text keep their order.
        old_owners, old_order = elements(before)
        new_owners, new_order = elements(after)
        is_first = tf.concat([[1], tf.cast(old_owners[1:] != old_owners[:-1], tf.int64)], 0)
        is_first = tf.scatter_nd(
            new_order[:, None], tf.gather(is_first, old_order), [tf.size(new_order)]
        )
        num_sources = tf.math.segment_sum(is_first, new_owners)
        start = tf.cumsum(num_sources, exclusive=True)
        return tf.maximum(start - tf.cast(num_sources == 0, tf.int64), 0)

    same = tf.size(before.flat_values) == tf.size(after.flat_values)
    is_same = tf.cond(
        same, lambda: tf.reduce_all(before.flat_values == after.flat_values), lambda: False
    )
    return tf.cond(is_same, lambda: tf.range(tf.size(after.flat_values, tf.int64)), aligned)
