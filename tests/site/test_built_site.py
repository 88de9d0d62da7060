"""The built documentation site, as files and as a reader's browser shows it.

`.ci/run docs` builds the site and runs these tests. Pages are opened by their file:// addresses in
a browser that has no network, because a copy of the site has to work so.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("KERASCNN_SITE") or CHECKOUT / "build" / "site").resolve()
if not (SITE / "index.html").is_file():
    pytest.skip(
        f"tests of the built site: {SITE} has no index.html; `.ci/run docs` builds it",
        allow_module_level=True,
    )
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
TUTORIALS = sorted(path.stem for path in (CHECKOUT / "docs" / "tutorials").glob("*.md"))
# What runs at the widths of a phone and of a desk.
WIDTHS = (390, 1400)


class Page(HTMLParser):
    """The anchors of a page, and all that it leads to or shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.links: list[str] = []  # those of the targets that a reader can follow
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.targets += [values[name] for name in ("href", "src") if values.get(name)]
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])


@cache
def page(name: str) -> Page:
    return Page(SITE / name)


def inside(name: str, target: str) -> tuple[Path, str] | None:
    """Returns the file and the anchor that a page leads to, or None where it leads outside."""
    address, anchor = urldefrag(target)
    if urlsplit(address).scheme or address.startswith("//"):
        return None
    path = unquote(address.partition("?")[0])
    return ((SITE / name).parent / path if path else SITE / name).resolve(), unquote(anchor)


def anchors(path: Path) -> set[str]:
    return page(path.relative_to(SITE).as_posix()).anchors


def test_links_and_pictures_lead_to_what_is_there():
    broken = []
    for name in PAGES:
        for target in page(name).targets:
            found = inside(name, target)
            if found is None:
                continue
            path, anchor = found
            if not path.is_file() or not path.is_relative_to(SITE):
                broken.append(f"{name}: {target} is no file of the site")
                continue
            # The empty anchor is the top of a page.
            if path.suffix == ".html" and anchor not in {"", *anchors(path)}:
                broken.append(f"{name}: {target} has no such anchor")
    assert broken == []


def test_links_lead_to_every_page():
    reached, left = set(), ["index.html"]
    while left:
        name = left.pop()
        if name in reached or not name.endswith(".html"):
            continue
        reached.add(name)
        found = (inside(name, link) for link in page(name).links)
        left += [path.relative_to(SITE).as_posix() for path, _ in filter(None, found)]
    assert set(PAGES) - reached == {"search.html"}  # The box for searches leads there.


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_every_tutorial_was_executed(tutorial):
    """Each has what its cells print and draw, in all figures for which it has a text."""
    source = (CHECKOUT / "docs" / "tutorials" / f"{tutorial}.md").read_text(encoding="utf-8")
    html = (SITE / "tutorials" / f"{tutorial}.html").read_text(encoding="utf-8")
    if "not-executed" in html:
        pytest.skip("tutorials on MNIST, which was not there when the site was built")
    texts = re.findall(r"^    alt: (.+)$", source, re.M)
    drawn = re.findall(r'<img alt="([^"]+)" src="[^"]*_images/', html)
    assert texts and sorted(texts) == sorted(map(unescape, drawn))
    assert html.count('class="cell_output') > len(texts)


# A class whose first argument is *args.
TAKES_ANYTHING = re.compile(
    r'<span class="pre">class</span>.*?descname"><span class="pre">(\w+)</span></span>'
    r'<span class="sig-paren">\(</span><em class="sig-param"><span class="o">'
    r'<span class="pre">\*</span></span><span class="n"><span class="pre">args<'
)


def test_the_reference_shows_what_classes_take():
    """Models are made of layers, or of inputs and outputs; all others name their arguments."""
    pages = [SITE / name for name in PAGES if name.startswith("reference/api/")]
    html = {path.name: path.read_text(encoding="utf-8") for path in pages}
    assert sum(text.count('<span class="pre">class</span>') for text in html.values()) > 300
    found = {name for text in html.values() for name in TAKES_ANYTHING.findall(text)}
    assert found == {"Model"}


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="tests in a browser: Playwright is not installed"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"tests in a browser: none of {', '.join(names)} is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    base = pytest.importorskip(
        "axe_playwright_python.base",
        reason="tests of contrast and other barriers: axe-playwright-python is not installed",
    )
    return base.AXE_SCRIPT


@pytest.fixture(scope="session")
def tab(browser):
    """Returns a tab of the browser, with a list of what went wrong in it as `tab.faults`."""
    context = browser.new_context(offline=True, reduced_motion="reduce")
    tab = context.new_page()
    tab.set_default_timeout(300_000)  # milliseconds, on a machine that others keep busy
    tab.faults = []

    def of_console(message):
        if message.type in ("error", "warning"):
            tab.faults.append(f"console {message.type}: {message.text}")

    def of_request(request):
        if urlsplit(request.url).scheme not in ("file", "data", "blob"):
            tab.faults.append(f"asks the network for {request.url}")

    tab.on("console", of_console)
    tab.on("request", of_request)
    tab.on("pageerror", lambda error: tab.faults.append(f"error of a script: {error}"))
    tab.on("requestfailed", lambda asked: tab.faults.append(f"could not read {asked.url}"))
    yield tab
    context.close()


def open_page(tab, name: str, width: int = 1400) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme="light")
    tab.faults.clear()
    tab.goto((SITE / name).as_uri(), wait_until="load")


@pytest.fixture(scope="module", params=PAGES)
def opened(request, tab):
    """Returns the tab with one page after the other. Each is loaded once for all tests of it."""
    open_page(tab, request.param)
    return tab


def test_page_opens_without_errors(opened):
    # Pictures below the visible part may be loaded late: they are asked for here.
    opened.evaluate(
        """() => Promise.all([...document.images].map(image => {
            image.loading = "eager";
            return image.decode().catch(() => console.error("no picture: " + image.src));
        }))"""
    )
    assert opened.faults == []
    assert opened.title()
    assert opened.locator("h1").count() == 1


def test_pictures_of_a_page_have_texts(opened):
    texts = opened.evaluate(
        """() => [...document.querySelectorAll("article img, article object, article svg")]
            .filter(e => e.checkVisibility() && !e.closest("[aria-hidden=true], button"))
            .map(e => [(e.src || e.outerHTML).slice(0, 200),
                       e.getAttribute("alt") || e.getAttribute("aria-label") || ""])"""
    )
    # The name of a file, which Sphinx gives where there is no text, says nothing.
    poor = [t for t in texts if " " not in t[1].strip() or re.search(r"\.(png|svg)$", t[1])]
    assert poor == []


def test_code_of_a_page_can_be_copied(opened):
    blocks = opened.locator("article div.highlight")
    assert blocks.count() == opened.locator("article div.highlight > button.copybtn").count()


@pytest.mark.parametrize("width", WIDTHS)
def test_page_does_not_scroll_sideways(opened, width):
    opened.set_viewport_size({"width": width, "height": 900})
    wide = opened.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            const scrolls = document.scrollingElement.scrollWidth - width;
            const held = e => e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)
                                    || held(e.parentElement));
            const wide = [...document.querySelectorAll("article *")].filter(
                e => e.getBoundingClientRect().right > width + 1 && !held(e.parentElement));
            return [scrolls, wide.slice(0, 5).map(e => e.outerHTML.slice(0, 200))];
        }"""
    )
    opened.set_viewport_size({"width": 1400, "height": 900})
    assert wide == [0, []]


# Texts that look the same are looked at once: one for each tag, class, color, background and size
# that a page has. Without this, axe takes minutes for the contrast of the long pages.
DISTINCT_TEXTS = """() => {
    const found = new Map();
    for (const e of document.querySelectorAll("body *")) {
        const visible = e.checkVisibility({visibilityProperty: true, opacityProperty: true});
        const texts = [...e.childNodes].filter(n => n.nodeType == Node.TEXT_NODE);
        if (!visible || !texts.some(text => text.data.trim())) continue;
        const style = getComputedStyle(e);
        const look = [e.tagName, e.className, style.color, style.fontSize, style.fontWeight];
        for (let below = e; below; below = below.parentElement) {
            const of = getComputedStyle(below);
            look.push(of.opacity);
            if (of.backgroundColor != "rgba(0, 0, 0, 0)") {
                look.push(of.backgroundColor);
                break;
            }
        }
        if (!found.has(look.join())) found.set(look.join(), e);
    }
    return [...found.values()];
}"""
FOUND_BY_AXE = """.then(found => found.violations.flatMap(rule => rule.nodes.map(node =>
    `${rule.impact}: ${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`)))"""


def load(tab, axe: str) -> None:
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(axe)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_of_a_page_have_contrast(opened, axe, scheme):
    opened.emulate_media(color_scheme=scheme)
    load(opened, axe)
    seen, found = opened.evaluate(
        f"""async () => {{
            const texts = ({DISTINCT_TEXTS})();
            const options = {{runOnly: ["color-contrast"], resultTypes: ["violations"]}};
            return [texts.length, await axe.run({{include: texts}}, options){FOUND_BY_AXE}];
        }}"""
    )
    opened.emulate_media(color_scheme="light")
    assert seen > 5
    assert found == []


def test_page_has_no_barriers(opened, axe):
    load(opened, axe)
    found = opened.evaluate(
        f"""() => axe.run(document, {{
            rules: {{"color-contrast": {{enabled: false}}}}, resultTypes: ["violations"]
        }}){FOUND_BY_AXE}"""
    )
    assert found == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("DLPack", "tutorials/dlpack.html"),
        ("OutOfMemoryError", "howto/out_of_memory.html"),
        ("Conv2D", "reference/api/kerascnn.layers.convolutions.html"),
    ],
)
@pytest.mark.parametrize("width", WIDTHS)
def test_search_finds(tab, words, expected, width):
    open_page(tab, "index.html", width)
    if width < 1000:
        tab.locator("label.nav-overlay-icon").click()
    box = tab.locator("input.sidebar-search")
    box.click()
    box.press_sequentially(words)
    box.press("Enter")
    found = tab.locator("#search-results ul.search li a")
    found.first.wait_for()
    tab.locator("#search-results .search-summary", has_text="found").wait_for()
    links = found.evaluate_all("links => links.map(link => link.href)")
    assert expected in [
        Path(unquote(urlsplit(link).path)).relative_to(SITE).as_posix() for link in links
    ]
    found.nth(0).click()
    tab.wait_for_load_state("load")
    assert words.lower() in tab.locator("article").inner_text().lower()
    assert tab.faults == []


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["tutorials/dlpack.html"], "DLPack"),
        (["howto/out_of_memory.html"], "OutOfMemoryError"),
        (
            [
                "reference/api/index.html",
                "reference/api/kerascnn.layers.html",
                "reference/api/kerascnn.layers.convolutions.html",
            ],
            "Conv2D",
        ),
    ],
)
def test_the_list_of_pages_leads_to(tab, steps, expected):
    open_page(tab, "index.html")
    for step in steps:
        links = tab.locator(".sidebar-tree a.reference")
        (place,) = links.evaluate_all(
            "(links, end) => [...links.keys()].filter(i => links[i].href.endsWith(end))", f"/{step}"
        )
        links.nth(place).click()
        tab.wait_for_url(f"**/{step}")
    assert expected in tab.locator("article").inner_text()
    assert tab.faults == []


def test_what_is_copied_has_no_prompts(tab):
    open_page(tab, "reference/api/kerascnn.activations.html")
    block = tab.locator("div.doctest").first
    shown = block.locator("pre").inner_text()
    assert ">>> " in shown
    block.hover()
    block.locator("button.copybtn").click()
    tab.evaluate("document.body.prepend(document.createElement('textarea'))")
    field = tab.locator("textarea").first
    field.focus()
    field.press("Control+V")
    copied = field.input_value().strip()
    lines = [line for line in shown.splitlines() if line.startswith((">>> ", "... "))]
    assert copied.splitlines() == [line[4:] for line in lines]


@pytest.mark.parametrize("name", ["index.html", "howto/offline.html"])
def test_a_published_site_lists_the_versions_beside_it(browser, name):
    """Nothing is published for this: the browser is given the files under a made-up address."""
    other = "<!doctype html><title>kerascnn 0.2</title><h1>0.2</h1>"
    context = browser.new_context()

    def answer(route):
        path = urlsplit(route.request.url).path
        if path == "/versions.json":
            route.fulfill(json=["0.2", "dev"])
        elif path.startswith("/dev/") and (SITE / path.removeprefix("/dev/")).is_file():
            route.fulfill(path=SITE / path.removeprefix("/dev/"))
        else:
            route.fulfill(body=other, content_type="text/html")

    try:
        context.route("**/*", answer)
        tab = context.new_page()
        faults = []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.goto(f"http://docs.invalid/dev/{name}", wait_until="load")
        versions = tab.locator("details.versions")
        versions.locator("summary", has_text="Version dev").click()
        assert versions.locator("a").all_inner_texts() == ["0.2", "dev, not released"]
        assert versions.locator("a[aria-current=true]").inner_text() == "dev, not released"
        versions.locator("a").first.click()
        tab.wait_for_url("http://docs.invalid/0.2/index.html")
        assert faults == []
    finally:
        context.close()


def test_a_copy_on_the_disk_lists_no_versions(tab):
    open_page(tab, "index.html")
    assert tab.locator("details.versions").count() == 0
    assert tab.faults == []


def test_dark_is_kept_from_page_to_page(tab):
    open_page(tab, "index.html")
    try:
        for _ in range(3):
            tab.locator("button.theme-toggle:visible").click()
            if tab.evaluate("document.body.dataset.theme") == "dark":
                break
        tab.goto((SITE / "glossary.html").as_uri())
        assert tab.evaluate("document.body.dataset.theme") == "dark"
        color = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", color)[:3])) < 60
    finally:
        tab.evaluate("localStorage.clear()")
