"""A server on this machine that speaks the Hugging Face Hub's HTTP API for downloads."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class LocalHub:
    """Serve folders as models until the end of a `with` block.

    Attributes:
        folders: Maps the id and the revision of a model to a local folder.
        broken: Names of files that cannot be downloaded.
        requests: The method and the path of each request.
        url: The address of the server.
    """

    def __init__(self) -> None:
        self.folders: dict[tuple[str, str], Path] = {}
        self.broken: set[str] = set()
        self.requests: list[str] = []

    def __enter__(self) -> "LocalHub":
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, model: str, folder: Path, revision: str = "main") -> str:
        """Serve a folder and return its commit."""
        self.folders[model, revision] = folder
        commit = commit_of(model, revision)
        self.folders[model, commit] = folder
        return commit

    def downloaded(self) -> set[str]:
        """Return the names of the files whose content has been requested."""
        found = (re.fullmatch(r"GET .+/resolve/[^/]+/(.+)", line) for line in self.requests)
        return {match[1] for match in found if match}


def commit_of(model: str, revision: str) -> str:
    if len(revision) == 40:
        return revision
    return hashlib.sha1(f"{model}@{revision}".encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["api", "models", owner, name, kind, revision]:
                wanted = ""
            case [owner, name, "resolve" as kind, revision, *rest]:
                wanted = "/".join(rest)
            case _:
                self._send(b"", 404, {})
                return
        model = f"{owner}/{name}"
        if error := self._error(model, revision):
            self._send(b"", *error)
            return
        folder, commit = self.hub.folders[model, revision], commit_of(model, revision)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        if kind == "revision":
            siblings = [{"rfilename": name} for name in names]
            self._send_json({"id": model, "sha": commit, "siblings": siblings})
        elif kind == "tree":
            entries = zip(names, files, strict=True)
            self._send_json(
                [
                    {"type": "file", "path": n, "size": f.stat().st_size, "oid": _sha1(f)}
                    for n, f in entries
                ]
            )
        elif wanted in self.hub.broken:
            self._send(b"", 403, {})
        elif (file := folder / wanted).is_file():
            headers = {"ETag": f'"{_sha1(file)}"', "X-Repo-Commit": commit}
            self._send(file.read_bytes(), 200, headers)
        else:
            self._send(b"", 404, {"X-Error-Code": "EntryNotFound"})

    def _error(self, model: str, revision: str) -> tuple[int, dict[str, str]] | None:
        if not any(known == model for known, _ in self.hub.folders):
            return 401, {"X-Error-Code": "RepoNotFound"}  # as for every anonymous reader
        if (model, revision) not in self.hub.folders:
            return 404, {"X-Error-Code": "RevisionNotFound"}
        return None

    def _send_json(self, content: object) -> None:
        self._send(json.dumps(content).encode(), 200, {"Content-Type": "application/json"})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _sha1(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
