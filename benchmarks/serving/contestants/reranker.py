"""keras_bert_d2l: the signature `rerank` of a SavedModel or an ONNX folder."""

import numpy as np

from benchmarks.serving.contestants import turns
from keras_bert_d2l.serving.server.local_server import load

options = turns.arguments().parse_args()
model = load(options.model)


def answer(texts: list[str]) -> list[float]:
    inputs = {
        "query": np.array(turns.QUERY.encode(), object),
        "texts": np.array([text.encode() for text in texts], object),
    }
    return model.ask("rerank", inputs)["scores"].tolist()


turns.take_turns(answer, options)
