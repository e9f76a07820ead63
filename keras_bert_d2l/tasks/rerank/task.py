"""The record of the task `rerank`; see `contract/task.py`."""

from typing import ClassVar

from keras_bert_d2l.contract.task import HuggingFace, lazy
from keras_bert_d2l.tasks.regress.task import RegressTask


class RerankTask(RegressTask):
    """A score for a query and a text that may answer it."""

    name = "rerank"
    columns: ClassVar = {
        "text": "query question anchor",
        "text_b": "text passage document answer positive context",
        "label": "label score relevance gold",
    }
    needs_text_b = True
    options = frozenset({"pooling", "truncate"})
    huggingface = HuggingFace(
        *("BertForSequenceClassification", "classifier", "text-ranking"), ("regression",)
    )
    model = lazy("keras_bert_d2l.tasks.rerank.model:Reranker")
    signatures = lazy("keras_bert_d2l.tasks.rerank.predictions:RerankSignatures")


TASK = RerankTask()
