"""A headless Chromium without a network, driven through the DevTools protocol over two pipes."""

import base64
import contextlib
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60


def find_chromium() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One open page. `problems` has the errors and exceptions of its console."""

    def __init__(self, commands: int, messages: int) -> None:
        self._commands, self._messages = commands, messages
        self._numbers = itertools.count(1)
        self._pending = b""
        self._session: str | None = None
        self.problems: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def open(self, path: pathlib.Path, document: str = "document") -> None:
        """Open a file and wait until the model in a document of it has answered."""
        self.problems.clear()
        self.run("delete document.documentElement.dataset.ready")
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait(f"{document}?.documentElement?.dataset.ready")

    def run(self, script: str) -> Any:
        """Return the value of an expression, or of its promise, as JSON."""
        result = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}; {self.problems}")
            time.sleep(0.02)

    def click(self, expression: str) -> None:
        """Click the middle of an element with the mouse."""
        self.run(f"({expression}).scrollIntoView({{block: 'center'}})")
        box = self.run(f"({expression}).getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def look(self, *, width: int = 1280) -> None:
        """Set the width of the window, and the light color scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Emulation.setScrollbarsHidden", hidden=True)  # they narrow screenshots
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self, path: pathlib.Path) -> None:
        """Write a picture of the whole page."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (message := self._message()).get("id") != number:
            self._note(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def _message(self) -> dict[str, Any]:
        parts = [self._pending]
        while b"\0" not in parts[-1]:
            if not select.select([self._messages], [], [], SECONDS)[0]:
                raise TimeoutError("Chromium does not answer")
            parts.append(os.read(self._messages, 1 << 20))
        message, _, self._pending = b"".join(parts).partition(b"\0")
        return json.loads(message)

    def _note(self, message: dict[str, Any]) -> None:
        kind, parameters = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.problems.append(str(parameters["args"]))
        elif kind == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])


@contextlib.contextmanager
def browser(chromium: str, profile: pathlib.Path) -> Iterator[Page]:
    """Start Chromium and yield a page."""
    (read_commands, commands), (messages, write_messages) = os.pipe(), os.pipe()
    # Chromium reads commands from descriptor 3 and writes messages to descriptor 4.
    shell = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_messages}'
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
    # Chromium itself has no use for the network either.
    options += [
        f"--disable-{part}" for part in ("background-networking", "component-update", "sync")
    ]
    process = subprocess.Popen(
        ["bash", "-c", shell, chromium, *options],
        pass_fds=(read_commands, write_messages),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_messages)
    try:
        yield Page(commands, messages)
    finally:
        os.close(commands)
        os.close(messages)
        process.terminate()
        process.wait(SECONDS)
