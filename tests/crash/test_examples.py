"""Every example is run and killed, on both stores: effects happen once, and nothing recorded is paid for again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.platform.failpoints import CommitMoment, Site

from .chat_server import ChatServer
from .programs import Program, warm
from .providers import provider

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
AFTER, BEFORE, BEGUN, WRITTEN = CommitMoment.AFTER, CommitMoment.BEFORE, CommitMoment.BEGUN, CommitMoment.WRITTEN
BOOKED = "The 11:00 flight to Oslo is booked for 90 EUR."


def coding_agent(example: Program) -> None:
    example.killed_at(Site.ITEM_DONE, AFTER, 12)
    example.killed_at(Site.EFFECT_OUTCOME, BEFORE)
    assert example.survive(seed=3, most=160)[-1] == "shipped with 13 comments"
    assert len(set(example.outside("outside.txt"))) == len(example.outside("outside.txt")) == 16
    calls = {line.split(" ", 2)[2] for line in example.outside("calls.txt")}
    assert len(calls) == 50 and len(example.outside("calls.txt")) <= 50 + example.kills


def state_pages(example: Program) -> None:
    example.killed_at(Site.STATE, AFTER, 30)
    example.killed_at(Site.STATE, BEGUN)
    assert example.output[0] == "begin at page 31"
    assert example.survive(seed=1, most=20)[-1] == "40 findings"
    example.at_most_again("pages.txt", [str(page) for page in range(1, 41)])


def workflow(example: Program) -> None:
    example.killed_at(Site.WORKFLOW, AFTER, 6)  # created, two steps done, the third one started
    example.killed_at(Site.WORKFLOW, BEGUN)
    assert example.output[0] == "3 write"
    example.killed_at(Site.STEP_DONE, BEFORE, 3)
    assert example.outside("work.txt") == ["scrape", "analyse", "write", "check", "site", "mail", "chat"]
    example.killed_at(Site.WORKFLOW, BEGUN)
    assert example.output[0] == "sending: 50% done"
    assert example.survive(seed=5, most=12)[-1] == "feed is done 100%"
    example.at_most_again("work.txt", ["scrape", "analyse", "write", "check", "site", "mail", "chat", "feed"])


def checkpoints(example: Program) -> None:
    example.killed_at(Site.CHECKPOINT, AFTER, 3)
    example.killed_at(Site.CHECKPOINT, WRITTEN)
    assert example.output[0] == "analysis-30pct: read page 31"
    assert example.survive(seed=2, most=12)[-1] == "100 findings"
    assert set(example.outside("analysed.txt")) == {str(page) for page in range(1, 101)}


def each_item(example: Program) -> None:
    example.killed_at(Site.ITEM_DONE, AFTER, 5)
    example.killed_at(Site.EFFECT_OUTCOME, BEFORE, 2)
    example.arguments = ("23",)  # three more customers
    assert example.survive(seed=4, most=60)[-1] == "{'sent': 23, 'last': 'customer 23'}"
    example.once_each("outbox.txt", [f"Dear customer {n}, spring is here." for n in range(1, 24)])
    example.arguments = ("25",)
    assert "start a run with a new id" in example.finish()[0]
    example.arguments = ("23",)


def async_research(example: Program) -> None:
    example.killed_at(Site.STEP_DONE, AFTER, 2)
    before = example.output
    shown = example.survive(seed=6, most=30)
    assert "'answers': 6" in shown[-1] and before[0] not in shown
    assert len(list(example.folder.glob("letter-*.txt"))) == 1


def in_doubt(example: Program) -> None:
    assert example.start() is None  # it kills itself, right after the payment
    assert "the outcome of pay is unknown" in example.finish()[-1]
    example.killed_at(Site.RUN_CLAIM, WRITTEN)
    example.arguments = ("paid",)
    example.killed_at(Site.ANSWER, WRITTEN)
    assert example.finish()[-1] == "paid, says the bank"
    example.once_each("bank.txt", ["7 120"])
    assert "is finished" in example.finish()[0]


def workers(example: Program) -> None:
    example.killed_at(Site.STEP_DONE, AFTER, 4)
    example.killed_at(Site.STEP_DONE, BEFORE, 1)
    example.killed_at(Site.TASK, AFTER, 1)
    assert example.finish()[-1] == "rain (600 words), snow (600 words), fog (600 words)"
    assert sorted(example.outside("published.txt")) == ["fog: 600 words", "rain: 600 words", "snow: 600 words"]


def sessions(example: Program) -> None:
    """Sessions that know nothing finish one task; three of them are killed."""
    example.arguments = ("initialise",)
    example.finish()
    example.arguments = ("session",)
    example.finish()
    example.killed_at(Site.STEP_DONE, AFTER)
    example.killed_at(Site.RUN_END, BEFORE)
    example.killed_at(Site.RUN_END, AFTER)
    for _ in range(6):
        shown = example.finish()
    assert shown == ["nothing is left"]
    example.once_each("work.txt", ["outline", "draft", "figures", "review", "mail"])
    assert "- [ ]" not in (example.folder / "sessions/tasks/report.md").read_text()


def plan_and_run(example: Program) -> None:
    example.killed_at(Site.STEP_DONE, AFTER, 3)  # the strong model's work is paid for
    example.killed_at(Site.STEP_DONE, BEFORE, 5)  # in the middle of a play: an attempt is lost
    example.killed_at(Site.STEP_DONE, BEFORE, 1)
    report = example.survive(seed=7, most=60)
    assert report[0] == "playbook report, version 1: 4 plays"
    assert [line.partition(" (")[0] for line in report[1:6]] == [
        "  read the accounts, cheap: 4 of 4",
        "  list the risks, cheap: 3 of 4",
        "  list the risks, strong: 1 of 1",
        "  list the risks: 1 escalation",
        "  write the summary, cheap: 4 of 4",
    ]
    assert "saved 90% against strong alone" in report[6]
    tasks = ("read the accounts", "list the risks", "write the summary")
    cheap = [f"cheap: {task} of {name}" for name in ("Globex", "Initech", "Umbrella", "Hooli") for task in tasks]
    strong = [f"strong: {task} of Acme" for task in tasks]
    example.at_most_again("calls.txt", [*cheap, *strong, "strong: list the risks of Initech"])
    assert example.finish() == report, "nothing is counted again"


def cron_job(example: Program) -> None:
    example.arguments = ("2026-11-16",)
    example.killed_at(Site.STEP_DONE, AFTER, 2)
    example.arguments = ("2026-11-17",)  # the next night: it finishes the day before
    example.killed_at(Site.EFFECT_OUTCOME, BEFORE, 2)
    assert example.finish() == ["2026-11-17 is sent"]
    example.arguments = ("2026-11-18",)
    assert example.survive(seed=9, most=20)[-1].startswith("2026-11-18")
    assert example.finish() == ["2026-11-18 was sent before"]
    digest = "news: nothing new, papers: nothing new, issues: nothing new"
    example.once_each("outbox.txt", [f"2026-11-{day} {digest}" for day in (16, 17, 18)])
    topics = ("news", "papers", "issues")
    example.at_most_again("calls.txt", [f"2026-11-{day} {topic}" for day in (16, 17, 18) for topic in topics])


EXPECTED: dict[str, Callable[[Program], None]] = {
    f"{check.__name__}.py": check
    for check in (
        coding_agent, state_pages, workflow, checkpoints, each_item, async_research, in_doubt, workers, sessions,
        plan_and_run, cron_job,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_survives(name: str, store_url: str, tmp_path: Path) -> None:
    example = Program(EXAMPLES / name, tmp_path, store_url)
    EXPECTED[name](example)
    assert example.kills >= 2, "it was hardly tried"
    example.finish()


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("openai_tools.py", "openai.resources.chat.completions"),
        ("anthropic_tools.py", "anthropic.resources.messages"),
    ],
)
def test_a_tool_loop_pays_and_books_once(name: str, resources: str, store_url: str, tmp_path: Path) -> None:
    warm(resources)
    with provider() as api:
        addresses = {"OPENAI_BASE_URL": f"{api.address}/v1", "ANTHROPIC_BASE_URL": api.address}
        keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
        example = Program(EXAMPLES / name, tmp_path, store_url, **addresses, **keys)
        example.killed_at(Site.STEP_DONE, AFTER, 1)  # the first answer is paid for
        example.killed_at(Site.STEP_DONE, BEFORE, 2)  # the second one is lost on the way to the disk
        example.killed_at(Site.EFFECT_OUTCOME, BEFORE)  # booked, but not recorded
        assert example.survive(seed=8, most=40) == [BOOKED]
        assert example.finish() == [BOOKED]
        example.once_each("bookings.txt", ["PD 43 to Oslo, 11:00, 90 EUR"])
        assert api.problems == [] and api.paid.keys() == {0, 1, 2}
        assert api.paid[0] == 1 and sum(api.paid.values()) <= 3 + example.kills


def test_the_chat_server_loses_and_doubles_nothing(store_url: str, tmp_path: Path) -> None:
    warm("fastapi", "uvicorn.protocols.http.h11_impl")
    with ChatServer(EXAMPLES / "fastapi_chat.py", tmp_path, store_url) as server:
        hello, order = {"id": "m1", "text": "Hello"}, {"id": "m2", "text": "Refund order 7"}
        assert server.send("/chat/ann", hello, kill=(Site.RUN_CLAIM, AFTER)) == {"reply": "That was message 1."}
        assert server.send("/chat/ann", hello) == {"reply": "That was message 1."}, "a message sent again"
        waiting = server.send("/chat/ann", order, kill=(Site.STEP_DONE, AFTER))
        assert "refund order 7?" in waiting["waiting"]
        assert "waiting" in server.send("/chat/ann", {"id": "m3", "text": "Hurry"}), "the next message is queued"
        server.send("/approve/ann", {"yes": True}, kill=(Site.ANSWER, AFTER))
        assert server.send("/chat/ann", order, kill=(Site.EFFECT_OUTCOME, BEFORE)) == {"reply": "refunded order 7"}
        assert server.send("/chat/ann", {"id": "m3", "text": "Hurry"}) == {"reply": "That was message 3."}
        assert server.send("/chat/bob", {"id": "m1", "text": "Hi"}) == {"reply": "That was message 1."}
        assert server.kills == 4
    assert server.outside("bank.txt") == ["order 7"]
    assert server.outside("calls.txt") == ["Hello", "Refund order 7", "Hurry", "Hi"]


def test_the_agent_in_docker_survives(store_url: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "shop.py").write_text("def total(prices):\n    return 0\n")
    (work / "test_shop.py").write_text(
        "import shop, unittest\n\nclass Test(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(shop.total([1, 2]), 3)\n"
    )
    git = ["git", "-C", str(work), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    names = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    example = Program(EXAMPLES / "docker" / "agent.py", tmp_path, store_url, WORK=str(work), **names)
    example.killed_at(Site.STEP_DONE, AFTER, 3)
    example.killed_at(Site.EFFECT_OUTCOME, BEFORE)
    assert example.survive(seed=10, most=30) == ["The tests pass."]
    assert example.finish() == ["The tests pass."]
    log = subprocess.run([*git, "log", "--format=%s"], check=True, capture_output=True, text=True).stdout
    assert log == "Add up all prices\n"
    subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=work, capture_output=True, check=True)
    example.at_most_again("calls.txt", [str(2 * number + 1) for number in range(5)])


def test_the_container_keeps_what_must_survive() -> None:
    """No Docker engine runs here: the files must at least agree with each other and with the repository."""
    import yaml

    compose = yaml.safe_load((EXAMPLES / "docker/compose.yaml").read_text("utf-8"))
    service = compose["services"]["coder"]
    folders = {mount.split(":")[1]: mount.split(":")[0] for mount in service["volumes"]}
    assert set(folders.values()) == set(compose["volumes"])
    context = EXAMPLES / "docker" / service["build"]["context"]
    dockerfile = (context / service["build"]["dockerfile"]).read_text("utf-8")
    for folder in ("/data", "/work"):
        assert folder in folders and f"{folder}" in dockerfile
    assert "PERDURE_URL=sqlite:////data/" in dockerfile and "WORK=/work" in dockerfile
    copied = [line.split()[1:-1] for line in dockerfile.splitlines() if line.startswith("COPY")]
    assert all((context / source).exists() for line in copied for source in line)


def test_the_example_of_langgraph_survives(tmp_path: Path, store_url: str) -> None:
    warm("langchain.agents", "perdure.adapters.langgraph")
    example = Program(EXAMPLES / "langgraph_agent.py", tmp_path, store_url)
    assert example.start() is None  # it kills itself, right after the payment
    assert example.output == ["the model is asked", "paid 120 for invoice 7"]
    assert example.finish() == ["the model is asked", "The bank says: paid before."]


def test_every_example_is_run_short_and_listed() -> None:
    names = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    others = {"openai_tools.py", "anthropic_tools.py", "fastapi_chat.py", "langgraph_agent.py", "docker/agent.py"}
    others.add("moving_frameworks.py")  # run by tests/adapters
    assert names == {*EXPECTED, *others}
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for name in names:
        lines = len((EXAMPLES / name).read_text("utf-8").splitlines())
        assert lines <= (40 if name == "plan_and_run.py" else 90), f"{name}: a reader has a minute"
        assert f"]({name})" in listed, name


def test_the_first_example_is_the_agent_of_the_demo() -> None:
    example = (EXAMPLES / "coding_agent.py").read_text("utf-8")
    assert example == (ROOT / "src/perdure/demo/agent.py").read_text("utf-8")
