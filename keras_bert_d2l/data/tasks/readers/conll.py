"""CoNLL and CoNLL-U: one word per line with its labels, and a blank line after each sentence."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.data.tasks.readers.tables import Row, Table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile

DOCUMENTS = ("-DOCSTART-", "#begin document", "#end document")  # in CoNLL-2003 and -2012
_CONLLU_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_GLOBAL_COLUMNS = "# global.columns ="  # the first line of CoNLL-U Plus
_CONLLU_LINE = re.compile(r"\d+(?:[-.]\d+)?\t(?:[^\t]*\t){8}[^\t]*$")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+$")  # a multiword-token range "1-2" or an empty node "1.1"
_SENTENCE_ID = re.compile(r"#\s*(?:sent_id|id)\b\s*=?\s*(\S+)")
_KEY_AND_VALUE = re.compile(r"#+\s*\w[\w.:-]*\s+=\s")  # "# sent_id = 12"
_COMMENTED = frozenset(  # first words of comments without a space after "#"
    "sent_id sent sentence id text newdoc newpar doc document docid file source title url date "
    "begin end word token form columns".split()
)
_TAG = re.compile(r"[A-Z]+(?:[-_$].*)?|[^\w\s]+")  # "NN", "B-PER", "PRP$", "#"


def is_conllu(file: TextFile) -> bool:
    """Return whether a file has the ten columns of CoNLL-U."""
    if file.suffix in (".conllu", ".conllup"):
        return True
    first = next((line for line in file.lines() if line and not line.startswith("#")), "")
    return bool(_CONLLU_LINE.match(first))


def read_conllu(file: TextFile) -> Table:
    """Read the syntactic words of a CoNLL-U file; a row without cells ends each sentence.

    Multiword-token ranges such as 1-2 and empty nodes are skipped.

    Raises:
        ValueError: A line has too few or too many columns.
    """
    lines = file.lines()
    names = _CONLLU_COLUMNS
    if lines[0].startswith(_GLOBAL_COLUMNS):
        names = tuple(lines[0].removeprefix(_GLOBAL_COLUMNS).split())
    id_column = names.index("ID") if "ID" in names else None

    def is_comment(line: str) -> bool:  # without a column of numbers, "#" may be a word
        return line.startswith("#") and (id_column == 0 or line.count("\t") != len(names) - 1)

    rows = list(_rows(lines, is_comment, lambda line: line.split("\t")))
    for row in rows:
        if len(row.cells) not in (0, len(names)):
            raise file.error(
                row.line,
                f"a word must have {len(names)} columns, separated by tabs. Received: "
                f"{len(row.cells)}, {shown(row.cells)}.",
            )
    rows = [row for row in rows if not _NOT_A_WORD.match(row.text(id_column))]
    return Table(names, rows, names, has_words=True)


def read_conll(file: TextFile, has_header: Callable[[Sequence[str]], bool]) -> Table:
    """Read a file with one word and its labels per line; a row without cells ends each sentence.

    Columns are separated by tabs, or by spaces in a line without tabs. Comments are lines at the
    beginning of a sentence that start with "#" and are no words, which `_Comments` decides.
    """
    lines = file.lines()
    cells_of = {line: _cells(line) for line in lines if line.strip()}
    comments = _Comments(lines, cells_of)
    num_columns = comments.num_columns
    rows = list(_rows(lines, comments.is_comment, cells_of.__getitem__))
    header = tuple(map(str, rows[0].cells)) if rows else ()
    if header and has_header(header):
        return Table(header, rows[1:], header, notes=comments.notes())
    whole = (tuple(map(str, row.cells)) for row in rows if len(row.cells) == num_columns)
    first = next(whole, ("",) * num_columns)
    return Table(None, rows, first, has_words=True, notes=comments.notes())


class _Comments:
    """Tells comments from words that begin with "#", by what the other lines of a file contain.

    A line is a comment if it has more or fewer columns than a word, if it is a key and a value
    ("# sent_id = 12"), or if it lacks the tabs of the other lines. Otherwise its last cell decides:
    a word has a label of the file, or one that looks like a label.
    """

    def __init__(self, lines: Sequence[str], cells_of: Mapping[str, Sequence[str]]) -> None:
        filled = [line for line in lines if line in cells_of]
        words = [line for line in filled if not line.startswith("#")]
        counts = Counter(len(cells_of[line]) for line in words or filled)
        self.num_columns = max(counts, key=lambda number: (counts[number], number))
        self._cells_of = cells_of
        self._labels = {cells_of[line][-1] for line in words}
        self._has_tabs = 2 * sum("\t" in line for line in words) > len(words)
        self._like_words: list[str] = []

    def is_comment(self, line: str) -> bool:
        if not line.startswith("#"):
            return False
        cells = self._cells_of[line]
        if len(cells) != self.num_columns:
            return True
        if len(cells) == 1:
            return False
        name, label = cells[0].lstrip("#"), cells[-1]
        may_be_comment = not name or name[0] == " " or name.lower() in _COMMENTED
        is_label = label in self._labels or _TAG.fullmatch(label)
        found = bool(
            _KEY_AND_VALUE.match(line)
            or (self._has_tabs and "\t" not in line)
            or (may_be_comment and not is_label)
        )
        if found:
            self._like_words.append(line)
        return found

    def notes(self) -> tuple[str, ...]:
        """Return a remark on comments that have as many columns as words."""
        if not self._like_words:
            return ()
        number = how_many(len(self._like_words), "line")
        return (f"read {number} such as {shown(self._like_words[0])} as comments",)


def _rows(
    lines: Sequence[str], is_comment: Callable[[str], bool], split: Callable[[str], Sequence[str]]
) -> Iterator[Row]:
    """Yield the rows of the lines that are words; a row without cells ends a sentence.

    The id of a sentence is given in a comment; otherwise, it is the number of its first line.
    """
    id, in_sentence = "", False
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip() or line.startswith(DOCUMENTS):
            if in_sentence:
                yield Row(number, [], id)
            id, in_sentence = "", False
        elif not in_sentence and is_comment(line):
            found = _SENTENCE_ID.match(line)
            id = found[1] if found else id
        else:
            id, in_sentence = id or str(number), True
            yield Row(number, split(line), id)


def _cells(line: str) -> list[str]:
    """Split a line into columns at tabs or spaces. Other whitespace may be part of a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.rstrip("\t").split("\t")]
    return line.strip(" ").split(" ") if "  " not in line else re.split(" +", line.strip(" "))
