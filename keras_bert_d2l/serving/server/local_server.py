"""A development server for exported models, with the routes of TensorFlow Serving and OpenAI.

It also has the routes of Cohere, Jina, Voyage and TEI for reranking.

Use it to try out a model or to test clients, not in production: it does not batch requests and has
no metrics. Source of the routes: tensorflow.org/tfx/serving/api_rest.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from keras_bert_d2l.reading import has_file
from keras_bert_d2l.serving.protocol import (
    DEFAULT_SIGNATURE,
    ONNX_FILE,
    SIGNATURE_NAME,
    JSONObject,
    definitions,
    find_interface,
    read_object,
    request_columns,
    response,
)
from keras_bert_d2l.serving.server import reranking
from keras_bert_d2l.serving.server.embeddings import ROUTE, embeddings, error_object, model_object
from keras_bert_d2l.serving.server.served import Limits, Served, TooLargeError, ask
from keras_bert_d2l.types import PathLike

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8501
_GRACE_SECONDS = 1  # time to finish requests in progress when the server stops
_CONCURRENT = 4  # requests that run at the same time; the others wait
_NAME = re.compile(r"[^/:]+")
_OF_MODELS = {
    ROUTE: embeddings,
    **dict.fromkeys(reranking.ROUTES, reranking.rerank),
    reranking.TEI_ROUTE: reranking.rerank_texts,
}


class LocalServer:
    """Web application that serves one or more models at one address.

    Args:
        models: The model, or a list of models.
        name: Name in the routes, for a single model. Defaults to the name of its folder, which is
            also the name of each of several models.
        limits: Limits of one request.

    Attributes:
        models: The models by name.

    Raises:
        ValueError: A name contains a character that is not allowed in a route, two models have
            the same name, or several models get one `name`.
    """

    def __init__(
        self,
        models: Served | Sequence[Served],
        name: str | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008, it is immutable
    ) -> None:
        several = [*models] if isinstance(models, Sequence) else [models]
        names = [model.name for model in several] if name is None else [name]
        self.models = dict(zip(names, several, strict=False))
        self.limits = limits
        for each in names:
            if not _NAME.fullmatch(each):
                raise ValueError(f"`name` must be a text without '/' or ':'. Received: {each!r}.")
        if len(self.models) != len(several):
            raise ValueError(
                "Each model needs a name of its own, that of its folder. `name` is for a single "
                f"model. Received: {len(several)} models named {', '.join(map(repr, names))}."
            )
        self._created = int(time.time())
        self._slots = anyio.CapacityLimiter(_CONCURRENT)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        model = "/v1/models/{name}"
        routes = [
            route
            for place in (f"{model}/versions/{{version:int}}", model)
            for route in (
                Route(place + ":predict", self._predict, methods=["POST"]),
                Route(place + "/metadata", self._metadata),
                Route(place, self._status),
            )
        ]
        routes += [
            Route(place, self._for_models(answer), methods=["POST"])
            for place, answer in _OF_MODELS.items()
        ]
        routes.append(Route("/v1/models", self._models))
        routes.append(
            Route("/{rest:path}", _refuse, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        )
        failures = (HTTPException, ClientDisconnect, ValueError, Exception)
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(failures, _error_response))
        app.router.redirect_slashes = False  # TensorFlow Serving does not redirect
        return app

    async def _predict(self, request: Request) -> Response:
        model = self._asked(request)
        return await self._answer(request, lambda body: predict(model, body, self.limits))

    def _for_models(self, answer: Callable[..., object]) -> Callable[[Request], Any]:
        """Return the function of a route whose body may name the model."""

        async def respond(request: Request) -> Response:
            return await self._answer(request, lambda body: answer(self.models, body, self.limits))

        return respond

    async def _answer(self, request: Request, answer: Callable[[bytes], object]) -> Response:
        """Read a body, and answer it in a thread of its own."""
        size, body = int(request.headers.get("content-length", 0)), bytearray()
        self._check_size(size)  # if it is refused, uvicorn discards the body
        async for part in request.stream():
            body += part
            self._check_size(len(body))
        return await anyio.to_thread.run_sync(
            lambda: _json(answer(bytes(body))), limiter=self._slots
        )

    def _check_size(self, size: int) -> None:
        most = self.limits.max_bytes
        if size > most:
            raise TooLargeError(f"The body must not exceed {most} bytes. Received: {size}.")

    async def _metadata(self, request: Request) -> Response:
        model = self._asked(request)
        name, version = request.path_params["name"], str(model.version)
        spec = {"name": name, "signature_name": "", "version": version}
        signatures = {"signature_def": {"signature_def": definitions(model.interfaces)}}
        return _json({"model_spec": spec, "metadata": signatures})

    async def _status(self, request: Request) -> Response:
        model = self._asked(request)
        status = {"error_code": "OK", "error_message": ""}
        told = {"version": str(model.version), "state": "AVAILABLE", "status": status}
        document: JSONObject = {"model_version_status": [told]}
        if "version" not in request.path_params:  # OpenAI's clients ask for a model here
            document |= model_object(request.path_params["name"], self._created)
        return _json(document)

    async def _models(self, request: Request) -> Response:
        data = [model_object(name, self._created) for name in self.models]
        return _json({"object": "list", "data": data})

    def _asked(self, request: Request) -> Served:
        """Return the model that a request names, if the server has it in this version."""
        name, version = request.path_params["name"], request.path_params.get("version")
        if ":" in name:  # an unknown method, or a GET request for a method
            _refuse(request)
        model = self.models.get(name)
        if model is None or version not in (None, model.version):
            known = (
                f"version {one.version} of the model {key}" for key, one in self.models.items()
            )
            raise HTTPException(
                404, f"{request.url.path} does not exist. This server has only {', '.join(known)}."
            )
        return model


def predict(model: Served, body: bytes, limits: Limits) -> JSONObject:
    """Return the response to the body of a request to `:predict`.

    Raises:
        TooLargeError: The request exceeds a limit.
        ValueError: The request does not match the signature.
    """
    document = read_object(body)
    name: Any = document.get(SIGNATURE_NAME, "")
    signature = DEFAULT_SIGNATURE if name == "" else name
    specs = find_interface(model.interfaces, signature).inputs
    columns, by_rows = request_columns(document, specs)
    return response(ask(model, signature, columns, limits), by_rows)


def load(path: PathLike, *, verify: bool = True, allow_files: bool = False) -> Served:
    """Load a SavedModel, or without importing TensorFlow a folder of `export_onnx`.

    The arguments and errors are those of `ServedModel` and `ServedONNX`.
    """
    if has_file(pathlib.Path(path) / ONNX_FILE):
        from keras_bert_d2l.serving.server.served_onnx import ServedONNX

        return ServedONNX(path, verify=verify)
    from keras_bert_d2l.serving.server.served_model import ServedModel

    return ServedModel(path, verify=verify, allow_files=allow_files)


def serve(
    *paths: PathLike,
    name: str | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    limits: Limits = Limits(),  # noqa: B008, it is immutable
    verify: bool = True,
    allow_files: bool = False,
) -> None:
    """Serve the newest version of each model at one address until Ctrl-C.

    Args:
        *paths: For each model, the folder with the numbered versions, the folder of one version, or
            a folder of `export_onnx`.
        name: Name in the routes, for a single model. Defaults to the folder name.
        host: Address of this machine to listen on.
        port: Port to listen on. 0: any free port.
        limits: Limits of one request.
        verify: As for `ServedModel`.
        allow_files: As for `ServedModel`.

    Raises:
        FileNotFoundError: The folder contains no version.
        ValueError: As for `ServedModel` and `LocalServer`.
        OSError: The port is already in use.
    """
    with listen(host, port) as found:
        models = [load(path, verify=verify, allow_files=allow_files) for path in paths]
        server = LocalServer(models, name, limits=limits)
        for path, (key, model) in zip(paths, server.models.items(), strict=True):
            url = f"{url_of(found)}/v1/models/{key}"
            print(f"Serving {os.fspath(path)}, version {model.version}, at {url}")
        print("This is a development server. Press Ctrl-C to stop it.", flush=True)
        _uvicorn(server).run(sockets=[found])


@contextlib.contextmanager
def running(server: LocalServer) -> Iterator[str]:
    """Run a server in a background thread, to test a client.

    Args:
        server: The server.

    Yields: URL of the server, such as `"http://127.0.0.1:40123"`. The server stops when the block
        ends.

    Raises:
        RuntimeError: The server does not start.

    Example:

    ```python
    with running(LocalServer(ServedModel("saved_models/mine"))) as url:
        ServingClient(url, "mine").predict({"text": ["a text"]}, "embed")
    ```
    """
    with listen(port=0) as found:
        runner = _uvicorn(server)
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        while not runner.started:
            if not thread.is_alive():
                raise RuntimeError("The server did not start. See the messages above.")
            time.sleep(0.01)
        try:
            yield url_of(found)
        finally:
            runner.should_exit = True
            thread.join()


def listen(host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> socket.socket:
    """Return a socket that listens on a free port.

    Raises:
        OSError: The port is already in use, or the host is not this machine.
        OverflowError: The port is out of range.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family)
    # Connections inherit this. Otherwise, the body of a response waits for the client to confirm
    # its head, which takes up to 40 ms.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def url_of(found: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn(server: LocalServer) -> uvicorn.Server:
    config = uvicorn.Config(
        server.app(),
        log_config=None,  # uvicorn's default would close the log handlers of this process
        log_level="warning",
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return uvicorn.Server(config)


def _json(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    # Starlette's JSONResponse rejects NaN and Infinity, which TensorFlow Serving writes.
    return Response(json.dumps(document), status, headers, "application/json")


def _refuse(request: Request) -> NoReturn:
    path = request.url.path
    raise HTTPException(
        400 if path.startswith("/v1/") else 404,
        f"Malformed request: {request.method} {path}. The routes are GET /v1/models, POST "
        f"{', '.join(_OF_MODELS)}, GET /v1/models/NAME, GET /v1/models/NAME/metadata and "
        "POST /v1/models/NAME:predict.",
    )


async def _error_response(request: Request, error: Exception) -> Response:
    status, message, headers = 500, f"{type(error).__name__}: {error}", None
    match error:
        case HTTPException():
            status, message, headers = error.status_code, error.detail, error.headers
        case TooLargeError():
            status, message = 413, str(error)
        case ClientDisconnect() | ValueError():
            status = 404 if getattr(error, "code", None) else 400  # of a model that is not here
            message = str(error)
    path = request.url.path
    of_openai = path.startswith(("/v1/", "/v2/")) and "/v1/models/" not in path
    document = {"error": error_object(message, status, error) if of_openai else message}
    if path in reranking.ROUTES:
        document |= {"message": message, "detail": message}  # for clients of Cohere and Voyage
    elif path == reranking.TEI_ROUTE:
        document["error_type"] = "Validation" if status < 500 else "Backend"
    return _json(document, status, headers)
