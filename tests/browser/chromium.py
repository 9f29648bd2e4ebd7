"""A headless Chromium driven over the DevTools protocol, through a pipe: no driver, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE_S = 600
KEYS = {"Tab": ("Tab", 9), "Enter": ("\r", 13), " ": (" ", 32)}


class Chromium:
    """One page in a browser of its own. `events` holds everything the browser reported."""

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise FileNotFoundError("chromium is missing: apt install chromium")
        self.profile = tempfile.mkdtemp(prefix="vbstudy-chromium-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def pipes() -> None:  # Chromium reads its commands from descriptor 3 and answers on 4
            os.dup2(to_read, 30)
            os.dup2(to_write, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._count, self.session = b"", 0, ""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends one command and waits for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
        raise TimeoutError(method)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self.back, 1 << 20)
            if not data:
                raise ConnectionError("chromium ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path) -> None:
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        while True:
            try:
                answer = self.call(
                    "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
                )
                break
            except AssertionError as error:  # a live page reloads itself, perhaps while it is asked
                if not any(reason in str(error) for reason in ("target navigated", "execution context")):
                    raise
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text, code = KEYS[key]
        keys = {"key": key, "windowsVirtualKeyCode": code, "code": "Space" if key == " " else key}
        typed = {} if key == "Tab" else {"text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", **keys, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, *, width: int = 1280, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """The size of the window, the theme of the system, and `print` for the look of paper."""
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        # Styles follow at once; one frame of the page finds that, and the next tells the page's listeners.
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        found = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in found]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the content policy refused."""
        bad = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                bad.append(str(params["exceptionDetails"]))
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                bad.append(str(params["args"]))
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                bad.append(params["entry"]["text"])
        return bad

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)
