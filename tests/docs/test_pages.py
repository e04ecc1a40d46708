"""The machinery that runs the pages notices what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Action, BadPage, actions_of, anchors_of, broken_links, find_long_lines, links_of
from tests.docs.test_docs import run_page

PAGE = """\
# A page

```python
x = 1
```
Text, and a block in a list:

  ```python
  def f():
      return x
  ```

<!-- no-run: needs a key -->
```python
raise SystemExit("never")
```

```python title="agent.py"
print("agent")
```

```console
$ perdure runs \\
    --json
$ pip install perdure
perdure is what this line is about, and it is output
$ python agent.py
```

```bash
perdure demo
make test
```

```json
{"python": 1}
```
"""


def test_a_page_is_what_its_reader_does() -> None:
    assert actions_of(PAGE) == [
        Action("python", "x = 1", 4),
        Action("python", "def f():\n    return x", 9),
        Action("file", 'print("agent")', 19, "agent.py"),
        Action("command", "perdure runs \\\n    --json", 23),
        Action("command", "python agent.py", 27),
        Action("command", "perdure demo", 31),
    ]


def test_a_file_that_no_command_runs_is_a_script() -> None:
    page = '```python title="agent.py"\nx = 1\n```\n'
    assert [action.kind for action in actions_of(page)] == ["file", "script"]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("text\n```python\nx = 1\n", "line 2: the block has no end"),
        ("````python\nx = 1\n```\n", "line 1: the block has no end"),
        ("<!-- no-run: -->\n```python\nx\n```\n", "line 1: say why"),
    ],
)
def test_unusable_pages_are_noticed(page: str, complaint: str) -> None:
    with pytest.raises(BadPage, match=complaint):
        actions_of(page)


def follow(folder: Path, page: str) -> tuple[int, str]:
    path = folder / "page.md"
    path.write_text(page)
    (folder / "empty").mkdir()
    result = run_page(path, folder / "empty")
    return result.returncode, result.stdout


def test_blocks_share_one_process_and_an_empty_home(tmp_path: Path) -> None:
    page = """\
```python
from __future__ import annotations
import os, pathlib
assert os.listdir() == [] and pathlib.Path.home() == pathlib.Path.cwd()
assert __name__ == "__main__" and not any(name.startswith("PERDURE") for name in os.environ)
process = os.getpid()
```
```python title="told.py"
from pathlib import Path
Path("told").write_text("yes")
```
```console
$ python told.py | cat
```
```python
from __future__ import annotations
assert process == os.getpid() and pathlib.Path("told").read_text() == "yes"
```
"""
    assert follow(tmp_path, page) == (0, "")


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("a\n\n```python\nx = 1\nx / 0\n```\n", 'page.md", line 5'),
        ("```python\ndef f(:\n```\n", 'page.md", line 2'),
        ("```python\nimport sys\nsys.exit(3)\n```\n", ""),
        ("```python title='a.py'\nraise ValueError('told')\n```\n", "ValueError: told"),
        ("a\n```console\n$ python -c 'raise SystemExit(3)'\n```\n", "page.md:3: exit code 3"),
        ("```console\n$ python gone.py | cat\n```\n", "page.md:2: exit code 2"),
    ],
)
def test_code_that_fails_is_noticed(tmp_path: Path, page: str, complaint: str) -> None:
    code, output = follow(tmp_path, page)
    assert code != 0
    assert complaint in output


def test_links_are_found_outside_of_code() -> None:
    page = """\
[a](x.md) and ![b](img/y.png "title") and `[c](no.md)`
```
[d](no.md)
```
[ref]: z.md
<img src="w.svg">
"""
    assert links_of(page) == [(1, "x.md"), (1, "img/y.png"), (5, "z.md"), (6, "w.svg")]


def test_anchors_are_those_of_github() -> None:
    page = "# What, exactly?\n## `run.each` and [map](x.md)\n## Same\n## Same\n```\n# no heading\n```\n"
    assert anchors_of(page) == {"what-exactly", "runeach-and-map", "same", "same-1"}


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Top\n")
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "# Here\n[good](../README.md#top) [good](#here) [good](https://example.com/x) [good](mailto:a@b.c)\n"
        "[bad](gone.md)\n[bad](../README.md#gone)\n[bad](#gone)\n[bad](../../outside.md)\n"
    )
    (tmp_path.parent / "outside.md").write_text("x")
    assert list(broken_links(page, tmp_path)) == [
        "docs/page.md:3: gone.md does not exist",
        "docs/page.md:4: ../README.md#gone has no such heading",
        "docs/page.md:5: #gone has no such heading",
        "docs/page.md:6: ../../outside.md does not exist",
    ]


def test_long_lines_are_found_outside_of_tables() -> None:
    long = "word " * 25
    assert find_long_lines(f"short\n{long}\n| {long} |\n```text\n{long}\n```\n- {long}\n") == [2, 5, 7]
