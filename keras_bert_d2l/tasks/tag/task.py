"""The record of the task `tag`; see `contract/task.py`."""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.tables import DOCUMENTS, is_conllu
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.tag.annotations import annotated_examples
from keras_bert_d2l.tasks.tag.examples import Lines, WordExamples, word_examples
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.tasks.tag.model import TokenClassifier
    from keras_bert_d2l.tasks.tag.predictions import Entity, Tag

_MOST_CHARACTERS = 300  # of the labels of a text in a report
_OUTSIDE = "O"  # the label of words that belong to no entity


class TagTask(Task[WordExamples, "TokenClassifier", "list[Tag]"]):
    """The label of every word."""

    name = "tag"
    examples = (WordExamples, Lines)
    columns: ClassVar = {
        "text": "words tokens word token sentence form",
        "label": "tags ner_tags pos_tags upos labels label ner tag pos chunk_tags",
    }
    one_word_per_row = True
    batch_size = 8  # most data sets have few sentences; as in transformers
    options = frozenset({"aggregate", "min_confidence", "explain", "crf", "valid_tags"})
    monitors = ("val_f1", "val_accuracy")
    huggingface = HuggingFace("BertForTokenClassification", "classifier", "token-classification")
    encode = lazy("keras_bert_d2l.tasks.tag.rows:encoded_words")
    model = lazy("keras_bert_d2l.tasks.tag.model:TokenClassifier")
    evaluate = lazy("keras_bert_d2l.tasks.tag.predictions:evaluate_tags")
    signatures = lazy("keras_bert_d2l.tasks.tag.signature:TaggerSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> WordExamples:
        return annotated_examples(file, options) or word_examples(file, options)

    def is_table(self, file: TextFile, labels: Sequence[str]) -> bool:
        """Return whether a file of lines is a table.

        So are CoNLL-U, files with CoNLL's document markers, and files in which most lines have the
        same number of words and end with a label of the model.
        """
        lines = [line for line in file.lines() if line.strip()]
        if is_conllu(file) or any(line.startswith(DOCUMENTS) for line in lines):
            return True
        lines = [line for line in lines if not line.startswith("#")]  # comments
        tabs = {line.count("\t") for line in lines}
        if len(tabs) == 1 and tabs != {0}:
            return True
        # Tags such as the Penn Treebank's "." do not count: ordinary texts also end with them.
        tags = {label for label in labels if any(map(str.isalnum, label))}
        rows = [line.split() for line in lines]
        tagged = Counter(len(row) for row in rows if len(row) > 1 and row[-1] in tags)
        return 2 * max(tagged.values(), default=0) > len(lines)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> Lines:
        note = "read as one text per line; if it has words in columns, use --text 1"
        return Lines(texts=texts, notes=(note,))

    def model_fields(self, train: WordExamples, dev: WordExamples, say: Say) -> Options:
        """Return the labels of the training data and of the development data.

        A small training file may lack a rare tag. For texts, an additional label is an error.
        """
        further = sorted(set(dev.label_names) - set(train.label_names))
        if further:
            say(
                "The development data contains labels that are missing from the training data and "
                f"cannot be learned: {', '.join(further):.200}."
            )
        return {"labels": (*train.label_names, *further)}

    def check_fit(self, model: "TokenClassifier", examples: WordExamples, where: str) -> None:
        from keras_bert_d2l.data.tasks.rows import check_label_names

        check_label_names(examples, model.labels, at_least=1)

    def records(
        self, model: "TokenClassifier", examples: WordExamples | Lines, options: Options
    ) -> Iterator[dict[str, object]]:
        from keras_bert_d2l.tasks.tag.predictions import tag

        name = "text" if isinstance(examples, Lines) else "words"
        texts = examples.texts if isinstance(examples, Lines) else examples.words
        kind = "tags" if options["aggregate"] == "none" else "entities"
        for one, text, tags in zip(examples.ids, texts, tag(model, texts, **options), strict=True):
            yield {"id": one, name: text, kind: [_without_none(found) for found in tags]}

    def samples(self, examples: WordExamples, found: "Iterable[list[Tag]]") -> Iterator[Sample]:
        for words, labels, tags in zip(examples.words, examples.labels or (), found, strict=True):
            predicted = [one.label for one in tags]
            gold, listed = (_listed(words, some) for some in (labels, predicted))
            yield Sample(" ".join(words), gold, listed, is_right=predicted == list(labels))


def _listed(words: Sequence[str], tags: Sequence[str]) -> str:
    pairs = zip(words, tags, strict=True)
    entities = ", ".join(f"{word} {tag}" for word, tag in pairs if tag != _OUTSIDE)
    return textwrap.shorten(entities, _MOST_CHARACTERS, placeholder=" ...")


def _without_none(found: "Tag | Entity") -> dict[str, object]:
    return {name: x for name, x in dataclasses.asdict(found).items() if x is not None}


TASK = TagTask()
