"""Both editions in a real browser: screens, phones, by day and by night, and on paper."""

import shutil

import pytest

from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.writing import write_document

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SWITCHES = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run",
]  # fmt: skip
MOST_BYTES = 3_000_000
CONTRAST = 4.5  # of text that is not large, WCAG 2.2 AA
COLOURS = """() => {
  const paper = getComputedStyle(document.body).backgroundColor;
  const found = new Set();
  for (const node of document.querySelectorAll("p, li, h1, h2, th, td, data, code, figcaption"))
    if (node.textContent.trim()) found.add(getComputedStyle(node).color);
  for (const node of document.querySelectorAll("svg text")) found.add(getComputedStyle(node).fill);
  return [paper, ...found];
}"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (make setup installs one)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """The files of both editions; the card is of two runs, so that it has an overview."""
    folder = tmp_path_factory.mktemp("pages")
    both = [runs / "private", runs / "plain"]
    again = PublicRun.read(both[0], "a-run-with-a-name-that-is-rather-long-for-a-telephone")
    card = privacy_card([*(PublicRun.read(path) for path in both), again])
    report = curator_report([CuratorRun.read(path) for path in both])
    return {
        "publishable": write_document(card, folder / "card.html"),
        "curator": write_document(report, folder / "report.html"),
    }


@pytest.fixture
def shown(browser, pages):
    """Opens an edition: its page, what the console said, and what it asked for."""
    open_pages = []

    def show(edition, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        open_pages.append(context)
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(pages[edition].as_uri(), wait_until="networkidle")
        return page, said, asked

    yield show
    for context in open_pages:
        context.close()


def luminance(colour):
    """Of "rgb(r, g, b)", by WCAG 2.2."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, two):
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_its_definition():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("edition", ["publishable", "curator"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_is_legible_and_asks_for_nothing(shown, pages, edition, width, scheme):
    page, said, asked = shown(edition, width, scheme)
    assert said == []
    assert asked in ([pages[edition].as_uri()], [pages[edition].as_uri(), "data:,"])
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]
    paper, *colours = page.evaluate(COLOURS)
    assert (luminance(paper) > 0.5) == (scheme == "light")
    assert colours
    for colour in colours:
        assert contrast(colour, paper) >= CONTRAST, colour


@pytest.mark.parametrize("edition", ["publishable", "curator"])
def test_letters_in_figures_can_be_read_on_a_phone(shown, edition):
    page, *_ = shown(edition, 390)
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('svg text')].filter(t => t.textContent.trim())"
        ".map(t => { const m = t.getScreenCTM(); return Math.hypot(m.b, m.d) * "
        "parseFloat(getComputedStyle(t).fontSize); })"
    )
    assert len(sizes) > 20
    assert min(sizes) >= 7.9  # pixels of a page, of which a phone has several for each


@pytest.mark.parametrize("edition", ["publishable", "curator"])
def test_rows_of_wide_tables_are_stacked_on_a_phone(shown, edition):
    heading = "() => getComputedStyle(document.querySelector('table.wide thead')).display"
    assert shown(edition, 390)[0].evaluate(heading) == "none"
    assert shown(edition, 1280)[0].evaluate(heading) == "table-header-group"


@pytest.mark.parametrize("edition", ["publishable", "curator"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_in_dark_ink(shown, edition, scheme):
    page, *_ = shown(edition, 1280, scheme)
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 10_000
    page.emulate_media(media="print", color_scheme=scheme)
    _, *colours = page.evaluate(COLOURS)
    assert max(luminance(colour) for colour in colours) < 0.3


@pytest.mark.parametrize("edition", ["publishable", "curator"])
def test_it_can_be_sent_by_mail(pages, edition):
    assert 20_000 < pages[edition].stat().st_size < MOST_BYTES


def test_a_number_tells_its_place(shown):
    page, *_ = shown("publishable")
    title = page.locator("data").first.get_attribute("title")
    assert title is not None
    assert "/record.json#/" in title
