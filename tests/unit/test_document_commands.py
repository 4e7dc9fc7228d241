"""Code blocks of documentation: which are run, which are shown, and which need a comment; the script that runs them."""

import subprocess
from pathlib import Path

import pytest

from tests.document_commands import Treatment, blocks, script

PAGE = """# Page

<!-- not run: it never ends -->

    serve --for-ever

<!-- file: greeting.txt -->
```text
hello
```

```sh
NAME=$(cat greeting.txt)
```

<!-- not run, lines with --open: it opens a browser -->

    echo "$NAME" localhost:5000/ID/x IDLE
    look --open

```python
print("from Python")
```

```json
{"shown": true}
```
"""


def test_each_block_has_a_treatment_and_the_line_at_which_it_begins() -> None:
    found = [(block.line, block.treatment, block.left_out) for block in blocks(PAGE)]
    run, file, not_run, shown = Treatment
    assert found == [(5, not_run, 0), (8, file, 0), (12, run, 0), (18, run, 1), (21, run, 0), (25, shown, 0)]


def test_the_script_runs_blocks_in_order_in_one_shell_and_replaces_address_and_words(tmp_path: Path) -> None:
    text = script(list(blocks(PAGE)), "127.0.0.1:7", {"ID": "01m8"})
    outcome = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.splitlines() == [
        "== line 12",
        "== line 18",
        "hello 127.0.0.1:7/01m8/x IDLE",
        "== line 21",
        "from Python",
    ]


def test_a_failing_command_ends_the_script(tmp_path: Path) -> None:
    text = script(list(blocks("    false\n\ntext\n\n    echo later\n")), "127.0.0.1:7", {})
    outcome = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert outcome.returncode == 1 and "later" not in outcome.stdout


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```\nunknown\n```\n", "line 1: a block of no language is not run, and no comment says why"),
        ("```c\nint main;\n```\n", "a block of c is not run"),
        ("```json\n{\n```\n", "Expecting property name"),
        ("<!-- not run: nothing follows -->\n\ntext\n", "'not run' is not followed by a code block"),
        ("<!-- not run, lines with --never: absent -->\n\n    command\n", "fewer lines with --never than words"),
    ],
)
def test_a_block_whose_treatment_does_not_follow_is_refused(page: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(blocks(page))
