"""d2l.ai, section 15.9: batches of WikiText-2."""

import gzip
import lzma
import random

import numpy as np
import pytest

from keras_bert_d2l import book as d2l
from keras_bert_d2l.text.vocab import Vocab as PackageVocab

WIKI = """\

 = A heading =

 The crane flew over the bay . It <unk> south in winter .
 One sentence alone
 A driver came . He left early . Nobody saw him . Rain fell .
"""
PARAGRAPHS = [
    [["a", "crane", "flew"], ["it", "went", "south"]],
    [["a", "driver", "came"], ["he", "left"], ["rain", "fell"]],
]
VOCAB = d2l.Vocab(
    [sentence for paragraph in PARAGRAPHS for sentence in paragraph],
    reserved_tokens=["<pad>", "<mask>", "<cls>", "<sep>"],
)


SPECIALS = d2l.Vocab(reserved_tokens=["<pad>", "<mask>", "<cls>", "<sep>"])
DTYPES = ["int32", "int32", "float32", "int32", "float32", "int32", "int32"]


class ScriptedRandom:
    """Random source that returns given numbers in order, and shuffles by reversing."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)

    def choice(self, seq):
        return seq[self.numbers.pop(0)]

    def shuffle(self, x):
        x.reverse()


def write_wiki(folder, text=WIKI, split="train"):
    folder.mkdir(exist_ok=True)
    (folder / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    return folder


# 15.9: reading


def test_paragraphs_with_at_least_two_sentences_are_read_and_lowercased(tmp_path):
    paragraphs = d2l._read_wiki(write_wiki(tmp_path))
    assert sorted(paragraphs) == [
        ["a driver came", "he left early", "nobody saw him", "rain fell ."],
        ["the crane flew over the bay", "it <unk> south in winter ."],
    ]


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_compressed_files_give_the_same_paragraphs(ending, compress, tmp_path):
    plain = d2l._read_wiki(write_wiki(tmp_path / "plain"), rng=random.Random(0))
    (tmp_path / f"wiki.train.tokens.{ending}").write_bytes(compress(WIKI.encode()))
    assert d2l._read_wiki(tmp_path, rng=random.Random(0)) == plain


# 15.9.1: pairs and masks


def test_a_negative_is_never_drawn_from_the_same_paragraph():
    first, second = PARAGRAPHS[0]
    own_paragraph = 0
    rng = ScriptedRandom(0.5, own_paragraph, 0, 1)  # draws again, from the only other paragraph
    assert d2l._get_next_sentence(first, second, PARAGRAPHS, rng=rng)[1:] == (["he", "left"], False)
    with pytest.raises(ValueError, match="a different paragraph"):
        d2l._get_next_sentence(first, second, PARAGRAPHS[:1], rng=ScriptedRandom(0.9, 0))


def test_a_special_token_is_never_inserted_as_a_random_word():
    rng = ScriptedRandom(0.9, 0.9, VOCAB["<sep>"], VOCAB["<unk>"], VOCAB["rain"])
    corrupted, _ = d2l._replace_mlm_tokens(["<cls>", "a"], [1], 1, VOCAB, rng=rng)
    assert corrupted == ["<cls>", "rain"]


def test_unusable_texts_and_sizes_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"wiki\.train\.tokens.*data_dir"):
        d2l.load_data_wiki(2, 16, tmp_path / "none")
    with pytest.raises(ValueError, match="two sentences"):
        d2l._read_wiki(write_wiki(tmp_path, "One line\nand another\n"))
    with pytest.raises(ValueError, match="max_len=4"):
        d2l._WikiTextDataset(d2l._read_wiki(write_wiki(tmp_path)), max_len=4)
    with pytest.raises(ValueError, match="at most 2 tokens.*3 in example 0"):
        d2l._pad_bert_inputs([([3, 7, 4], [1], [9], [0, 0, 0], True)], 2, VOCAB)
    rng = ScriptedRandom(0.9, 0.9)
    with pytest.raises(ValueError, match="lower `min_freq`"):
        d2l._replace_mlm_tokens(["<cls>", "a"], [1], 1, SPECIALS, rng=rng)


# 15.9.1: the same draws as the book's algorithm


def draws_of_the_book(paragraphs, words, max_len, draw):
    """Return examples from an independent version of the book's code, and whether all are good.

    A sentence keeps its successor with probability 0.5; otherwise, any sentence of any paragraph
    replaces it. Positions are masked in shuffled order: 80 % become `<mask>`, 10 % are unchanged
    and 10 % become any word. The package repeats bad draws: a partner from a paragraph that
    contains the true successor, or a special token as a random word.
    """
    examples, all_good = [], True
    for paragraph in paragraphs:
        pairs = []
        for place, sentence in enumerate(paragraph[:-1]):
            follower = paragraph[place + 1]
            keep = draw.random() < 0.5
            if keep:
                partner = follower
            else:
                other = draw.choice(paragraphs)
                partner = draw.choice(other)
                all_good = all_good and follower not in other
            if 3 + len(sentence) + len(partner) <= max_len:
                pairs.append((sentence, partner, keep))
        for sentence, partner, is_next in pairs:
            tokens = ["<cls>", *sentence, "<sep>", *partner, "<sep>"]
            places = [n for n, token in enumerate(tokens) if token not in ("<cls>", "<sep>")]
            draw.shuffle(places)
            seen = dict(enumerate(tokens))
            chosen = places[: max(1, round(0.15 * len(tokens)))]
            for place in chosen:
                if draw.random() < 0.8:
                    seen[place] = "<mask>"
                elif draw.random() >= 0.5:
                    seen[place] = draw.choice(words.idx_to_token)
                    all_good = all_good and not seen[place].startswith("<")
            chosen.sort()
            labels = [words[tokens[place]] for place in chosen]
            segments = [0] * (len(sentence) + 2) + [1] * (len(partner) + 1)
            ids = [words[seen[place]] for place in range(len(tokens))]
            examples.append((ids, chosen, labels, segments, is_next))
    return examples, all_good


def test_the_same_seed_gives_the_same_examples_as_the_books_code():
    words = random.Random(0)
    many = [f"word{n}" for n in range(500)]
    paragraphs = [
        [words.choices(many, k=words.randint(3, 12)) for _ in range(words.randint(2, 4))]
        for _ in range(12)
    ]
    vocab = d2l.Vocab(
        [sentence for paragraph in paragraphs for sentence in paragraph],
        reserved_tokens=["<pad>", "<mask>", "<cls>", "<sep>"],
    )
    compared = 0
    for seed in range(60):
        twin = random.Random(seed)
        expected, all_good = draws_of_the_book(paragraphs, vocab, 22, twin)
        random.seed(seed)
        examples = []
        for paragraph in paragraphs:
            pairs = d2l._get_nsp_data_from_paragraph(paragraph, paragraphs, vocab, 22)
            examples += [
                (*d2l._get_mlm_data_from_tokens(tokens, vocab), segments, is_next)
                for tokens, segments, is_next in pairs
            ]
        if all_good:
            compared += 1
            assert examples == expected
            assert random.getstate() == twin.getstate()
    assert compared >= 10


# 15.9.2: arrays and batches


def test_padding_has_zero_weight():
    example = ([3, 7, 4], [1], [9], [0, 0, 0], True)  # ids, positions, labels, segments, is next
    arrays = d2l._pad_bert_inputs([example], 12, VOCAB)  # round(1.8): two predictions
    tokens, *others = (array[0].tolist() for array in arrays)
    assert tokens == [3, 7, 4] + [VOCAB["<pad>"]] * 9
    assert others == [[0] * 12, 3.0, [1, 0], [1.0, 0.0], [9, 0], 1]
    assert [array.dtype.name for array in arrays] == DTYPES


def test_a_dataset_yields_seven_element_tuples_and_has_a_vocabulary(tmp_path):
    text = "A crane came . It rained .\n" * 4 + "The crane left . We stayed . Then it rained .\n"
    dataset = d2l._WikiTextDataset(d2l._read_wiki(write_wiki(tmp_path, text)), max_len=32)
    assert len(dataset) == 6
    # Each of these words occurs five times.
    assert dataset.vocab.idx_to_token[5:] == [".", "crane", "it", "rained"]
    assert [np.shape(value) for value in dataset[0]] == [(32,), (32,), (), (5,), (5,), (5,), ()]
    assert dataset.all_mlm_weights.sum() == (dataset.all_pred_positions > 0).sum()


def many_paragraphs(tmp_path, count=50):
    rng = random.Random(0)
    words = "a crane is flying over the bay and he just left early".split()
    lines = [
        " . ".join(" ".join(rng.choices(words, k=6)) for _ in range(4)) + " ." for _ in range(count)
    ]
    return write_wiki(tmp_path, "\n".join(lines))


def test_loaded_batches_have_the_books_shapes_and_types(tmp_path):
    folder = many_paragraphs(tmp_path)
    train_iter, vocab = d2l.load_data_wiki(32, 64, folder)
    batch = next(iter(train_iter))
    shapes = [tuple(tensor.shape) for tensor in batch]
    assert shapes == [(32, 64), (32, 64), (32,), (32, 10), (32, 10), (32, 10), (32,)]
    assert [tensor.dtype.name for tensor in batch] == DTYPES
    assert sum(int(batch[0].shape[0]) for batch in train_iter) == 150  # the last batch is kept
    full_batches, _ = d2l.load_data_wiki(32, 64, folder, drop_remainder=True)
    assert full_batches.element_spec[0].shape == (32, 64)
    assert sum(1 for _ in full_batches) == 4
    packages = PackageVocab(vocab.idx_to_token)
    assert packages[["crane", "<pad>", "nowhere"]] == vocab[["crane", "<pad>", "nowhere"]]
    assert vocab["<pad>"] == 1


def test_only_the_same_seed_gives_the_same_batches(tmp_path):
    folder = many_paragraphs(tmp_path)
    first, again, other = (
        next(iter(d2l.load_data_wiki(150, 64, folder, seed=seed)[0]))[0].numpy()
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_held_out_text_is_encoded_with_the_given_vocabulary(tmp_path):
    write_wiki(tmp_path, "Some quite other words . A crane came .\nAnd more . It rained .", "valid")
    valid_iter, vocab = d2l.load_data_wiki(2, 64, tmp_path, split="valid", vocab=VOCAB)
    assert vocab is VOCAB
    labels = np.concatenate([batch[5].numpy() for batch in valid_iter])
    assert labels.max() < len(VOCAB)


@pytest.mark.long
def test_wikitext_2_has_the_books_vocabulary(data_dir):
    _, vocab = d2l.load_data_wiki(512, 64, data_dir / "corpus" / "wikitext-2")
    assert len(vocab) == 20256
    assert vocab.idx_to_token[:6] == ["<unk>", "<pad>", "<mask>", "<cls>", "<sep>", "the"]
