"""The three layouts of plain-text corpora: how the lines of a file become documents."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from keras_bert_d2l.text.corpus.sentences import LONG_ENOUGH, gather_documents, split_sentences
from keras_bert_d2l.text.words import single_spaced

LAYOUTS = ("auto", "lines", "prose", "wikitext")

_MAX_PARAGRAPH = 1 << 14  # characters; longer paragraphs are split
_HEAD_LINES, _HEAD_CHARACTERS = 1000, 1 << 17  # the part of a file that "auto" examines

_WIKITEXT_HEADING = re.compile(r"= .*=$")
_WIKITEXT_TITLE = re.compile(r"= (?!= ).+ =$")
_WIKITEXT_ESCAPE = re.compile(r" ?@([-,.])@ ?")
_WIKITEXT_UNKNOWN, _UNKNOWN = "<unk>", "[UNK]"  # the unknown word in WikiText and BERT

_ENDS_A_SENTENCE = re.compile(r"[.!?…:;][\"'”’)\]]*$")


def documents(lines: Iterable[str], layout: str) -> Iterator[list[str]]:
    """Return an iterator over the documents of a file, each a list of at least one sentence.

    Args:
        lines: The lines of the file, without line ends.
        layout: One of `LAYOUTS`; see `Corpus.open`.
    """
    if layout == "auto":
        first, lines = head(lines)
        layout = guess_layout(first)
    if layout == "lines":
        return gather_documents(_line_by_line(lines))
    if layout == "wikitext":
        return gather_documents(_wikitext(lines))
    return gather_documents(_prose(lines), LONG_ENOUGH)


def guess_layout(lines: Sequence[str]) -> str:
    """Return the layout that the first lines of a file most resemble."""
    if any(is_title for is_title, _ in _marked_titles(lines)):
        return "wikitext"
    lines = [line.strip() for line in lines]
    blocks = [list(b) for filled, b in itertools.groupby(lines, key=bool) if filled]
    filled = list(itertools.chain.from_iterable(blocks))
    if not filled:
        return "prose"
    num_ended = sum(bool(_ENDS_A_SENTENCE.search(line)) for line in filled)
    if num_ended < len(filled) / 2:  # sentences run over several lines, or have no full stops
        return "prose" if _is_wrapped(blocks) else "lines"
    num_with_several = sum(len(split_sentences(line)) > 1 for line in filled)
    if num_with_several > len(filled) / 4:  # one paragraph per line
        return "prose"
    return "lines" if len(filled) > 1.5 * len(blocks) else "prose"


def head(lines: Iterable[str]) -> tuple[list[str], Iterator[str]]:
    """Return the first lines, which `guess_layout` needs, and an iterator over all lines."""
    lines = iter(lines)
    first: list[str] = []
    size = 0
    for line in itertools.islice(lines, _HEAD_LINES):
        first.append(line)
        size += len(line)
        if size > _HEAD_CHARACTERS:
            break
    return first, itertools.chain(first, lines)


def _is_wrapped(blocks: Sequence[Sequence[str]]) -> bool:
    """Return whether most lines end where the next line's first word would not have fit."""
    pairs = [pair for block in blocks for pair in itertools.pairwise(block)]
    lengths = sorted(len(line) for block in blocks for line in block)
    width = lengths[len(lengths) * 9 // 10]  # the 90th percentile ignores stray long lines
    full = sum(len(line) + 1 + len(following.split()[0]) > 0.9 * width for line, following in pairs)
    return not pairs or full > 0.6 * len(pairs)


def _line_by_line(lines: Iterable[str]) -> Iterator[list[str] | None]:
    for line in lines:
        sentence = line.strip()
        yield [sentence] if sentence else None


def _prose(lines: Iterable[str]) -> Iterator[list[str]]:
    paragraph = ""
    for line in itertools.chain(lines, [""]):
        line = line.strip()
        if not line:
            yield split_sentences(paragraph)
            paragraph = ""
            continue
        paragraph = f"{paragraph} {line}" if paragraph else line
        if len(paragraph) > _MAX_PARAGRAPH:
            paragraph = single_spaced(paragraph)
        if len(paragraph) > _MAX_PARAGRAPH:
            *whole, paragraph = split_sentences(paragraph) or [""]
            if len(paragraph) > _MAX_PARAGRAPH:  # no sentence ends here; probably a list or a table
                whole, paragraph = [*whole, paragraph], ""
            yield from ([sentence] for sentence in whole)  # a document may end after any of them


def _wikitext(lines: Iterable[str]) -> Iterator[list[str] | None]:
    for is_title, line in _marked_titles(lines):
        if is_title:
            yield None
        elif line and not _WIKITEXT_HEADING.match(line):
            line = line.replace(_WIKITEXT_UNKNOWN, _UNKNOWN)
            *whole, last = _WIKITEXT_ESCAPE.sub(r"\1", line).split(" . ")
            yield [f"{sentence} ." for sentence in whole] + [last]


def _marked_titles(lines: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """Yield `(is_title, line)` for each line. Empty lines surround the title of an article."""
    lines = itertools.chain([""], map(str.strip, lines), [""])
    before, line = next(lines), next(lines)
    for after in lines:
        yield not before and not after and bool(_WIKITEXT_TITLE.match(line)), line
        before, line = line, after
