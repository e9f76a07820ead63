"""sentence-transformers: `CrossEncoder.predict` in PyTorch, or with its ONNX backend."""

from sentence_transformers import CrossEncoder

from benchmarks.serving.contestants import turns

parser = turns.arguments()
parser.add_argument("--onnx", help="a file of the ONNX backend, relative to the model's folder")
options = parser.parse_args()
backend = {"backend": "onnx", "model_kwargs": {"file_name": options.onnx}} if options.onnx else {}
model = CrossEncoder(str(options.model), device="cpu", **backend)


def answer(texts: list[str]) -> list[float]:
    return model.predict([(turns.QUERY, text) for text in texts]).tolist()


turns.take_turns(answer, options)
