"""Learn vocabularies from text, and extend them. WordPiece is learned here."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import tensorflow as tf

from keras_bert_d2l import checks
from keras_bert_d2l.progress import stage
from keras_bert_d2l.text.definition import BYTES
from keras_bert_d2l.text.library_learning import learn_byte_pairs, learn_unigram
from keras_bert_d2l.text.normalization import Normalization, split_words
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

_BATCH_CHARACTERS = 1 << 20  # number of characters per normalization call
_MAX_COUNTED_WORDS = 1_000_000
_MAX_WORDS = 100_000  # maximum number of different words to learn from
_MAX_WORD_CHARACTERS = 50
_MAX_ALPHABET = 1000
_LEAST_COUNT = 2  # pieces that occur only once are ignored
_NUM_ITERATIONS = 4  # as in tensorflow-text
_SURPLUS = 0.1  # share of surplus pieces that ends the search for a threshold

_Words = list[tuple[str, int]]  # different words with their counts
VocabKind = Literal["wordpiece", "bpe", "unigram"]


def learn_vocab(
    corpus: Iterable[Sequence[str]],
    size: int = 30522,
    lowercase: bool | None = None,
    kind: VocabKind = "wordpiece",
) -> Vocab:
    """Learn a vocabulary from text: WordPiece, byte-level BPE or Unigram.

    `[PAD] [UNK] [CLS] [SEP] [MASK]` get the ids 0 to 4 in all kinds. The result is deterministic.

    **WordPiece**, as in BERT. Words are normalized as in the `Tokenizer` and counted. The pieces
    are the frequent words and the frequent ends of words, counted where a token starts when the
    vocabulary splits the words. With the same minimum count, the pieces of at least two characters
    equal those of tensorflow-text's learner. A character must occur twice, and has a `##` token
    only if a word continues with it; there, every character has both tokens. Single characters
    follow the special tokens, then longer pieces, most frequent first. With up to a million
    different words, the result does not depend on the order of the documents. Memory is bounded:
    the rarest words are dropped when there are more, and only the 100,000 most frequent words are
    used for learning.

    **Byte-level BPE**, as in RoBERTa and ModernBERT. The library tokenizers learns it. Its first
    tokens are the 256 bytes, so no text has an unknown token. A space precedes each sentence.

    **Unigram**, as in XLM-R and ALBERT. The library sentencepiece learns it, with the normalization
    `nmt_nfkc`. The text is in memory meanwhile. 99.99% of the characters are covered.

    Args:
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences.
        size: Vocabulary size. The result is smaller if the text has too few pieces that occur
            at least twice.
        lowercase: Whether to lowercase the text and strip its accents. Defaults to True for
            WordPiece, whose `Tokenizer` needs the same value, and to False for the other kinds,
            whose vocabularies record it.
        kind: `"wordpiece"`, or `"bpe"` or `"unigram"`, which need the extra `vocab`.

    Returns:
        A `Vocab`.

    Raises:
        ValueError: If `size` is too small, the corpus has no words, or a document is not a list.
        ImportError: If the library that learns this kind is missing.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.learn_vocab([["the cat sat", "the cats sat"] * 3], size=40)
        >>> "cat" in vocab, "##s" in vocab
        (True, True)
    """
    checks.check_choice("kind", kind, get_args(VocabKind))
    least = len(GOOGLE_SPECIALS) + (len(BYTES) if kind == "bpe" else len(GOOGLE_SPECIALS))
    checks.check_integer("size", size, least, " to fit the special tokens and some characters")
    if lowercase is None:
        lowercase = kind == "wordpiece"
    checks.check_bool("lowercase", lowercase)
    with stage("Learning the vocabulary"):
        if kind != "wordpiece":
            learn = learn_byte_pairs if kind == "bpe" else learn_unigram
            return learn(_batches(corpus), size, lowercase)
        counts = _count_words(corpus, GOOGLE_SPECIALS, lowercase)
        if not counts:
            raise ValueError("`corpus` must contain words to learn from. Received: no words.")
        # A character may need two tokens: one on its own and one as a continuation.
        alphabet = set(_frequent_characters(counts)[: min(_MAX_ALPHABET, size // 3)])
        words = _learnable_words(counts, alphabet)
        inner = {character for word, _ in words for character in word[1:]}
        continuations = [f"##{character}" for character in sorted(inner)]
        tokens = [*GOOGLE_SPECIALS, *sorted(alphabet), *continuations]
        return Vocab([*tokens, *_frequent_pieces(words, size - len(tokens))][:size])


def extend_vocab(
    vocab: Vocab, corpus: Iterable[Sequence[str]], size: int, lowercase: bool = True
) -> Vocab:
    """Extend a vocabulary with tokens learned from text that it covers poorly.

    Existing tokens keep their ids. New tokens are learned as in `learn_vocab`, from the words
    that the vocabulary splits into several pieces or does not cover: missing characters first, for
    which up to two thirds of the new tokens are used, then pieces. Both are ordered by frequency.
    The result is deterministic. Use `add_tokens` to enlarge the token embedding of a model to
    match.

    Args:
        vocab: The `Vocab` to extend.
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences.
        size: Size of the extended vocabulary. The result is smaller if the text has too few
            pieces that occur at least twice.
        lowercase: Whether `vocab` is a lowercase vocabulary.

    Returns:
        A `Vocab`.

    Raises:
        ValueError: If the vocabulary is not one of WordPiece, `size` is smaller than it, or a
            document is not a list.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.learn_vocab([["the cat sat", "the cats sat"] * 3], size=40)
        >>> larger = kb.extend_vocab(vocab, [["the neuron fires"] * 3], size=60)
        >>> larger.tokens[: len(vocab)] == vocab.tokens
        True
    """
    checks.check_type("vocab", vocab, Vocab)
    advice = "Learn new tokens with the tool that learned the others, and use `add_tokens`."
    is_right = vocab.kind == "wordpiece"
    checks.check_that(is_right, "vocab", "a vocabulary of WordPiece", vocab.kind, advice)
    checks.check_integer("size", size, len(vocab), ", the size of the vocabulary")
    checks.check_bool("lowercase", lowercase)
    counts = _count_words(corpus, vocab.special_tokens, lowercase)
    counts = Counter({word: count for word, count in counts.items() if word not in vocab})
    characters = _frequent_characters(counts)
    missing = _missing_tokens(characters, counts, vocab)
    number = min(_MAX_ALPHABET, max(1, (size - len(vocab)) // 3))
    alphabet = set(characters) - missing.keys()
    tokens = [*vocab.tokens]
    for some in ([*missing][:number], [*missing][number:_MAX_ALPHABET]):  # the rest fill the room
        alphabet.update(some)
        tokens += [token for character in some for token in missing[character]]
        words = _learnable_words(counts, alphabet)
        room = max(size - len(tokens), 0)
        tokens += _frequent_pieces(words, room, known=set(tokens))[:room]
    return Vocab(tokens[:size])


def _count_words(
    corpus: Iterable[Sequence[str]], special_tokens: Sequence[str], lowercase: bool
) -> Counter[str]:
    """Count the words of a corpus, without the special tokens.

    Memory is bounded: whenever there are more than a million different words, only the 500,000
    most frequent are kept.
    """
    normalize = Normalization(special_tokens, lowercase)
    counts: Counter[bytes] = Counter()
    for sentences in _batches(corpus):
        words = split_words(normalize(tf.constant(sentences)))
        counts.update(words.flat_values.numpy().tolist())
        if len(counts) > _MAX_COUNTED_WORDS:
            counts = Counter(dict(_most_common(counts, _MAX_COUNTED_WORDS // 2)))
    for marker in normalize.markers.values():
        del counts[marker.encode()]
    return Counter({word.decode(): count for word, count in counts.items()})


def _batches(corpus: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the sentences of a corpus in lists of about a million characters.

    Raises:
        ValueError: If the corpus is not iterable, or a document is not a list of strings.
    """
    sentences: list[str] = []
    num_characters = 0
    expected = "an iterable of documents, each a list of sentences"
    advice = "To read files, use `Corpus.open(path)`."
    is_right = isinstance(corpus, Iterable) and not isinstance(corpus, str | Mapping)
    checks.check_that(is_right, "corpus", expected, corpus, advice)
    for document in corpus:
        is_right = isinstance(document, list | tuple) and all(isinstance(x, str) for x in document)
        checks.check_that(is_right, "corpus", expected, document, advice)
        sentences += document
        num_characters += sum(map(len, document))
        if num_characters >= _BATCH_CHARACTERS:
            yield sentences
            sentences, num_characters = [], 0
    if sentences:
        yield sentences


def _most_common(counts: Counter[Any], number: int) -> list[tuple[Any, int]]:
    """Return the `number` most common items with their counts, ties in alphabetical order.

    Unlike `Counter.most_common`, the result does not depend on the order of counting.
    """
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]


def _frequent_characters(counts: Counter[str]) -> list[str]:
    """Return the characters of words that occur at least twice, most frequent first."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    return [c for c, count in _most_common(characters, len(characters)) if count >= _LEAST_COUNT]


def _missing_tokens(
    characters: Sequence[str], words: Iterable[str], vocab: Vocab
) -> dict[str, list[str]]:
    """Return the tokens that each of the characters needs and the vocabulary lacks, if any."""
    inner = {character for word in words for character in word[1:]}
    missing = {}
    for character in characters:
        tokens = [character, *([f"##{character}"] if character in inner else [])]
        if new := [token for token in tokens if token not in vocab]:
            missing[character] = new
    return missing


def _learnable_words(counts: Counter[str], alphabet: set[str]) -> _Words:
    """Return the most frequent words that are short enough and only use the alphabet."""
    return [
        (word, count)
        for word, count in _most_common(counts, _MAX_WORDS)
        if len(word) <= _MAX_WORD_CHARACTERS and alphabet.issuperset(word)
    ]


def _frequent_pieces(words: _Words, number: int, known: Container[str] = ()) -> list[str]:
    """Return `number` pieces or a few more, most frequent first, or all that are not `known`.

    The pieces follow from a minimum count. Their number and this count are roughly inversely
    proportional, which guides the search for the right count.
    """
    if number <= 0 or not words:
        return []
    ends = _count_ends((word, count, range(len(word))) for word, count in words)
    enough: list[str] | None = None
    low, high = _LEAST_COUNT, max(count for _, count in words)
    least_count = sum(count for _, count in words) // (8 * number)
    while True:
        least_count = max(low, min(least_count, high))
        found = _pieces_with_count(words, ends, least_count)
        pieces = [piece for piece in found if piece not in known]
        if len(pieces) >= number:
            enough, low = pieces, least_count + 1
        else:
            high = least_count - 1
        if low > high or number <= len(pieces) <= number * (1 + _SURPLUS):
            return enough or pieces
        least_count = round(least_count * len(pieces) / (number * (1 + _SURPLUS / 2)))


def _pieces_with_count(words: _Words, ends: Mapping[str, int], least_count: int) -> list[str]:
    """Return the pieces of at least two characters that occur at least `least_count` times.

    tensorflow-text's learner counts every substring that starts where a token starts, and then
    subtracts each count from all prefixes of the substring. What remains is how often the substring
    ends a word, so counting ends gives the same pieces several times sooner.

    Args:
        words: The words.
        ends: Counts of all ends of the words, for the first iteration.
        least_count: Minimum count of a piece.
    """
    frequent = {word: count for word, count in words if count >= least_count}
    rare = [item for item in words if item[1] < least_count]

    def with_ends(ends: Mapping[str, int]) -> dict[str, int]:
        return frequent | {end: count for end, count in ends.items() if count >= least_count}

    pieces = with_ends(ends)
    for _ in range(_NUM_ITERATIONS - 1):
        splits = ((word, count, _token_starts(word, pieces)) for word, count in rare)
        pieces = with_ends(_count_ends(splits))
    return [
        piece
        for piece, _ in sorted(pieces.items(), key=lambda item: (-item[1], item[0]))
        if len(piece.removeprefix("##")) > 1
    ]


def _count_ends(splits: Iterable[tuple[str, int, Iterable[int]]]) -> dict[str, int]:
    """Count the ends of words, `"##..."`.

    Args:
        splits: Words, their counts, and the positions from which to count their ends. Position 0,
            the word itself, is ignored.
    """
    ends: dict[str, int] = defaultdict(int)
    for word, count, starts in splits:
        for start in starts:
            if start:
                ends["##" + word[start:]] += count
    return ends


def _token_starts(word: str, pieces: Container[str]) -> Iterator[int]:
    """Yield the positions at which tokens start when the pieces split a word, longest first.

    Single characters are always tokens.
    """
    start, prefix = 0, ""
    while start < len(word):
        yield start
        end = len(word)
        while end > start + 1 and prefix + word[start:end] not in pieces:
            end -= 1
        start, prefix = end, "##"
