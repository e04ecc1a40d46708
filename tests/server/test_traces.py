"""`perdure serve --otlp`: one trace for each run, sent to a real HTTP receiver."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import RunWaiting, WrongValue
from perdure.server.otlp import sender as sending
from perdure.server.otlp.sender import SpanSender, parse_collector
from tests.conformance.kit import wait_until
from tests.server.harness import Server
from tests.server.receivers import WebReceiver

SECRET = "the passport is X-123"
Span = dict[str, Any]


def attributes(span: Span) -> dict[str, Any]:
    """The attributes of a span as plain values."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


class Collector(WebReceiver):
    """Takes spans, and keeps them by id."""

    def collect(self, count: int) -> list[Span]:
        """Wait until `count` spans have come."""
        self.spans: list[Span] = getattr(self, "spans", [])
        while len(self.spans) < count:
            received = self.get()
            assert (received.path, received.headers["content-type"]) == ("/v1/traces", "application/json")
            assert SECRET not in received.body.decode()
            for resource in json.loads(received.body)["resourceSpans"]:
                self.spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
        return self.spans


def read_metrics(server: Server) -> dict[str, float]:
    lines = server.client().get("/metrics").body.decode().splitlines()
    return {name: float(number) for name, _, number in (one.rpartition(" ") for one in lines if one[0] != "#")}


def program(agent: Agent, run_id: str) -> None:
    """Steps, an effect, a model call and a question."""
    with agent.run(run_id, input=SECRET, wait=0) as run:

        @agent.step
        def plan(what: str) -> str:
            run.usage(model="gpt-4o", provider="openai", input_tokens=12, output_tokens=3)
            return what

        @agent.effect
        def book(what: str) -> str:
            return what

        plan(SECRET)
        book(SECRET)
        run.ask(f"Is it true that {SECRET}?")


def test_the_processes_of_a_run_make_one_trace(server: Server, tmp_path: Path) -> None:
    server.stop()
    with Collector() as collector:
        traced = Server(server.store, tmp_path, "--otlp", collector.url).start()
        try:
            with Agent("travel", store=server.store) as agent:
                with pytest.raises(RunWaiting):
                    program(agent, "trip")
                first = collector.collect(4)
                agent.runs.answer("trip", "yes")
                program(agent, "trip")
            spans = collector.collect(6)
            assert read_metrics(traced)["perdure_spans_sent_total"] == 6
            assert read_metrics(traced)["perdure_spans_dropped_total"] == 0
        finally:
            assert traced.stop() == 0
    assert len({span["traceId"] for span in spans}) == 1 and len({span["spanId"] for span in spans}) == 6
    names = ["invoke_agent travel", "plan", "chat gpt-4o", "execute_tool book"]
    assert sorted(span["name"] for span in first[:4]) == sorted(names)
    [begun, resumed] = [span for span in spans if span["name"] == "invoke_agent travel"]
    assert begun["parentSpanId"] == "" and resumed["parentSpanId"] == begun["spanId"]
    by_name = {span["name"]: span for span in spans}
    assert by_name["wait ask"]["parentSpanId"] == by_name["plan"]["parentSpanId"] == begun["spanId"]
    chat = attributes(by_name["chat gpt-4o"])
    assert by_name["chat gpt-4o"]["parentSpanId"] == by_name["plan"]["spanId"]
    assert (chat["gen_ai.operation.name"], chat["gen_ai.provider.name"]) == ("chat", "openai")
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == ("12", "3")
    assert attributes(by_name["execute_tool book"])["gen_ai.tool.name"] == "book"
    assert attributes(resumed)["gen_ai.conversation.id"] == "trip" and attributes(resumed)["perdure.resumed"] is True
    assert all(int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"]) for one in spans)


def test_a_failure_is_told_by_its_class_and_a_crash_by_its_name(server: Server, tmp_path: Path) -> None:
    server.stop()
    with Collector() as collector:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b"}
        traced = Server(server.store, tmp_path).start(env=endpoint)
        try:
            with Agent("travel", store=server.store) as agent:

                @agent.step
                def search() -> None:
                    raise ValueError(SECRET)

                with pytest.raises(ValueError, match="passport"), agent.run("bad"):
                    search()
            spans = collector.collect(2)
            assert {attributes(one)["error.type"] for one in spans} == {"ValueError"}
            assert {one["status"]["code"] for one in spans} == {2}
            code = (
                "import os, signal, sys, perdure\n"
                "with perdure.Agent('travel', store=sys.argv[1]).run('dead'): os.kill(os.getpid(), signal.SIGKILL)"
            )
            done = subprocess.run([sys.executable, "-c", code, server.store], env=os.environ.copy(), check=False)
            assert done.returncode == -signal.SIGKILL
            assert attributes(collector.collect(3)[2])["error.type"] == "killed"
        finally:
            traced.kill()


def test_nothing_is_sent_without_a_collector(server: Server) -> None:
    assert not any("span" in name for name in read_metrics(server))


def test_a_collector_that_is_away_costs_spans_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PAUSE_SECONDS", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sender = SpanSender(parse_collector(f"http://127.0.0.1:{unused.getsockname()[1]}"))
        sender.put([{"name": "x"}] * (sending.QUEUED_MAX + 7))
        assert sender.dropped == 7, "the queue is full, and nobody has waited"
        sender.start()
        wait_until(lambda: sender.dropped == sending.QUEUED_MAX + 7)
        sender.stop()
    assert sender.sent == 0


def test_a_busy_collector_gets_its_spans_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PAUSE_SECONDS", 0.0)
    with Collector(lambda number: 503 if number == 1 else 200) as collector:
        sender = SpanSender(parse_collector(f"{collector.url}/base/", "x-token=a%20b"))
        sender.start()
        sender.put([{"name": "x"}])
        wait_until(lambda: sender.sent == 1)
        sender.stop()
        first, second = collector.get(), collector.get()
    assert first.body == second.body and (sender.dropped, first.path) == (0, "/base/v1/traces")
    assert first.headers["x-token"] == "a b"


@pytest.mark.parametrize("url", ["localhost:4318", "grpc://localhost:4317", "http://"])
def test_an_address_that_could_never_work_is_refused(url: str) -> None:
    with pytest.raises(WrongValue, match="--otlp"):
        parse_collector(url)
