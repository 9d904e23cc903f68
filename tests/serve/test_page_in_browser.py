"""The page in a real browser, over facts that the test gives: who can use it, and what nobody can do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from driftless.facts.state import State
from driftless.metrics.figures import LogTails
from serve.facts.collector import Snapshot
from serve.facts.held import HeldCount
from serve.http.access import AccessRules
from tests.serve.service import FACTS, FOLLOWER, TOKEN, KnownActions, KnownFacts, served
from tests.support.browser import Tab, chromium

EVIL = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"
PROBLEM = {"kind": "waiting", "who": "follower item-cache", "what": "Redis is full", "do": "run `driftless check`"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class ChangingFacts(KnownFacts):
    """`facts`: what is shown next."""

    def __init__(self, **facts: Any) -> None:
        super().__init__()
        self.facts: dict[str, Any] = {**FACTS, **facts}

    def look(self) -> Snapshot:
        return Snapshot(1_700_000_000.0, 1_700_000_000.0, State({}), self.facts, LogTails({"public.items": 7}), None)


def trouble(**more: Any) -> dict[str, Any]:
    return {**PROBLEM, "since": 1_699_999_000.0, **more}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_can_be_read_by_everybody(browser: Browser, scheme: Literal["light", "dark"], width: int) -> None:
    facts = ChangingFacts(problems=[trouble()], warnings=["run `driftless verify`"])
    facts.quarantine = [HeldCount("item-cache", 1, "mapper_parsing_exception", 3, 1_699_999_000.0)]
    with served(facts=facts) as port:
        tab = Tab(browser, width=width, scheme=scheme)
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#connection")).to_have_text(re.compile("live, as of"))
        assert tab.barriers() == []
        assert not tab.is_too_wide()
        page.get_by_role("button", name="pause item-cache").click()
        assert tab.barriers() == [], "the dialog"
        assert tab.wrong == []


def test_all_of_it_is_told_without_colors_or_pictures(browser: Browser) -> None:
    with served(facts=ChangingFacts(problems=[trouble()])) as port:
        page = Tab(browser).open(f"http://127.0.0.1:{port}/")
        expect(page.get_by_role("region", name="What is wrong")).to_contain_text("follower item-cache: Redis is full")
        expect(page.get_by_role("region", name="What is wrong")).to_contain_text("run driftless check")
        pipeline = page.get_by_role("region", name="Pipeline")
        expect(pipeline.get_by_role("heading", level=3)).to_have_text(
            ["Source", "Connector", "Topics", "Views", "Followers"]
        )
        box = pipeline.get_by_role("listitem").filter(has=page.get_by_role("heading", name="item-cache")).last
        expect(box).to_contain_text("live")
        expect(box).to_contain_text("0/40")
        expect(box).to_contain_text("reads view item")
        expect(page.locator("#announce")).to_have_text("1 thing is wrong")
        expect(page).to_have_title("(1) shop - driftless")


def test_it_moves_as_the_pipeline_does_and_keeps_the_focus(browser: Browser) -> None:
    facts = ChangingFacts()
    with served(facts=facts) as port:
        tab = Tab(browser)
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#part-wrong")).to_have_text("All is well.")
        page.get_by_role("button", name="pause item-cache").focus()
        moved = {**FOLLOWER, "applied_lsn": "0/99", "state": "bootstrapping", "lag_seconds": 75.0}
        facts.facts = {**FACTS, "followers": [moved], "problems": [trouble()]}
        expect(page.locator("#part-map")).to_contain_text("0/99")
        expect(page.locator("#part-map")).to_contain_text("1.2 min")
        expect(page.locator("#part-wrong")).to_contain_text("Redis is full")
        expect(page.locator("#announce")).to_have_text("1 thing is wrong")
        expect(page.get_by_role("button", name="pause item-cache")).to_be_focused()
        assert tab.wrong == []


def test_it_says_when_the_service_is_gone_and_comes_back_by_itself(browser: Browser) -> None:
    tab = Tab(browser)
    with served(facts=ChangingFacts()) as port:
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#connection")).to_have_text(re.compile("live"))
    expect(page.locator("#connection")).to_have_text(re.compile("not connected"))
    with served(facts=ChangingFacts(problems=[trouble()]), port=port):
        expect(page.locator("#connection")).to_have_text(re.compile("live"))
        expect(page.locator("#part-wrong")).to_contain_text("Redis is full")


def test_the_keyboard_is_enough(browser: Browser) -> None:
    actions = KnownActions()
    with served(facts=ChangingFacts(), actions=actions) as port:
        page = Tab(browser).open(f"http://127.0.0.1:{port}/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.action") == "pause":
                break
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="pause item-cache?")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="pause item-cache")).to_be_focused()
        assert actions.done == []
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="Token")).to_be_visible()
        page.keyboard.type(TOKEN)
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#ask-answer")).to_have_text("pause is done")
        assert actions.done == [("pause", "item-cache", None)]


def test_nothing_is_done_without_a_question_and_the_token(browser: Browser) -> None:
    actions = KnownActions()
    with served(facts=ChangingFacts(), actions=actions) as port:
        page = Tab(browser).open(f"http://127.0.0.1:{port}/")
        page.get_by_role("button", name="rebuild item-cache").click()
        expect(page.get_by_role("dialog")).to_contain_text("builds a new generation from the log")
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="pause item-cache").click()
        page.get_by_role("button", name="pause", exact=True).click()
        page.get_by_role("textbox", name="Token").fill("not-the-token-0123456789")
        page.get_by_role("button", name="Use it", exact=True).click()
        expect(page.locator("#ask-answer")).to_have_text("this is not the token")
        assert actions.done == []
        assert page.evaluate("sessionStorage.getItem('token')") is None


def test_where_there_is_no_token_it_says_that_it_only_shows(browser: Browser) -> None:
    with served(AccessRules(None, open=True), facts=ChangingFacts()) as port:
        page = Tab(browser).open(f"http://127.0.0.1:{port}/")
        page.get_by_role("button", name="pause item-cache").click()
        page.get_by_role("button", name="pause", exact=True).click()
        expect(page.get_by_role("dialog", name="Token")).to_contain_text("started without a token, so it only shows")


def test_on_another_address_the_page_has_nothing_before_the_token(browser: Browser) -> None:
    with served(AccessRules(TOKEN, open=False), facts=ChangingFacts(problems=[trouble()])) as port:
        tab = Tab(browser)
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#connection")).to_have_text("the token is needed")
        content = page.content()
        for told in ("shop", "item-cache", "Redis", "0/40", "public.items"):
            assert told not in content, told
        page.get_by_role("button", name="Enter the token").click()
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.get_by_role("button", name="Use it", exact=True).click()
        expect(page.locator("#part-wrong")).to_contain_text("Redis is full")
        expect(page.get_by_role("heading", level=1)).to_have_text("shop")
        assert not any(TOKEN in url for url in tab.asked), "a token in an address ends in logs"


def test_what_servers_say_is_text_and_never_a_script(browser: Browser) -> None:
    facts = ChangingFacts(problems=[trouble(what=EVIL, who=EVIL, do=EVIL)], warnings=[EVIL])
    facts.facts["followers"] = [{**FOLLOWER, "trouble": EVIL, "applied_lsn": EVIL, "state": EVIL}]
    facts.quarantine = [HeldCount(EVIL, 1, EVIL, 3, 1_699_999_000.0)]
    with served(facts=facts) as port:
        tab = Tab(browser)
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#part-wrong")).to_contain_text("onerror")
        expect(page.locator("#connection")).to_have_text(re.compile("live"))
        assert page.locator("main img").count() == 0
        assert "stolen" not in page.title()
        assert tab.wrong == []


def test_another_site_can_neither_frame_nor_read_nor_ask(browser: Browser) -> None:
    """The attacker's site is on another port, so another origin, and its script does all that one can try."""
    actions = KnownActions()
    with served(facts=ChangingFacts(), actions=actions) as port, served() as evil:
        target = f"http://127.0.0.1:{port}"
        tab = Tab(browser)
        page = tab.open(f"http://127.0.0.1:{evil}/healthz")
        tries = """async (target) => {
            const found = [];
            for (const [path, init] of [
                ["/status", {}],
                ["/status", { mode: "no-cors" }],
                ["/why?follower=item-cache&key=1", { credentials: "include" }],
                ["/actions/pause", { method: "POST", body: '{"follower":"item-cache","generation":null}' }],
                ["/actions/pause", { method: "POST", mode: "no-cors", body: '{"follower":"item-cache"}' }],
                ["/actions/pause", { method: "POST", headers: { authorization: "Bearer TOKEN", "content-type":
                    "application/json" }, body: '{"follower":"item-cache","generation":null}' }],
            ]) {
                try {
                    const answer = await fetch(target + path, init);
                    found.push(await answer.text());
                } catch { found.push(null); }
            }
            return found;
        }""".replace("TOKEN", TOKEN)
        page.goto("data:text/html,<p>evil</p>")
        got = page.evaluate(tries, target)
        assert [text or None for text in got] == [None] * 6
        assert actions.done == []
        page.set_content(f"<iframe src='{target}/'></iframe>")
        page.wait_for_timeout(500)
        frame = page.frames[-1]
        assert "chrome-error" in frame.url or frame.locator("h1").count() == 0


def test_the_page_asks_nobody_else(browser: Browser) -> None:
    with served(facts=ChangingFacts()) as port:
        tab = Tab(browser)
        page = tab.open(f"http://127.0.0.1:{port}/")
        expect(page.locator("#connection")).to_have_text(re.compile("live"))
        assert tab.asked
        assert [url for url in tab.asked if not url.startswith(f"http://127.0.0.1:{port}/")] == []
