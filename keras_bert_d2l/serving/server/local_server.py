"""A SavedModel in, a small server with TensorFlow Serving's REST routes out.

For trying a model and for testing clients, not for production: it has no batching of requests, no
metrics and no limits on its work. See tensorflow.org/tfx/serving/api_rest for the routes.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_bert_d2l.serving.protocol.rest_json import (
    read_object,
    request_arrays,
    response,
    signature_name,
)
from keras_bert_d2l.serving.protocol.tensors import find_interface
from keras_bert_d2l.serving.server.classify_regress import ask_method
from keras_bert_d2l.serving.server.versions import ServedVersions, Version

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8501
MAX_BODY = 16 * 2**20  # bytes
_MAX_PORT = 2**16 - 1
_POLL_SECONDS = 1.0
_GRACE_SECONDS = 5  # for what is being answered when the server is stopped
_NAME = re.compile(r"[^/:]+")
_PREDICT, _METHODS = "predict", ("classify", "regress")


class LocalServer:
    """Answers for the versions of one model.

    Args:
        versions: The versions.
        name: The model's name in the routes.
        poll_seconds: Seconds between two looks for a newer version.
        max_body: Most bytes of a request.

    Raises:
        ValueError: The name does not fit into a route.
    """

    def __init__(
        self,
        versions: ServedVersions,
        name: str,
        *,
        poll_seconds: float = _POLL_SECONDS,
        max_body: int = MAX_BODY,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"The name must be without '/' and ':'. Received: {name!r}.")
        self.versions = versions
        self.name = name
        self._poll_seconds = poll_seconds
        self._max_body = max_body

    def app(self) -> Starlette:
        """Returns the ASGI application."""
        model = "/v1/models/{name}"
        routes: list[BaseRoute] = [
            route
            for place in (f"{model}/versions/{{version:int}}", model)
            for route in (
                Route(place + ":{method}", self._ask, methods=["POST"]),
                Route(place + "/metadata", self._metadata),
                Route(place, self._status),
            )
        ]
        routes.append(Route("/v1/{rest:path}", _malformed, methods=["GET", "POST"]))
        handlers: dict[Any, Any] = {
            HTTPException: _failed,
            ClientDisconnect: _refused,
            ValueError: _refused,
            Exception: _broke,
        }
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._polling)
        app.router.redirect_slashes = False  # TensorFlow Serving has no such redirections
        return app

    async def _ask(self, request: Request) -> Response:
        version, method = self._version(request), request.path_params["method"]
        if method != _PREDICT and method not in _METHODS:
            raise _malformation(request)
        body = await self._body(request)
        answer = _predict if method == _PREDICT else ask_method
        return await run_in_threadpool(lambda: _json(answer(version, body, method)))

    async def _metadata(self, request: Request) -> Response:
        version = self._version(request)
        definitions = {
            name: json_format.MessageToDict(
                definition,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            for name, definition in version.definitions.items()
        }
        spec = {"name": self.name, "signature_name": "", "version": str(version.number)}
        signatures = {"signature_def": {"signature_def": definitions}}
        return _json({"model_spec": spec, "metadata": signatures})

    async def _status(self, request: Request) -> Response:
        states = self._known(request).states()
        number = request.path_params.get("version")
        if number is not None and number not in states:
            raise HTTPException(404, f"Could not find version {number} of model {self.name}")
        shown = states if number is None else {number: states[number]}
        return _json(
            {
                "model_version_status": [
                    {
                        "version": str(one),
                        "state": state,
                        "status": {
                            "error_code": "UNKNOWN" if message else "OK",
                            "error_message": message,
                        },
                    }
                    for one, (state, message) in sorted(shown.items(), reverse=True)
                ]
            }
        )

    def _known(self, request: Request) -> ServedVersions:
        name = request.path_params["name"]
        if ":" in name:  # a method that is asked by GET
            raise _malformation(request)
        if name != self.name:
            raise HTTPException(404, f"Could not find any versions of model {name}")
        return self.versions

    def _version(self, request: Request) -> Version:
        number = request.path_params.get("version")
        version = self._known(request).find(number)
        if version is None:
            raise HTTPException(404, f"Servable not found for request: {self.name} {number}")
        return version

    async def _body(self, request: Request) -> bytes:
        body, size = [], 0
        # Read to the end in any case: a client that is still sending would miss the answer.
        async for part in request.stream():
            size += len(part)
            if size <= self._max_body:
                body.append(part)
        if size > self._max_body:
            raise HTTPException(413, f"The body must have at most {self._max_body} bytes.")
        return b"".join(body)

    @contextlib.asynccontextmanager
    async def _polling(self, app: Starlette) -> AsyncIterator[None]:
        async def poll() -> None:
            while True:
                await asyncio.sleep(self._poll_seconds)
                await run_in_threadpool(self.versions.refresh)

        task = asyncio.create_task(poll())
        yield
        task.cancel()


def serve(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
) -> None:
    """Serves the newest version of a model until Ctrl-C.

    Args:
        path: The folder with the numbered versions, or the folder of one version.
        name: The model's name in the routes; `None`: that of the folder.
        host: Address of this machine.
        port: 0 is any that is free.

    Raises:
        FileNotFoundError: There is no version.
        ValueError: The newest version cannot be loaded, or the name does not fit into a route.
        OSError: The port is taken.
    """
    with listen(host, port) as found:
        versions = ServedVersions(path)
        server = LocalServer(versions, name or versions.name)
        url = f"{url_of(found)}/v1/models/{server.name}"
        print(f"Serving {os.fspath(path)}, version {versions.newest.number}, at {url}")
        print("For trying and for testing clients, not for production. Ctrl-C ends it.", flush=True)
        _uvicorn(server).run(sockets=[found])


@contextlib.contextmanager
def running(server: LocalServer) -> Iterator[str]:
    """Runs a server in a thread of this process, for the tests of a client.

    Args:
        server: The server.

    Yields: where it is, such as `"http://127.0.0.1:40123"`; it ends with the block.

    Raises:
        RuntimeError: It does not start.

    Example:

    ```python
    with running(LocalServer(ServedVersions("saved_models/mine"), "mine")) as url:
        ServingClient(url, "mine").embed("a text")
    ```
    """
    with listen(port=0) as found:
        runner = _uvicorn(server)
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        while not runner.started:
            if not thread.is_alive():
                raise RuntimeError("The server does not start: see the messages above.")
            time.sleep(0.01)
        try:
            yield url_of(found)
        finally:
            runner.should_exit = True
            thread.join()


def listen(host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> socket.socket:
    """Returns a socket on which nobody else listens.

    Raises:
        ValueError: The port is out of range.
        OSError: The port is taken, or the host is not this machine.
    """
    if not 0 <= port <= _MAX_PORT:
        raise ValueError(f"`port` must be from 0 to {_MAX_PORT}. Received: port={port!r}.")
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if os.name != "nt":  # there the option would share a port that is taken
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()  # from now on nobody else can
    except OSError as error:
        found.close()
        raise OSError(
            f"Cannot listen at {host}:{port} ({error.strerror or error}): choose another "
            "port, or an address of this machine."
        ) from error
    return found


def url_of(found: socket.socket) -> str:
    """Returns the address of a socket."""
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn(server: LocalServer) -> uvicorn.Server:
    config = uvicorn.Config(
        server.app(),
        log_config=None,  # its own would close the handlers that the process has for its logs
        log_level="warning",
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return uvicorn.Server(config)


def _predict(version: Version, body: bytes, method: str) -> dict[str, Any]:
    document = read_object(body)
    signature = signature_name(document)
    interface = find_interface(version.interfaces, signature)
    inputs, by_rows = request_arrays(document, interface.inputs)
    return response(version.ask(signature, inputs), by_rows)


def _json(document: Any, status: int = 200) -> Response:
    # Not starlette's JSONResponse: TensorFlow Serving writes NaN and Infinity as they are.
    return Response(json.dumps(document), status, media_type="application/json")


async def _malformed(request: Request) -> Response:
    raise _malformation(request)


def _malformation(request: Request) -> HTTPException:
    return HTTPException(400, f"Malformed request: {request.method} {request.url.path}")


async def _failed(request: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail}, error.status_code)


async def _refused(request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 400)


async def _broke(request: Request, error: Exception) -> Response:
    return _json({"error": f"{type(error).__name__}: {error}"}, 500)
