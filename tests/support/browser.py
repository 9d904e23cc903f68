"""A real browser, where there is one: Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where this machine has none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium here: Debian's package `chromium` has it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the browser that keeps what went wrong in it: errors of its scripts, and what its policy forbids."""

    def __init__(
        self, browser: Browser, *, width: int = 1280, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> None:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, url: str) -> Page:
        self.page.goto(url)
        return self.page

    def barriers(self) -> list[str]:
        """What keeps somebody out who does not see, or sees little: by axe, of its rules for WCAG 2.1 A and AA."""
        rules: dict[str, Any] = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
        found = Axe().run(self.page, options=rules)
        return [f"{one['id']}: {node['html'][:120]}" for one in found["violations"] for node in one["nodes"]]

    def is_too_wide(self) -> bool:
        """Whether it has to be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
