"""keras_bert_d2l: a SavedModel or an ONNX folder behind `keras-bert-d2l serve`."""

import http.client
import json
import subprocess
import sys
from urllib.parse import urlsplit

from benchmarks.serving.contestants import turns

parser = turns.arguments()
parser.add_argument("--client", action="store_true", help="ask by `ServingClient`")
options = parser.parse_args()

command = [sys.executable, "-m", "keras_bert_d2l", "serve", str(options.model), "--port", "0"]
server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
url = urlsplit(next(server.stdout).split()[-1])

if options.client:
    import keras_bert_d2l as kb

    client = kb.ServingClient(f"http://{url.netloc}", url.path.rpartition("/")[2])
else:
    connection = http.client.HTTPConnection(url.netloc)


def answer(texts: list[str]) -> list[float]:
    if options.client:
        return client.predict({"text": texts})["scores"][:, 1].tolist()
    try:
        connection.request("POST", f"{url.path}:predict", json.dumps({"instances": texts}))
        found = json.load(connection.getresponse())
    except ConnectionError:  # the server closes a connection that is idle
        connection.close()
        return answer(texts)
    return [row["scores"][1] for row in found["predictions"]]


try:
    turns.take_turns(answer, options, server.pid)
finally:
    server.terminate()
