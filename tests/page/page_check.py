#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators' page in Chromium: `scripts/test_page.sh` starts it.

Against a `stator serve` of the demo model, with keys and tenants: no accessibility violation (axe-core) in light and dark, on a wide and on
a narrow screen; every section shows what was really asked of the server; nothing is fetched from elsewhere; the time to the first paint and
the share of a core that the open page takes. Takes the screenshots of the docs with --screenshots FOLDER.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402
from stator_process import BINARY, MODEL_DIR, Http, Stator, clean_environment  # noqa: E402

FIRST_PAINT_MS_MAX = 300
CORE_SHARE_MAX = 0.01
WATCHED_S = 20
SCREENSHOT_BYTES_MAX = 150_000
QUESTION = "What is a KV cache?"


def new_key(role: str, tenant: str) -> tuple[str, str]:
    made = subprocess.run([BINARY, "key", "new", "--role", role, "--tenant", tenant, "--json"], env=clean_environment(),
                          capture_output=True, text=True, check=True)
    pair = json.loads(made.stdout)
    return pair["key"], pair["line"]


class Service:
    """A server with two tenants that have asked something, one of them too much."""

    def __init__(self, folder: pathlib.Path):
        made = {who: new_key(*who) for who in (("user", "acme"), ("user", "small"), ("operator", "ops"))}
        self.keys = {tenant: secret for (_, tenant), (secret, _) in made.items()}
        (folder / "keys").write_text("".join(line + "\n" for _, line in made.values()))
        (folder / "tenants").write_text("small requests_per_minute=2\n")
        # The simulated engine takes its time: what runs can be looked at.
        self.stator = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0.2", "--workers", "2", "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--api-keys",
                             str(folder / "keys"), "--tenants", str(folder / "tenants"))
        self.admin = f"http://127.0.0.1:{self.stator.ready['admin_port']}"
        for tenant, count in (("acme", 6), ("small", 3)):
            for number in range(count):
                self.chat(tenant, f"{number}: {QUESTION}")

    @contextlib.contextmanager
    def stream(self, text: str):
        """An answer that goes on for as long as the block."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stator.port, timeout=60)
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": 1500, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {self.keys['acme']}"})
        try:
            yield
        finally:
            connection.close()

    def chat(self, tenant: str, text: str, **more) -> int:
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": 8} | more
        return Http(self.stator.port).post("/v1/chat/completions", body, {"Authorization": f"Bearer {self.keys[tenant]}"})[0]


class Check:
    def __init__(self, browser: Browser, service: Service, axe: str):
        self.browser, self.service, self.axe = browser, service, axe
        self.failures: list[str] = []
        self.foreign: set[str] = set()
        self.complaints: list[str] = []

    def that(self, holds: bool, what: str) -> None:
        print(f"  {'ok    ' if holds else 'FAILED'} {what}", flush=True)
        if not holds:
            self.failures.append(what)

    def open(self, scheme: str = "light", width: int = 1280, key: bool = True, height: int = 900) -> Page:
        page = self.browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height}).new_page()
        page.on("request", lambda request: self.note(request.url))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if key:
            page.add_init_script(f"try {{ sessionStorage.setItem('key', {json.dumps(self.service.keys['ops'])}); }} catch {{}}  // about:blank has none")
        page.goto(self.service.admin + "/ui/")
        return page

    def note(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.service.admin:
            self.foreign.add(url)

    def violations(self, page: Page) -> list[str]:
        page.evaluate(self.axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [f"{one['id']}: {one['help']} at {[node['target'] for node in one['nodes']][:3]}" for one in found]

    def login(self) -> None:
        page = self.open(key=False)
        expect(page.locator("#login")).to_be_visible()
        found = self.violations(page)
        self.that(not found, f"asks for a key, accessibly {found}")
        page.fill("#key", self.service.keys["ops"])
        page.press("#key", "Enter")
        expect(page.locator("#worker-rows tr")).to_have_count(2)
        self.that(page.locator("#login").is_hidden(), "takes the key")
        page.context.close()
        self.complaints.clear()  # the refusals without a key are what was asked for

    def sections(self) -> None:
        page = self.open()
        expect(page.locator("#worker-rows tr")).to_have_count(2)
        expect(page.locator("#state")).to_contain_text("healthy")
        figures = dict(zip(page.locator("#figures dt").all_inner_texts(), page.locator("#figures dd").all_inner_texts()))
        self.that(int(figures["Requests"]) >= 8, f"fleet: {figures}")
        self.that(page.locator("#engine-rows meter").count() >= 1, "workers: KV use with meters")
        self.that(page.locator("#request-rows tr").count() >= 8, "requests: those that were asked")
        tenants = page.locator("#tenant-rows tr").all_inner_texts()
        self.that(any(row.startswith("small") and row.rstrip().endswith("1") for row in tenants), f"tenants: one was refused {tenants}")
        page.locator("#settings summary").click()
        text = page.locator("#config").inner_text()
        self.that("admin" in text and "http" in text, "settings: in force")
        self.that(all(secret not in page.content() for secret in self.service.keys.values()), "no key is in the page")
        for link in page.locator("nav a").all():
            link.click()
            self.that(page.locator(link.get_attribute("href")).is_visible(), f"section {link.inner_text()} is reached")
        page.context.close()

    def detail(self) -> None:
        page = self.open()
        page.locator("#request-rows tr", has_text="200").first.get_by_role("button").press("Enter")
        expect(page.locator("#detail pre")).to_contain_text("worker")
        steps = page.locator("#detail ol.timeline li").all_inner_texts()
        self.that(any("routed" in step for step in steps), f"a request's timeline {steps}")
        page.wait_for_timeout(2500)
        self.that(page.evaluate("document.activeElement.dataset.request !== undefined"), "the focus survives the next refresh")
        page.context.close()

    def running(self) -> None:
        page = self.open()
        with self.service.stream("Count to a thousand."):
            expect(page.locator("#running-rows tr")).to_have_count(1, timeout=20000)
            row = page.locator("#running-rows tr")
            expect(row).to_contain_text("decode", timeout=20000)
            self.that("acme" in row.inner_text() and page.locator("#running-none").is_hidden(), f"running: {row.inner_text().split()}")
            before = row.inner_text()
            expect(row).not_to_have_text(before, timeout=20000)
            self.that(True, "running: tokens and age go on")
            row.get_by_role("button").press("Enter")
            expect(page.locator("#detail pre")).to_contain_text("worker", timeout=20000)
            self.that(any("first token" in step for step in page.locator("#detail ol.timeline li").all_inner_texts()), "running: timeline and receipt")
            found = self.violations(page)
            self.that(not found, f"axe, while something runs: {found or 'no violation'}")
        expect(page.locator("#running-none")).to_be_visible(timeout=20000)
        page.context.close()

    def simulator(self) -> None:
        for scheme in ("light", "dark"):
            page = self.open(scheme)
            expect(page.locator("#models option").first).to_be_attached()
            page.fill("#preview-model", "demo")
            page.fill("#preview-prompt", f"0: {QUESTION}")
            page.get_by_role("button", name="Show the prices").press("Enter")
            expect(page.locator("#preview-rows tr")).to_have_count(2)
            said = page.locator("#preview-said").inner_text()
            self.that("tokens" in said and page.locator("#preview-rows", has_text="chosen").count() == 1, f"simulator: {said}")
            found = self.violations(page)
            self.that(not found, f"axe, simulator, {scheme}: {found or 'no violation'}")
            page.fill("#preview-prompt", "[5, 6, 7, 8]")
            page.get_by_role("button", name="Show the prices").click()
            expect(page.locator("#preview-said")).to_contain_text("4 tokens")
            page.fill("#preview-model", "nobody")
            page.get_by_role("button", name="Show the prices").click()
            expect(page.locator("#preview-said")).to_contain_text("does not exist")
            self.that(page.locator("#preview-table").is_hidden(), "simulator: says what is wrong")
            page.context.close()
        self.complaints.clear()  # the refusal was asked for

    def accessible(self) -> None:
        for scheme in ("light", "dark"):
            for width in (1280, 400):
                page = self.open(scheme, width)
                expect(page.locator("#request-rows tr").first).to_be_visible()
                page.locator("#settings summary").click()
                page.locator("#request-rows button").first.click()
                expect(page.locator("#detail pre")).to_be_visible()
                found = self.violations(page)
                self.that(not found, f"axe, {scheme}, {width} px: {found or 'no violation'}")
                wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
                self.that(not wide, f"no sideways scrolling of the page, {width} px")
                page.context.close()
        page = self.open()
        page.click("#theme")
        self.that(page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)", "the button makes it dark")
        page.keyboard.press("Tab")
        page.context.close()

    def costs(self) -> None:
        page, paints = self.open(), []
        for _ in range(6):
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            page.goto("about:blank")
            page.goto(self.service.admin + "/ui/")
        page.context.close()
        median = statistics.median(paints[1:])  # the first one has the start of a browser process in it
        self.that(median <= FIRST_PAINT_MS_MAX, f"first paint: median {median:.0f} ms of {[round(one) for one in paints[1:]]}, "
                  f"{paints[0]:.0f} ms in a new process; load average {os.getloadavg()[0]:.0f}")
        page = self.open()
        expect(page.locator("#request-rows tr").first).to_be_visible()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # what the page's thread ran, not what it waited for

        def busy() -> float:
            return next(one["value"] for one in session.send("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration")

        before, began = busy(), time.monotonic()
        page.wait_for_timeout(WATCHED_S * 1000)
        share = (busy() - before) / (time.monotonic() - began)
        self.that(share <= CORE_SHARE_MAX, f"open, the page takes {100 * share:.2f} % of a core")
        page.context.close()

    def screenshots(self, folder: pathlib.Path) -> None:
        for scheme in ("light", "dark"):
            page = self.open(scheme, 1000, height=760)
            expect(page.locator("#request-rows tr").first).to_be_visible()
            page.wait_for_timeout(4500)  # rates need two readings
            if scheme == "dark":
                page.locator("#request-rows tr", has_text="200").first.get_by_role("button").click()
                expect(page.locator("#detail pre")).to_be_visible()
                page.locator("#requests").scroll_into_view_if_needed()
                page.evaluate("document.querySelector('#requests').scrollIntoView()")
            path = folder / f"page_{scheme}.png"
            page.screenshot(path=path)
            size = path.stat().st_size
            self.that(size < SCREENSHOT_BYTES_MAX, f"{path}: {size} bytes")
            page.context.close()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--axe", required=True, type=pathlib.Path, help="axe.min.js")
    options.add_argument("--chromium", default="/usr/bin/chromium")
    options.add_argument("--screenshots", type=pathlib.Path, help="write page_light.png and page_dark.png there")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = Service(pathlib.Path(folder))
        try:
            browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
            check = Check(browser, service, given.axe.read_text())
            check.login()
            check.sections()
            check.detail()
            check.running()
            check.simulator()
            check.accessible()
            check.costs()
            if given.screenshots:
                check.screenshots(given.screenshots)
            check.that(not check.foreign, f"no request leaves the machine {sorted(check.foreign)}")
            check.that(not check.complaints, f"nothing in the console {check.complaints[:3]}")
            browser.close()
        finally:
            service.stator.close()
    print(f"{len(check.failures)} failed")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
