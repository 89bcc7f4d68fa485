"""The page in a real browser: wide and narrow, light and dark, on paper, and without JavaScript.

Needs selenium (`pip install "pyro-sparse[browser]"`), Chromium or Chrome, and its chromedriver.
"""

from __future__ import annotations

import base64
import re
import shutil
import zlib

import numpy as np
import pytest

from pyro_sparse.findings.finding import Finding
from pyro_sparse.pages.any_fit import report
from tests._fake_fit import fake_fit
from tests.pages.test_of_table import probable

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib").use("Agg")
webdriver = pytest.importorskip(
    "selenium.webdriver", reason='needs selenium: pip install "pyro-sparse[browser]"'
)
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is on the path"),
    pytest.mark.skipif(DRIVER is None, reason="no chromedriver on the path"),
]
WIDTHS = 1300, 420


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of a page with all its parts, and with names that are long or look like code."""
    names = ["<b>bold</b>", "a name that goes on and on and_is_hardly_ever_broken_anywhere" * 2]
    names += ["&amp; \x07 ]]> \ud800", "測定 \U0001f9ec"]  # which no picture may choke on
    names += [f"item {j + 1}" for j in range(4, 40)]
    remedy = "add rows"
    fit = fake_fit(
        n_features=40,
        feature_names=names,
        findings=[Finding("rows", "few rows", remedy), Finding("training", "short")],
    )
    path = tmp_path_factory.mktemp("browser") / "report.html"
    report(fit, path, X=fit.sample(100), idata=probable(fit))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def visit(browser, address):
    """Open the page at a width, with the theme that a reader likes."""

    def visit(width, theme="light", scripts=True):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        browser.get(address)
        return browser

    yield visit
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def shown(browser):
    return [
        row for row in browser.find_elements(By.CSS_SELECTOR, "#edge-table tbody tr") if row.is_displayed()
    ]


def column(browser, number):
    """Sort keys of the rows as they stand."""
    cells = f"#edge-table tbody tr > :nth-child({number})"
    return [cell.get_attribute("data-sort") for cell in browser.find_elements(By.CSS_SELECTOR, cells)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_complained_of_and_nothing_sticks_out(visit, width, theme):
    browser = visit(width, theme)
    assert browser.get_log("browser") == []
    page = browser.find_element(By.TAG_NAME, "html")
    assert browser.execute_script("return innerWidth") == width
    assert page.get_property("scrollWidth") == page.get_property("clientWidth") <= width
    pictures = browser.find_elements(By.TAG_NAME, "img")
    assert len(pictures) == 7 and all(picture.get_property("naturalWidth") > 100 for picture in pictures)
    source = browser.find_element(By.TAG_NAME, "source").get_attribute("srcset")
    assert (pictures[0].get_property("currentSrc") == source) == (theme == "dark")
    ground = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (theme == "dark")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_is_sorted_by_mouse_and_by_keyboard(visit, width):
    browser = visit(width)
    before = column(browser, 1)
    heads = browser.find_elements(By.CSS_SELECTOR, "#edge-table thead th")
    titles = [head.text for head in heads]
    number = titles.index("Share of variance") + 1
    button = heads[number - 1].find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", button)
    button.click()
    values = [float(value) for value in column(browser, number)]
    assert values == sorted(values, reverse=True) and len(set(values)) > 3
    assert [head.get_attribute("aria-sort") for head in heads].count("descending") == 1
    button.send_keys(Keys.ENTER)
    assert [float(value) for value in column(browser, number)] == sorted(values)
    assert heads[number - 1].get_attribute("aria-sort") == "ascending"
    name = heads[0].find_element(By.TAG_NAME, "button")
    name.send_keys(Keys.SPACE)
    assert (
        heads[0].get_attribute("aria-sort") == "ascending"
        and heads[number - 1].get_attribute("aria-sort") is None
    )
    items = [value for value in column(browser, 1) if value.startswith("item")]
    assert items == sorted(items, key=lambda value: int(value.split()[1]))  # 2 before 10
    assert sorted(column(browser, 1)) == sorted(before)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_is_filtered(visit, width):
    browser = visit(width)
    n = len(shown(browser))
    words = browser.find_element(By.ID, "edge-words")
    words.send_keys("ITEM 12")
    assert {row.find_element(By.TAG_NAME, "th").text for row in shown(browser)} == {"item 12"}
    words.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)
    assert len(shown(browser)) == n
    Select(browser.find_element(By.ID, "edge-group")).select_by_visible_text("factor 2")
    of_two = shown(browser)
    assert 0 < len(of_two) < n and {row.get_attribute("data-group") for row in of_two} == {"factor 2"}
    assert browser.find_element(By.ID, "edge-count").text == f"{len(of_two)} of {n} shown"
    Select(browser.find_element(By.ID, "edge-state")).select_by_value("open")
    assert all("open" in row.get_attribute("data-state").split() for row in shown(browser))
    for label in browser.find_elements(By.CSS_SELECTOR, "#edge-filters label"):
        assert label.text.strip() and label.find_elements(By.CSS_SELECTOR, "input, select")


def test_the_first_thing_that_tab_reaches_skips_to_the_conclusion(visit):
    browser = visit(1300)
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.get_attribute("class") == "skip" and skip.location["x"] >= 0
    skip.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"


def test_without_javascript_everything_is_there(visit, address):
    browser = visit(420, scripts=False)
    assert not browser.find_element(By.ID, "edge-filters").is_displayed()
    assert not browser.find_elements(By.CSS_SELECTOR, "#edge-table button")
    assert len(shown(browser)) == len(browser.find_elements(By.CSS_SELECTOR, "#edge-table tbody tr")) > 40
    assert browser.find_element(By.TAG_NAME, "h1").is_displayed()


def printed(browser):
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": False}
    return base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", paper)["data"])


def n_pages(pdf):
    """Page objects of a file, those in compressed streams, too."""
    parts = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.S):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", b" ".join(parts)))


@pytest.mark.parametrize("scripts", [True, False])
def test_it_prints_on_several_pages_with_what_is_closed_on_a_screen(visit, scripts):
    browser = visit(1300, scripts=scripts)
    pdf = printed(browser)
    assert pdf.startswith(b"%PDF") and 3 < n_pages(pdf) < 30
    if scripts:  # what is filtered away on the screen is on paper
        browser.find_element(By.ID, "edge-words").send_keys("no such name")
        assert not shown(browser)
        assert n_pages(printed(browser)) == n_pages(pdf)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    closed = browser.find_element(By.CSS_SELECTOR, "details dl")
    assert closed.rect["height"] > 50
    assert not browser.find_element(By.TAG_NAME, "nav").is_displayed()
    assert not browser.find_element(By.ID, "edge-filters").is_displayed()
    body = browser.find_element(By.TAG_NAME, "body").value_of_css_property("color")
    assert np.array(re.findall(r"\d+", body)[:3], dtype=int).sum() == 0


def test_it_asks_for_nothing_from_outside(browser, visit):
    visit(1300)
    entries = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in entries if not name.startswith("data:")] == []
