"""Questions reach people: the inbox, webhooks, mail, Slack, and the page behind a link."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from perdure import Agent, RunWaiting
from perdure.errors import AlreadyAnswered, ResourceNotFound, WrongValue
from perdure.server.keys import KeyRing
from perdure.server.notify.deliveries import CLAIM_SECONDS, SCHEDULE_SECONDS, Deliveries
from perdure.server.notify.links import LINK_SECONDS_MAX, make_token, read_token
from perdure.server.notify.notifier import Notifier
from perdure.server.notify.targets import parse_target, sign
from perdure.server.tenants import Tenants
from tests.server.harness import Client, Reply, Server, run_cli
from tests.server.receivers import MailReceiver, Received, WebReceiver

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
BAD = "<script>alert(1)</script> \"quoted\" & 'so'"


def ask(store: str, run: str, question: str, **more: Any) -> None:
    """A run asks, and its process does not wait."""
    with Agent("travel", store=store) as agent, pytest.raises(RunWaiting), agent.run(run, wait=0) as opened:
        opened.approve(question) if more.pop("approve", False) else opened.ask(question, **more)


def doubt(store: str, run: str) -> None:
    """A run waits because nobody knows whether an effect has happened."""
    with Agent("travel", store=store) as agent:

        @agent.effect
        def pay(amount: int) -> None:
            raise ConnectionResetError

        with pytest.raises(Exception, match="unknown"), agent.run(run):
            pay(5)
        with pytest.raises(RunWaiting), agent.run(run, wait=0):
            pay(5)


def answers_of(store: str, run: str) -> list[tuple[str, str]]:
    with Agent("travel", store=store) as agent:
        stream = agent.runs.get(run).summary.stream
        rows = agent._engine.store.read("answers_of", (stream,))
        found = [agent._engine.store.read("get_answer", (stream, about))[0] for about, _ in rows]
        return [(verdict, by) for verdict, _, by, _ in found]


def test_the_inbox_lists_open_questions_and_takes_answers(server: Server, writer: Client) -> None:
    ask(server.store, "a", "Window or aisle?", choices=["window", "aisle"])
    ask(server.store, "b", "Book it?", approve=True)
    doubt(server.store, "c")
    listed = writer.get("/v1/questions").json()["questions"]
    assert [(one["run"], one["kind"]) for one in listed] == [("a", "ask"), ("b", "approve"), ("c", "in_doubt")]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", listed[0]["asked_at"])
    assert listed[0]["choices"] == ["window", "aisle"] and listed[2]["key"]
    first = writer.get("/v1/questions?limit=2").json()
    rest = writer.get(f"/v1/agents/travel/questions?after={first['next']}").json()
    assert [one["run"] for one in first["questions"] + rest["questions"]] == ["a", "b", "c"]
    assert writer.get("/v1/agents/other/questions").json()["questions"] == []

    def answer(number: int, **body: Any) -> Reply:
        return writer.post(f"/v1/agents/travel/questions/{listed[number]['id']}:answer", body)

    assert answer(0, answer="floor").status == 422
    assert answer(0, answer="aisle", retry=True).status == 400
    assert answer(0, answer="aisle", by="Ada").json()["verdict"] == "value"
    assert answer(0, answer="window").json()["code"] == "PD308", "the first answer counts"
    assert answer(1, answer=True).status == answer(2, done={"paid": 5}).status == 200
    assert writer.get("/v1/questions").json()["questions"] == []
    assert answers_of(server.store, "a") == [("value", "Ada")]
    assert writer.post("/v1/agents/travel/questions/nonsense:answer", {"answer": 1}).status == 409
    reader = server.writer("--role", "reader")
    assert reader.post(f"/v1/agents/travel/questions/{listed[0]['id']}:answer", {"answer": 1}).status == 403
    bound = server.writer("--agent", "other")
    assert bound.get("/v1/agents/travel/questions").status == 403
    assert bound.get("/v1/questions").json()["questions"] == []


@pytest.fixture
def receiver() -> Iterator[WebReceiver]:
    with WebReceiver() as running:
        yield running


@pytest.fixture
def notifying(tmp_path: Path) -> Iterator[Server]:
    """A server that is not started yet."""
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path)
    yield server
    server.kill()


def notifying_env(receiver: WebReceiver) -> dict[str, str]:
    return {"PERDURE_NOTIFY_SECRET": SECRET, "PERDURE_NOTIFY": f"{receiver.url}/hook"}


def verify(received: Received) -> dict[str, Any]:
    """Check a signature as a receiver does who has only read the standard."""
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    made = hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    assert received.headers["webhook-signature"] == "v1," + base64.b64encode(made).decode()
    found: dict[str, Any] = json.loads(received.body)
    return found


def link_of(received: Received) -> str:
    return str(urlsplit(verify(received)["data"]["url"]).path)


def test_a_signed_webhook_survives_a_killed_server_and_its_link_takes_one_answer(
    notifying: Server, receiver: WebReceiver
) -> None:
    server, env = notifying, notifying_env(receiver)
    receiver.answer = lambda number: 500
    server.start(0, env)
    ask(server.store, "trip", BAD)
    first = receiver.get()
    server.kill()
    receiver.answer = lambda number: 204
    server.start(0, env)
    [waiting] = json.loads(run_cli("notify", "list", "--json", "--store", server.store).stdout)
    assert (waiting["status"], waiting["run"], waiting["label"]) == ("pending", "trip", "webhook 127.0.0.1")
    assert run_cli("notify", "retry", waiting["id"], "--store", server.store).returncode == 0
    second = receiver.get()
    assert (second.path, second.headers["webhook-id"]) == ("/hook", first.headers["webhook-id"])
    assert verify(second)["data"]["text"] == BAD
    path, person = link_of(second), server.client()
    page = person.get(path)
    assert page.status == 200 and b"<script>" not in page.body and b"&lt;script&gt;" in page.body
    assert "default-src 'none'" in page.headers["content-security-policy"] and "set-cookie" not in page.headers
    assert page.headers["referrer-policy"] == "no-referrer"
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = urlencode({"answer": "yes <b>", "by": "Ada"}).encode()
    for elsewhere in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert person.request("POST", path, body, {**form, **elsewhere}).status == 403
    assert answers_of(server.store, "trip") == []
    assert person.request("POST", path, body, {**form, "origin": server.origin}).status == 200
    assert person.request("POST", path, body, form).status == person.get(path).status == 410
    assert answers_of(server.store, "trip") == [("value", "Ada")]
    assert SECRET not in server.log and "/answer/" not in server.log


def test_a_link_opens_its_question_and_nothing_else(shared_server: Server) -> None:
    ask(shared_server.store, "one", "One?", approve=True)
    ask(shared_server.store, "two", "Two?", choices=["x", 2])
    doubt(shared_server.store, "three")
    ask(shared_server.store, "four", "Four?")
    with Agent("travel", store=shared_server.store) as agent:
        store = agent._engine.store
        rows = store.read("question_inbox", ("", 0, 0, 10))
        tokens = [make_token(store, "default", f"{row[2]}-{row[3]}", store.clock.wall_ms()) for row in rows]
    person, form = shared_server.client(), {"content-type": "application/x-www-form-urlencoded"}

    def post(token: str, **fields: str) -> int:
        return person.request("POST", f"/answer/{token}", urlencode(fields).encode(), form).status

    other = tokens[1].split(".")[1]
    forged = tokens[0].replace(tokens[0].split(".")[1], other)
    for wrong in (forged, tokens[0][:-1], tokens[0].replace("default", "other"), "x", "%2e%2e%2fv1"):
        assert person.get(f"/answer/{wrong}").status in (400, 404)
        assert post(wrong, answer="yes") in (400, 404)
    assert not (Path(urlsplit(shared_server.store).path).parent / "tenants").exists(), "a guess opens no store"
    assert [post(tokens[0], answer="perhaps"), post(tokens[0], answer="yes")] == [422, 200]
    assert [post(tokens[1], choice="7"), post(tokens[1], choice="1")] == [422, 200]
    assert [post(tokens[2]), post(tokens[2], verdict="done", answer='{"paid": 5}')] == [422, 200]
    assert post(tokens[3], answer="free\r\ntext") == 200
    with Agent("travel", store=shared_server.store) as agent:
        with agent.run("one") as run:
            assert run.approve("One?") is True
        with agent.run("two") as run:
            assert run.ask("Two?", choices=["x", 2]) == 2
        with agent.run("four") as run:
            assert run.ask("Four?") == "free\ntext"


def test_a_link_ends(store_url: str) -> None:
    with Agent("travel", store=store_url) as agent:
        store = agent._engine.store
        token = make_token(store, "default", "1-2", 0)
        assert read_token(store, token, LINK_SECONDS_MAX * 1000).question == "1-2"
        with pytest.raises(ResourceNotFound):
            read_token(store, token, LINK_SECONDS_MAX * 1000 + 1)


class World:
    """Notifiers on one store, with a clock of their own."""

    def __init__(self, store: str, *targets: str) -> None:
        self.store = store
        self.now = 1_000_000
        self.targets = [parse_target(url, SECRET) for url in targets]

    async def tend(self, servers: int = 1) -> None:
        """Let several servers look at the same moment."""
        every = [(Tenants(self.store), KeyRing(self.store)) for _ in range(servers)]
        try:
            notifiers = [Notifier(*one, self.targets, SECRET, lambda: self.now) for one in every]
            await asyncio.gather(*(one.tend("default", "http://host") for one in notifiers))
        finally:
            for tenants, keys in every:
                await tenants.close()
                await keys.close()

    def look(self, servers: int = 1) -> None:
        asyncio.run(self.tend(servers))

    def list(self) -> list[tuple[str, int]]:
        async def read() -> list[tuple[str, int]]:
            tenants = Tenants(self.store)
            with tenants.using():
                found = await Deliveries(await tenants.server_agent("default")).list()
            await tenants.close()
            return [(one.status, one.attempts) for one in found.values()]

        return asyncio.run(read())


def test_a_notice_is_sent_until_it_is_accepted_and_by_one_server_at_a_time(
    store_url: str, receiver: WebReceiver
) -> None:
    receiver.answer = lambda number: 204 if number == 3 else 302
    world = World(store_url, receiver.url)
    ask(store_url, "trip", "Go?")
    world.look(3)
    assert receiver.requests.qsize() == 1
    world.now += SCHEDULE_SECONDS[0] * 1000 - 1
    world.look()
    assert receiver.requests.qsize() == 1
    world.now += 1
    world.look(2)
    world.now += SCHEDULE_SECONDS[1] * 1000
    world.look(2)
    assert (receiver.requests.qsize(), world.list()) == (3, [("delivered", 3)])
    assert len({receiver.get().headers["webhook-id"] for _ in range(3)}) == 1
    world.now += 10**9
    world.look()
    assert receiver.requests.empty()
    with Agent("travel", store=store_url) as agent:
        agent.runs.answer("trip", "yes")
    world.look()
    assert world.list() == []


def test_a_claim_of_a_dead_server_ends_and_a_refused_notice_is_dead_at_last(
    store_url: str, receiver: WebReceiver
) -> None:
    receiver.answer = lambda number: 500
    world = World(store_url, receiver.url)
    ask(store_url, "trip", "Go?")
    world.look()
    world.now += SCHEDULE_SECONDS[0] * 1000

    async def claim() -> None:
        tenants = Tenants(store_url)
        with tenants.using():
            deliveries = Deliveries(await tenants.server_agent("default"))
            [planned] = (await deliveries.list()).values()
            assert await deliveries.claim(planned, world.now) is not None
            assert await deliveries.claim(planned, world.now) is None
        await tenants.close()

    asyncio.run(claim())
    world.look()
    assert receiver.requests.qsize() == 1, "another server is sending it, or has died"
    world.now += CLAIM_SECONDS * 1000
    world.look()
    assert (receiver.requests.qsize(), world.list()) == (2, [("pending", 3)])
    for pause in SCHEDULE_SECONDS[2:]:
        world.now += pause * 1000
        world.look()
    assert world.list() == [("dead", len(SCHEDULE_SECONDS) + 1)]
    sent = receiver.requests.qsize()
    world.now += 10**9
    world.look()
    assert receiver.requests.qsize() == sent


def test_slack_and_mail_get_the_question_and_its_link(store_url: str, receiver: WebReceiver) -> None:
    with MailReceiver() as mail:
        smtp = f"smtp://127.0.0.1:{mail.port}/?from=perdure@example.org&to=ada@example.org"
        ask(store_url, "trip", "Go <there>\nnow?")
        World(store_url, f"slack+{receiver.url}/T1", smtp).look()
        told = json.loads(receiver.get().body)["text"]
        assert "Go &lt;there&gt;" in told and re.search(r"<http://host/answer/default\.\S+\|Answer>", told)
        text = mail.mails.get(timeout=60)
        assert "Subject: travel asks: Go <there> now?" in text and "http://host/answer/default." in text.replace(
            "=\n", ""
        )
        assert "To: ada@example.org" in text


def test_a_signature_is_the_one_of_the_standard() -> None:
    # The example of Standard Webhooks.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    made = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("url", ["ftp://x", "https://", "x", "smtp://host", "smtp://host/?from=a@b.c"])
def test_a_target_that_could_never_work_is_refused(url: str) -> None:
    with pytest.raises(WrongValue):
        parse_target(url, SECRET)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!!", "abcd", "whsec_" + base64.b64encode(b"short").decode()])
def test_webhooks_need_a_secret(secret: str) -> None:
    with pytest.raises(WrongValue, match="PERDURE_NOTIFY_SECRET"):
        parse_target("https://example.org", secret)


def test_the_first_answer_counts(store_url: str) -> None:
    ask(store_url, "trip", "Go?")
    with Agent("travel", store=store_url) as agent:
        agent.runs.answer("trip", "yes")
        with pytest.raises(AlreadyAnswered):
            agent.runs.answer("trip", "no")
