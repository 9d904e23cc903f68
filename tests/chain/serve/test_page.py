"""The page on the real chain, in a real browser: what it shows, what its buttons do, and why a document is as it is.

`DRIFTLESS_PICTURES=docs/pictures pytest tests/chain/serve/test_page.py` makes the pictures of docs/serve.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import urllib3
from playwright.sync_api import Browser, Page, expect

from tests.chain.conftest import MakePipeline
from tests.chain.support.serving import Serving
from tests.support.browser import Tab, chromium
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

PRODUCT, ORDER = View("product", "public.products"), View("order", "public.orders")
TOKEN = "token-of-the-page-0123456789"  # noqa: S105
SECRET = "Waterproof-secret-4711"  # noqa: S105
INDEX = {"mapping": {"dynamic": False, "properties": {"price": {"type": "integer"}}}}
PICTURES = os.environ.get("DRIFTLESS_PICTURES")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table products (id text primary key, title text, price text)")
    source.execute("create table orders (id int primary key, product_id text references products, status text)")
    source.execute("insert into products select n::text, 'product ' || n, n::text from generate_series(1, 40) n")
    source.execute("insert into products values (%s, %s, '7')", (SECRET, SECRET))
    source.execute("insert into orders select n, n::text, 'open' from generate_series(1, 40) n")
    pipeline = make_pipeline(
        PRODUCT,
        tables={"public.products": {}, "public.orders": {}},
        index=INDEX,
        secrets={"DRIFTLESS_SERVE_TOKEN": TOKEN},
    )
    one = {"product": {"table": "public.products", "by": "product_id", "columns": ["title"]}}
    pipeline.sync["views"]["order"] = {"root": "public.orders", "one": one}
    pipeline.follow("order-cache", ORDER, {"redis": {}})
    pipeline.apply()
    pipeline.run()
    pipeline.wait()
    return pipeline


@pytest.fixture(scope="module")
def serving(pipeline: Pipeline) -> Serving:
    return Serving(pipeline)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser: Browser, serving: Serving) -> Tab:
    tab = Tab(browser, height=1400)
    tab.open(serving.url)
    tab.page.evaluate("token => sessionStorage.setItem('token', token)", TOKEN)
    tab.page.reload()
    expect(tab.page.locator("#connection")).to_have_text(re.compile("live"))
    return tab


def asked(serving: Serving, path: str, token: str | None = TOKEN) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = urllib3.request("GET", serving.url + path, headers=headers, timeout=120, retries=False)
    return answer.status, answer.data.decode()


def do(page: Page, verb: str, follower: str, said: str) -> None:
    """Press a button, say yes, and read what was done."""
    page.get_by_role("button", name=re.compile(f"^{verb} {follower}")).first.click()
    page.locator("#ask-yes").click()
    expect(page.locator("#ask-answer")).to_have_text(re.compile(said), timeout=40_000)
    page.get_by_role("button", name="Close").click()


def spoil(pipeline: Pipeline, key: str) -> None:
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        name = pipeline.stores["product-cache"].name((key,))
        client.set(name, json.dumps({"id": key, "title": "of nobody", "price": key}))


def test_the_picture_is_that_of_the_pipeline(pipeline: Pipeline, tab: Tab) -> None:
    boxes = tab.page.locator("[data-box]")
    expect(boxes.locator("h4")).to_have_text(
        [
            "Postgres",
            "Debezium",
            "products",
            "orders",
            "product",
            "order",
            "product-search",
            "product-cache",
            "order-cache",
        ]
    )
    reads = {box.get_attribute("data-box"): json.loads(box.get_attribute("data-reads") or "") for box in boxes.all()}
    assert reads["view order"] == ["table public.orders", "table public.products"]
    assert reads["follower order-cache"] == ["view order"]
    lines = tab.page.locator("#lines path").count()
    assert lines == sum(map(len, reads.values()))
    before = tab.page.locator("[data-box='follower product-cache'] dd").first.inner_text()
    pipeline.connection.execute("update products set title = title || '!' where id = '3'")
    pipeline.wait()
    expect(tab.page.locator("[data-box='follower product-cache'] dd").first).not_to_have_text(before)


def test_charts_show_what_happened(pipeline: Pipeline, tab: Tab) -> None:
    for n in range(1, 30):
        pipeline.connection.execute("update products set title = title || '.' where id = %s", (str(n),))
    charts = tab.page.locator(".charts[data-follower='product-cache']")
    charts.scroll_into_view_if_needed()
    expect(charts.locator("canvas")).to_have_count(3, timeout=30_000)
    expect(charts.locator("output[data-shows='rate']")).to_have_text(re.compile(r"at most [\d.]+/s"), timeout=30_000)
    expect(charts.locator("output[data-shows='p99']")).to_have_text(re.compile(r"^[\d.]+ s, at most"), timeout=30_000)


def test_why_a_document_is_as_it_is(pipeline: Pipeline, tab: Tab) -> None:
    done = pipeline.here("why", "product-cache", "5", "--json")
    assert done.code == 0, done.err
    assert done.json()["verdict"] == "every stage holds the same"
    assert [stage["name"] for stage in done.json()["stages"]] == [
        "source",
        "table-log",
        "follower product-search",
        "follower product-cache",
    ]
    versions = {stage["version"] for stage in done.json()["stages"][1:]}
    assert len(versions) == 1
    assert "product 5" not in done.out, "values are shown on request alone"
    spoil(pipeline, "5")
    page = tab.page
    page.get_by_role("combobox", name="Follower").select_option("product-cache")
    page.get_by_role("textbox", name="Key").fill("5")
    page.get_by_role("button", name="Look").click()
    answer = page.locator("#why-answer")
    expect(answer.locator("strong")).to_have_text(
        "follower product-cache differs in title, and table-log is the last that is right", timeout=60_000
    )
    expect(answer.locator("li.bad h3")).to_have_text("follower product-cache")
    expect(answer.locator("li.bad mark")).to_have_text('"title": "of nobody"')
    assert tab.barriers() == []
    if PICTURES:
        answer.scroll_into_view_if_needed()
        page.locator("#why").screenshot(path=Path(PICTURES) / "why.png")
    found = pipeline.here("why", "product-cache", "5", "--values", "--json")
    assert found.code == 1
    assert (found.json()["first_different"], found.json()["fields"]) == ("follower product-cache", ["title"])
    joined = pipeline.here("why", "order-cache", "7", "--json").json()
    assert [stage["name"] for stage in joined["stages"]] == ["source", "table-log", "view-log", "follower order-cache"]
    assert joined["verdict"] == "every stage holds the same"
    nothing = pipeline.here("why", "product-cache", "none")
    assert nothing.out.splitlines()[-1] == "product-cache none: no stage holds a document of this key"
    assert pipeline.here("why", "nobody", "5").code == 2
    pipeline.connection.execute("update products set title = title || '+' where id = '5'")
    pipeline.wait()
    assert pipeline.here("why", "product-cache", "5").code == 0, "the next change mends it"


def test_nothing_of_a_row_is_shown_without_the_token(pipeline: Pipeline, serving: Serving, browser: Browser) -> None:
    """Neither a value nor a key, also of a document that is quarantined."""
    pipeline.connection.execute("update products set price = 'dear' where id = %s", (SECRET,))
    until("it to be quarantined", lambda: serving.figure("follower_quarantined_documents", follower="product-search"))
    paths = [
        "/",
        "/status",
        "/metrics",
        "/history?follower=product-search",
        f"/why?follower=product-cache&key={SECRET}",
    ]
    for path in paths:
        assert SECRET not in asked(serving, path, None)[1], path
        assert "product 3" not in asked(serving, path, None)[1], path
    assert asked(serving, paths[-1], None)[0] == 401
    assert asked(serving, paths[-1], "wrong-token-0123456789")[0] == 401
    assert SECRET in asked(serving, paths[-1])[1], "with the token it is shown"
    page = Tab(browser).open(serving.url)
    expect(page.locator("#part-quarantine")).to_contain_text("mapper_parsing_exception", timeout=30_000)
    expect(page.locator("#connection")).to_have_text(re.compile("live"))
    assert SECRET not in page.content()
    assert SECRET not in serving.job.output()


def test_the_buttons_do_what_the_commands_do(pipeline: Pipeline, tab: Tab) -> None:
    page = tab.page
    page.reload()
    do(page, "retry", "product-search", "0 written, 1 still quarantined")
    pipeline.connection.execute("update products set price = '8' where id = %s", (SECRET,))
    expect(page.locator("#part-quarantine")).to_have_text("Nothing is quarantined.", timeout=60_000)
    do(page, "pause", "product-cache", "product-cache is paused")
    until("it to be paused", lambda: pipeline.follower("product-cache")["state"] == "paused")
    do(page, "resume", "product-cache", "product-cache goes on")
    until("it to go on", lambda: pipeline.follower("product-cache")["state"] == "live")
    do(page, "rebuild", "product-cache", "generation 2 is being built")
    until("readers to see it", lambda: pipeline.follower("product-cache")["generation"] == 2, 120)
    expect(page.get_by_role("button", name="back product-cache generation 1")).to_be_visible()
    if PICTURES:
        pictures(page, tab)
    do(page, "back", "product-cache", "readers see generation 1")
    assert pipeline.follower("product-cache")["generation"] == 1
    do(page, "verify", "product-cache", "is being verified")
    proofs = page.locator("#part-proofs")
    expect(proofs).to_contain_text("product-cache is being verified")
    row = proofs.get_by_role("row").filter(has_text="product-cache")
    expect(row).to_contain_text("in sync", timeout=120_000)
    assert tab.wrong == []
    assert pipeline.status()["problems"] == []


def pictures(page: Page, tab: Tab) -> None:
    """Those of docs/serve.md: as wide as a laptop, and as a phone, in the dark."""
    folder = Path(PICTURES or "")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=folder / "page.png")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 360, "height": 760})
    page.wait_for_timeout(1500)  # the charts are drawn again
    page.screenshot(path=folder / "phone.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 1400})
    assert tab.wrong == []


def test_an_action_is_refused_with_what_to_do(pipeline: Pipeline, serving: Serving) -> None:
    def post(verb: str, body: Any, **headers: str) -> tuple[int, str]:
        said = json.dumps(body).encode() if not isinstance(body, bytes) else body
        given = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
        url = f"{serving.url}/actions/{verb}"
        answer = urllib3.request("POST", url, body=said, headers=given, timeout=30, retries=False)
        return answer.status, answer.data.decode()

    who = {"follower": "product-cache", "generation": None}
    assert post("promote", {**who, "generation": 99})[0] == 409
    assert "has no generation 99" in post("promote", {**who, "generation": 99})[1]
    assert post("pause", {**who, "follower": "product-cashe"}) == (
        409,
        '{"error":"there is no follower `product-cashe`; did you mean `product-cache`?; name a follower of sync.yaml"}',
    )
    assert post("destroy", who)[0] == 400
    assert post("pause", b"{" * 100_000)[0] == 400
    assert post("pause", b"x" * 1_000_000)[0] == 400
    assert post("pause", {**who, "follower": 7})[0] == 400
    assert post("pause", who, **{"content-type": "text/plain"})[0] == 400
    assert post("pause", who, origin="https://evil.example")[0] == 403
    assert post("pause", who, **{"sec-fetch-site": "cross-site"})[0] == 403
    assert post("pause", who, authorization="Bearer wrong-token-0123456789")[0] == 401
    assert pipeline.follower("product-cache")["state"] == "live"
    next(job for job in pipeline.jobs() if job.running and job.arguments[0] == "run").stop()
    until("the lease to be given back", lambda: "nobody runs" in post("rebuild", who)[1])
