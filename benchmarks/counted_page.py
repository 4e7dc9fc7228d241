"""Counted page: a web page that is used as a person does, every click and keystroke of which is counted."""

from playwright.sync_api import FilePayload, Locator, Page

from benchmarks.gestures import Step, choose, click, press, write


class CountedPage:
    """A page of a browser; its methods are all that a person may do, and ``steps`` is what was done.

    ``page`` is for looking only. The path begins at the address that the page shows when it is wrapped.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps: list[Step] = []

    def click(self, target: Locator, words: str) -> None:
        """Click an element."""
        self.steps.append(click(words))
        target.click()

    def check(self, boxes: list[Locator], words: str) -> None:
        """Click checkboxes, which are checked then."""
        self.steps.append(click(words, len(boxes)))
        for box in boxes:
            box.click()
            assert box.is_checked()

    def choose(self, target: Locator, option: str, words: str) -> None:
        """Choose an option of a select element by its text."""
        self.steps.append(choose(words))
        target.select_option(label=option)

    def choose_file(self, target: Locator, file: FilePayload, words: str) -> None:
        """Choose a file of this machine: a click on the field, and a click on the file in the dialog that opens."""
        self.steps.append(choose(words))
        with self.page.expect_file_chooser() as opened:
            target.click()
        opened.value.set_files(file)

    def write(self, text: str) -> None:
        """Type text where the cursor is."""
        self.steps.append(write(text))
        self.page.keyboard.type(text)

    def press(self, key: str) -> None:
        """Press a key, or keys at once that are joined by a plus sign."""
        self.steps.append(press(key))
        self.page.keyboard.press(key)
