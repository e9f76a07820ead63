"""Corpus: files are found, split by their layout and streamed; documents in memory."""

import collections
import gzip
import itertools
import lzma
import os
import tracemalloc

import pytest

from keras_bert_d2l.text.corpus import Corpus

LINES = """The cat sat on the mat.
It was a red mat.

A dog came in.
The cat left!
"""
PROSE = """   CHAPTER I

It cost $3.50, e.g. for Dr.
Smith. He did not mind it,
as he had said before, and
nobody asked him. That was
all.

* * *

"Who is it?" she asked.
"""
WIKITEXT = """
 = First Article =

 The 12 @-@ inch gun cost 3 @.@ 5 million , or 1 @,@ 000 each . It was <unk> . Fin

 = = History = =

 He was " big " .
 = Played , W =

 = Second Article =

 One sentence .
"""
DOCUMENTS = {
    "lines": [
        ["The cat sat on the mat.", "It was a red mat."],
        ["A dog came in.", "The cat left!"],
    ],
    "prose": [
        [
            "CHAPTER I",
            "It cost $3.50, e.g. for Dr. Smith.",
            "He did not mind it, as he had said before, and nobody asked him.",
            "That was all.",
            '"Who is it?" she asked.',
        ]
    ],
    "wikitext": [
        [
            "The 12-inch gun cost 3.5 million , or 1,000 each .",
            "It was [UNK] .",
            "Fin",
            'He was " big " .',
        ],
        ["One sentence ."],
    ],
}
TEXTS = {"lines": LINES, "prose": PROSE, "wikitext": WIKITEXT}
WRAPPED = "In this text each line but the last is as long as it can be for a page that\n"


@pytest.mark.parametrize("layout", ["lines", "prose", "wikitext"])
@pytest.mark.parametrize("asked", ["given", "auto"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_each_layout_is_read_and_detected(write, layout, asked, line_end):
    path = write("text.txt", TEXTS[layout].replace("\n", line_end))
    corpus = Corpus.open(path, layout=layout if asked == "given" else "auto")
    assert list(corpus) == DOCUMENTS[layout]
    assert list(corpus) == DOCUMENTS[layout], "a corpus can be read again"


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("no full stop\nand none at the end of this line either\nhere\nlines of all widths\n", 4),
        ("One. Two. Three.\nFour. Five. Six.\n", 6),
        ("One paragraph.\n\nAnother one.\n\nA third one.\n", 3),
        ("A single line", 1),
        (WRAPPED * 20 + "is narrow.", 1),
    ],
)
def test_files_of_unclear_layout_keep_their_sentences(write, text, documents):
    (document,) = Corpus.open(write("text.txt", text))
    assert len(document) == documents


def test_compressed_files_are_decompressed(write):
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".GZ", gzip.compress)):
        path = write(f"text.tokens{suffix}", pack(WIKITEXT.encode()))
        assert list(Corpus.open(path)) == DOCUMENTS["wikitext"]


def test_a_folder_is_read_as_its_text_files_in_alphabetical_order(write, tmp_path):
    for name in ("b.txt", "a/z.text", "a/y.txt.gz", "c.tokens.xz"):
        pack = {"gz": gzip.compress, "xz": lzma.compress}.get(name[-2:], bytes)
        write(name, pack(f"Words of {name[0]}."[:11].encode()))
    for name in (".hidden.txt", ".git/x.txt", "picture.png", "notes.md"):
        write(name, b"\xff")
    assert list(Corpus.open(tmp_path)) == [["Words of a."]] * 2 + [["Words of b."], ["Words of c."]]


def test_patterns_and_lists_include_each_file_once(write, tmp_path, monkeypatch):
    for name in ("one.txt", "two.txt", "deep/er/three.txt"):
        write(name, f"This is {name}.")
    monkeypatch.chdir(tmp_path)

    def names(source):
        return [d[0].split()[-1].split(".")[0].split("/")[-1] for d in Corpus.open(source)]

    assert names("*.txt") == ["one", "two"]
    assert names("**/*.txt") == ["three", "one", "two"]
    assert names(["two.txt", "*.txt", "deep", str(tmp_path / "one.txt")]) == ["two", "one", "three"]
    assert list(Corpus.open(write("text[1].txt", "The cat."))) == [["The cat."]]  # no pattern


def test_long_prose_becomes_several_documents_without_losing_text(write):
    paragraphs = [f"The {i} cats sleep here.\nThe {i} dogs do not." for i in range(250)]
    path = write("text.txt", "\n\n".join(paragraphs))
    documents = list(Corpus.open(path, layout="prose"))
    assert [len(document) for document in documents] == [100, 100, 100, 100, 100]
    assert list(itertools.chain(*documents)) == "\n".join(paragraphs).split("\n")
    text = " ".join(f"This is sentence number {i}." for i in range(3000))  # without paragraphs
    documents = list(Corpus.open(write("text.txt", text), layout="prose"))
    assert [len(document) for document in documents] == [100] * 30
    assert " ".join(itertools.chain(*documents)) == text


def test_a_line_of_ten_million_bytes_is_split_and_complete(write):
    for line in ("x" * 10_000_000, "word " * 2_000_000):
        documents = list(Corpus.open(write("text.txt", f"Before.\n{line}\nAfter."), layout="lines"))
        pieces = list(itertools.chain(*documents))
        assert (pieces[0], pieces[-1]) == ("Before.", "After.")
        assert max(map(len, pieces)) <= 2**17
        assert "".join(pieces[1:-1]).replace(" ", "") == line.replace(" ", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "separator"), [("lines", " "), pytest.param("prose", "\n", marks=pytest.mark.long)]
)
def test_memory_does_not_grow_with_the_file(write, layout, separator):
    sentence = "This is one of a great many sentences." + separator
    path = write("text.txt.gz", gzip.compress(sentence.encode() * (4_000_000 // len(sentence)), 1))
    tracemalloc.start()
    for _ in Corpus.open(path, layout=layout):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_the_fingerprint_changes_only_with_the_text(write):
    path, other = write("a.txt", LINES), write("b.txt", LINES + "Other.")
    fingerprint = Corpus.open(path).fingerprint()
    assert Corpus.open(str(path)).fingerprint() == fingerprint
    assert Corpus.open(write("renamed.txt", LINES)).fingerprint() == fingerprint
    os.utime(path, (1, 1))
    assert Corpus.open(path).fingerprint() == fingerprint
    sources = [[path, other], [other, path]]
    different = {fingerprint, *(Corpus.open(source).fingerprint() for source in sources)}
    different.add(Corpus.open(path, layout="lines").fingerprint())
    write("a.txt", LINES.replace("cat", "dog"))
    os.utime(path, (1, 1))  # same name, size and time
    assert len({*different, Corpus.open(path).fingerprint()}) == 5


def test_documents_in_memory_are_a_corpus():
    documents = [["The cat sat.", "It slept."], ("A dog ran.",)] * 1500
    corpus = Corpus.open(documents)
    assert list(corpus) == [list(document) for document in documents]
    with_gaps = Corpus.open([["The cat sat.", "", "It slept."], ["A dog\n\nran."]])
    assert list(with_gaps) == [["The cat sat.", "It slept."], ["A dog", "ran."]]
    assert [list(document) for piece in corpus.pieces() for document in piece] == list(corpus)
    assert (corpus.source, corpus.layout) == ("documents in memory", "auto")
    assert corpus.description == "3,000 documents in memory"
    different = (documents, documents[1:], [*documents, ["More."]])
    assert len({Corpus.open(one).fingerprint() for one in different}) == 3
    assert Corpus.open(list(map(tuple, documents))).fingerprint() == corpus.fingerprint()
    texts = [["The cat sat. It slept.\n\nA dog ran."], ["Two. More."]]
    sentences = [["The cat sat.", "It slept.", "A dog ran."], ["Two.", "More."]]
    assert list(Corpus.open(texts, layout="prose")) == sentences


def test_a_corpus_describes_itself(write, tmp_path):
    paths = [write(f"{name}.txt", LINES * 3000) for name in "abc"]
    one, some = Corpus.open(paths[0], layout="lines"), Corpus.open(paths[:1])
    assert (one.source, some.source) == (str(paths[0]), [str(paths[0])])
    assert (one.layout, some.layout) == ("lines", "auto")
    assert one.description == "a.txt (0.2 MB)"
    assert repr(some) == "Corpus(a.txt (0.2 MB))"
    assert Corpus.open(tmp_path).description.startswith("a.txt (0.2 MB); b.txt")
    assert Corpus.open([tmp_path, "docstrings"]).files == paths
    assert Corpus.open([["A sentence."]]).files == []


def test_an_empty_corpus_is_rejected(write):
    with pytest.raises(ValueError, match=r"at least one sentence.*empty\.txt \(0\.0 MB\)"):
        list(Corpus.open(write("empty.txt", "\n \n\t\n")))


def test_missing_files_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*missing\.txt"):
        Corpus.open(tmp_path / "missing.txt")
    for none in (f"{tmp_path}/*.txt", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no text file at .*\.txt, \.txt\.gz"):
            Corpus.open(none)
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", "/dev/zero"):
        with pytest.raises(ValueError, match="must be a file.*named pipe or a device"):
            Corpus.open(path)


@pytest.mark.parametrize("kept", ["tokens.bin", "document_offsets.bin"])  # others may be lost
def test_a_token_store_is_not_a_corpus(kept, write, tmp_path):
    for name in (kept, "vocab.txt"):
        write(f"books/store/{name}", "the")
    write("books/a.txt", "The cat.")
    for folder in ("books/store", "books"):
        with pytest.raises(
            ValueError, match=r"Received: .*books/store', a token store.*Pass the text"
        ):
            Corpus.open(tmp_path / folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        *((source, "`source` must") for source in (None, [], "", [3], b"a.txt")),
        *(([["a"], text], "list of sentences.*document 1") for text in ("b", [3])),
    ],
)
def test_invalid_sources_are_rejected(source, message):
    with pytest.raises(ValueError, match=message):
        Corpus.open(source)
    with pytest.raises(ValueError, match=r"'lines', 'prose', 'wikitext'.*layout='csv'"):
        Corpus.open("a.txt", layout="csv")


def test_wikitext_has_the_number_of_articles_its_authors_report(data_dir):
    counts = collections.Counter()
    for name, articles in (("valid.tokens.gz", 60), ("test.tokens.gz", 60)):
        documents = list(Corpus.open(data_dir / "corpus" / "wikitext-2" / f"wiki.{name}"))
        assert len(documents) == articles
        counts.update(word for document in documents for s in document for word in s.split())
    assert counts["[UNK]"] > 10_000
    assert not {"@-@", "@,@", "@.@", "<unk>"} & set(counts)


def test_googles_sample_has_one_sentence_per_line(data_dir):
    path = data_dir / "corpus" / "sample_text.txt"
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    expected = [[line.strip() for line in block.split("\n") if line.strip()] for block in blocks]
    assert list(Corpus.open(path)) == expected
