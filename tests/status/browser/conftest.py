"""The status page in the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ACTION_TIMEOUT_MS = 10_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "no Chromium on the PATH: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`open_page(url, **context)`: a page of its own; the test fails if it breaks the policy or leaves the server."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_(url: str, **options: object) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(_ACTION_TIMEOUT_MS)
        page = context.new_page()
        origin = "/".join(url.split("/")[:3])
        page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda r: r.url.startswith(origin) or complaints.append(f"request to {r.url}"))
        page.on("console", lambda m: "Content Security Policy" in m.text and complaints.append(m.text))
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
