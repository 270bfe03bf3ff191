# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""A folder of files as a site, and a page of it in headless Chromium, driven over the DevTools pipe."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limits import HANG


class _Files(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which a folder is served while the context lasts."""
    handler = functools.partial(_Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class BrowserError(RuntimeError):
    """What the browser refused."""


class Browser:
    """Headless Chromium with one page; a context manager."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command = [program, *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The browser reads file descriptor 3 and writes 4; the program may be a script around it.
        plumbing = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", plumbing, *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._replies = os.fdopen(self._read, "rb", buffering=0)
        self._pending = b""
        self._id = 0
        self._session: str | None = None

    def __enter__(self) -> Browser:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # the whole group: the program is a wrapper
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        self._replies.close()

    def open(self, address: str) -> None:
        """Goes to an address. Raises BrowserError when there is no page."""
        if failure := self._call("Page.navigate", url=address).get("errorText"):
            raise BrowserError(f"{address}: {failure}")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises RuntimeError when it throws."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Waits until an expression is true. Raises TimeoutError with the page's text."""
        end = time.monotonic() + HANG
        while not (value := self._evaluate_now(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression}\n{self.evaluate('document.body?.innerText')}")
            time.sleep(0.2)
        return value

    def _evaluate_now(self, expression: str) -> Any:
        """The value of an expression; None while one page gives way to the next and there is none to ask."""
        try:
            return self.evaluate(expression)
        except BrowserError:
            return None

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == self._id:
                if "error" in reply:
                    raise BrowserError(f"{method}: {reply['error']}")
                return dict(reply["result"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            if not select.select([self._replies], [], [], HANG)[0]:
                raise TimeoutError(f"the browser has said nothing for {HANG} s")
            part = self._replies.read(1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._pending += part
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))
