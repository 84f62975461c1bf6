"""The page in a real browser: by mouse and by keyboard, wide and narrow, with answers and without."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the service needs it")
pytest.importorskip("selenium", reason="it drives the browser")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from bert.convert import __main__ as convert
from tests.extensions.families.test_roberta import a_folder
from tests.serve.process import Service, service

pytestmark = pytest.mark.slow
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("needs Debian's chromium and chromium-driver", allow_module_level=True)

PASSAGE = "\U0001f389 a river, b cafe\n\u6771\u4eac c d e"


@pytest.fixture(scope="module")
def running(folders: dict[str, Path], index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    imported = tmp_path_factory.mktemp("roberta")
    a_folder(imported / "theirs")
    convert.main(["import", "huggingface", str(imported / "theirs"), str(imported / "run")])
    names = [f"{name}={folder}" for name, folder in (folders | {"roberta": imported / "run"}).items()]
    with service("--model", *names, "--search", index) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any, running: Service) -> Iterator[Any]:
    chromium.set_window_size(1000, 900)
    chromium.get(running.address)
    WebDriverWait(chromium, 20).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "[role=tab]"))
    yield chromium
    assert [entry for entry in chromium.get_log("browser") if "status of 4" not in entry["message"]] == []


def shown(page: Any, selector: str) -> Any:
    """The first element, once there is one."""
    return WebDriverWait(page, 20).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, selector))[0]


def fill(page: Any, name: str, text: str) -> None:
    page.execute_script("document.getElementById(arguments[0]).value = arguments[1]", name, text)


def open_tab(page: Any, name: str) -> None:
    page.find_element(By.ID, f"tab-{name}").click()


def test_an_answer_is_marked_where_it_is(page: Any, running: Service) -> None:
    fill(page, "passage", PASSAGE)
    page.find_element(By.ID, "question").send_keys("Which?", Keys.ENTER)
    shown(page, "#result .marked")
    told = running.ask("answer", question="Which?", context=PASSAGE, n_best=5).json()
    buttons = page.find_elements(By.CSS_SELECTOR, "#result li button")
    assert [button.find_element(By.CLASS_NAME, "name").text for button in buttons] == [
        " ".join(one["text"].split()) for one in told["candidates"]
    ]
    for button, one in zip(buttons, told["candidates"], strict=True):
        button.click()
        before, mark = page.execute_script(
            "const text = document.querySelector('#result .marked');"
            "return [text.firstChild.data, text.querySelector('mark').textContent]"
        )
        assert mark == one["text"] and len(before) == one["start"]  # in Python characters
        assert button.get_attribute("aria-pressed") == "true"


def test_no_answer_is_said(page: Any) -> None:
    fill(page, "passage", "\u200e")  # a text without a token
    page.find_element(By.ID, "question").send_keys("Which?")
    page.find_element(By.CSS_SELECTOR, "#answer button").click()
    assert "no answer" in shown(page, "#best:not(:empty)").text
    assert page.find_elements(By.CSS_SELECTOR, "#result mark, #result h2") == []


def test_markup_in_a_text_is_shown_and_not_obeyed(page: Any) -> None:
    text = "a <img src=x onerror=document.title='bad'> <b>river</b> &amp; <script>document.title='bad'</script> c"
    fill(page, "passage", text)
    page.find_element(By.ID, "question").send_keys("<i>Which?", Keys.ENTER)
    assert shown(page, "#result .marked").get_property("textContent") == text
    open_tab(page, "tag")
    fill(page, "sentence", "<u>a</u> <b>")
    page.find_element(By.CSS_SELECTOR, "#tag button").click()
    assert shown(page, "#result .marked").text.startswith("<u>a</u>")
    open_tab(page, "choose")
    fill(page, "before", "a")
    fill(page, "choices", "<u>a\n<u>b\n<u>c")
    page.find_element(By.CSS_SELECTOR, "#choose button").click()
    assert shown(page, "#best:not(:empty)").text.startswith("<u>")
    assert page.find_elements(By.CSS_SELECTOR, "#result img, #result b, #result u, #result script") == []
    assert page.title == "Ask BERT"


def test_a_file_that_is_dropped_is_the_text(page: Any) -> None:
    page.execute_script(
        "const files = new DataTransfer(); files.items.add(new File(['\\u6771 river\\n'], 'a.txt'));"
        "const drop = new DragEvent('drop', {dataTransfer: files, cancelable: true, bubbles: true});"
        "window.taken = !document.getElementById('passage').dispatchEvent(drop)"
    )
    WebDriverWait(page, 20).until(lambda driver: driver.find_element(By.ID, "passage").get_property("value"))
    assert page.find_element(By.ID, "passage").get_property("value") == "\u6771 river\n"
    assert page.execute_script("return window.taken")  # the browser does not open the file


def test_the_keyboard_goes_through_a_question_and_its_answers_in_order(page: Any) -> None:
    fill(page, "passage", "a river, b cafe")
    page.find_element(By.ID, "tab-answer").send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys("Which?", Keys.TAB)
    assert page.switch_to.active_element.text == "Ask"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    shown(page, "#result li button")
    assert page.switch_to.active_element.text == "Ask"  # the focus stays where it was
    page.switch_to.active_element.send_keys(Keys.TAB)
    first = page.switch_to.active_element
    assert first == page.find_element(By.CSS_SELECTOR, "#result li button")
    first.send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.SPACE)
    assert page.switch_to.active_element.get_attribute("aria-pressed") == "true"
    assert first.get_attribute("aria-pressed") == "false"


def test_a_screen_reader_is_told_the_answer_and_not_the_whole_text(page: Any) -> None:
    roles = {name: page.find_element(By.ID, name).aria_role for name in ("best", "problem", "tab-answer", "answer")}
    assert roles == {"best": "status", "problem": "alert", "tab-answer": "tab", "answer": "tabpanel"}
    fill(page, "passage", "a river, b cafe")
    page.find_element(By.ID, "question").send_keys("Which?", Keys.ENTER)
    shown(page, "#result .marked")
    live = page.find_elements(By.CSS_SELECTOR, "[aria-live], [role=status], [role=alert]")
    assert all("b cafe" not in part.text or len(part.text) < 40 for part in live)
    assert page.find_elements(By.CSS_SELECTOR, "#best .marked, [aria-live] .marked") == []


def test_tabs_go_by_keyboard_and_each_shows_its_answer(page: Any) -> None:
    names = [tab.get_attribute("id").removeprefix("tab-") for tab in page.find_elements(By.CSS_SELECTOR, "[role=tab]")]
    assert names == ["answer", "fill", "classify", "label", "tag", "choose", "search"]
    page.find_element(By.ID, "tab-answer").send_keys(Keys.ARROW_LEFT)  # to the last one
    for name in (*names[::-1], names[-1]):
        focused = page.switch_to.active_element
        assert focused.get_attribute("id") == f"tab-{name}" and focused.get_attribute("aria-selected") == "true"
        visible = [form.get_attribute("id") for form in page.find_elements(By.TAG_NAME, "form") if form.is_displayed()]
        assert visible == [name]
        focused.send_keys(Keys.ARROW_LEFT)

    open_tab(page, "fill")
    page.find_element(By.CSS_SELECTOR, "#fill button").click()
    assert len(shown(page, "#result ol").find_elements(By.TAG_NAME, "li")) == 5
    open_tab(page, "label")
    fill(page, "labelled", "a river b")
    page.find_element(By.CSS_SELECTOR, "#label button").click()
    rows = shown(page, "#result ol").find_elements(By.CLASS_NAME, "name")
    assert {row.text for row in rows} == {"toxic", "insult", "threat"}
    open_tab(page, "tag")
    fill(page, "sentence", "a river b")
    page.find_element(By.CSS_SELECTOR, "#tag button").click()
    assert "river" in shown(page, "#result .marked").text
    open_tab(page, "choose")
    fill(page, "before", "a river")
    fill(page, "choices", "a\nb\n\nc")
    page.find_element(By.CSS_SELECTOR, "#choose button").click()
    assert len(shown(page, "#result ol").find_elements(By.TAG_NAME, "li")) == 3
    open_tab(page, "classify")
    assert [option.text for option in page.find_elements(By.CSS_SELECTOR, "#model option")] == ["classify", "regress"]
    fill(page, "first", "a river")
    page.find_element(By.CSS_SELECTOR, "#classify button").click()
    assert shown(page, "#best:not(:empty)").text in ("no", "yes", "perhaps")


def test_passages_of_the_index_are_found_and_the_answer_is_marked_in_them(page: Any, running: Service) -> None:
    open_tab(page, "search")
    assert "leave empty to search library (6 passages)" in page.find_element(By.ID, "documents-hint").text
    page.find_element(By.ID, "query").send_keys("a river", Keys.ENTER)
    shown(page, "#result .passage")
    told = running.ask("search", query="a river", answer=True).json()
    texts = page.find_elements(By.CSS_SELECTOR, "#result .passage .marked")
    assert [text.get_property("textContent") for text in texts] == [one["text"] for one in told["passages"]]
    scores = page.find_elements(By.CSS_SELECTOR, "#result .passage .number")
    assert [float(score.text) for score in scores] == pytest.approx(
        [one["score"] for one in told["passages"]], abs=0.001
    )
    marks = page.find_elements(By.CSS_SELECTOR, "#result mark")
    if told["answer"] is None:
        assert marks == [] and "no answer" in page.find_element(By.ID, "best").text
    else:
        (mark,) = marks
        assert mark.text == told["answer"]["text"]
        assert texts[told["answer"]["passage"]] == mark.find_element(By.XPATH, "./..")


def test_pasted_documents_are_searched_without_markup_and_without_an_answer(page: Any) -> None:
    open_tab(page, "search")
    documents = ["a <b>river</b>\nin two lines", "\U0001f389 cafe", "b c"]
    fill(page, "documents", "\n \n\n".join(documents))
    page.find_element(By.ID, "wants-answer").click()
    page.find_element(By.ID, "query").send_keys("cafe")
    page.find_element(By.CSS_SELECTOR, "#search button").click()
    assert shown(page, "#best:not(:empty)").text == "3 passages"
    names = [name.text for name in page.find_elements(By.CSS_SELECTOR, "#result .passage .name")]
    texts = [text.get_property("textContent") for text in page.find_elements(By.CSS_SELECTOR, "#result .marked")]
    assert dict(zip(names, texts, strict=True)) == {f"Document {n + 1}": text for n, text in enumerate(documents)}
    assert page.find_elements(By.CSS_SELECTOR, "#result b, #result mark") == []


def test_the_mask_is_that_of_the_chosen_model(page: Any) -> None:
    open_tab(page, "fill")
    for model, mask in (("roberta", "<mask>"), ("fill", "[MASK]"), ("roberta", "<mask>")):
        page.find_element(By.CSS_SELECTOR, f"#model option[value={model}]").click()
        fill(page, "masked", f"the {page.find_element(By.CSS_SELECTOR, '#insert .mask').text} the ")
        assert f"with {mask} for each" in page.find_element(By.CSS_SELECTOR, "label[for=masked]").text
        page.find_element(By.ID, "masked").send_keys(Keys.END)
        page.find_element(By.ID, "insert").click()
        assert page.find_element(By.ID, "masked").get_property("value") == f"the {mask} the {mask}"
    page.find_element(By.CSS_SELECTOR, "#fill button").click()
    assert shown(page, "#result meter")


def test_a_refusal_is_shown(page: Any) -> None:
    open_tab(page, "choose")
    fill(page, "before", "a river")
    fill(page, "choices", "a")
    page.find_element(By.CSS_SELECTOR, "#choose button").click()
    WebDriverWait(page, 20).until(lambda driver: driver.find_element(By.ID, "problem").text)
    assert "1 choices, but the model has 3" in page.find_element(By.ID, "problem").text


def test_everything_has_a_name_and_fits_a_phone(page: Any, running: Service) -> None:
    page.set_window_size(360, 740)
    for name in ("answer", "fill", "classify", "tag", "choose", "search"):
        open_tab(page, name)
        wide = page.execute_script("return document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, name
        for field in page.find_elements(
            By.CSS_SELECTOR, f"#{name} textarea, #{name} input:not([type=checkbox]), #{name} button"
        ):
            assert field.accessible_name, field.get_attribute("outerHTML")
            assert field.size["height"] >= 40  # for a finger
    page.get(f"{running.address}/docs")
    assert "POST /v1/answer" in page.find_element(By.TAG_NAME, "main").text
