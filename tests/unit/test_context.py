"""What is shown of a conversation: it fits, what must stay stays, calls have their results, the beginning is stable."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import ContextTooSmall
from perdure.presence.context.build import ContextRequest, compose
from perdure.presence.context.context import Context
from perdure.presence.context.fill import SectionText
from perdure.presence.context.layout import SLOTS, parse_layout, share_budget
from perdure.presence.context.mask import shorten_text
from perdure.presence.context.measure import MeasuredMessage
from perdure.presence.context.parse import parse_message
from perdure.presence.context.turns import Turns
from perdure.run.conversation import Conversation, StoredMessage, is_pinned
from perdure.values.tokens import estimate_tokens

Message = dict[str, Any]


class Stage:
    """A conversation without a store."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.talk = self._talk()

    def _talk(self) -> Turns:
        return Turns("trip", estimate_tokens, lambda value: self.messages[int(value)])

    def say(self, *messages: Message) -> None:
        self.messages += messages

    def context(self, budget: int = 8000, *, anew: bool = False, pieces: tuple[SectionText, ...] = ()) -> Context:
        talk = self._talk() if anew else self.talk
        pins = {place: True for place, message in enumerate(self.messages) if is_pinned(message)}
        talk.update(Conversation([(place, b"%d" % place) for place in range(len(self.messages))], pins, []))
        return compose(talk, ContextRequest(budget, SLOTS, pieces))


def called(ident: str, name: str = "search", **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": ident, "type": "function", "function": function}


def is_whole(messages: list[Message]) -> None:
    """Every call is followed by its results at once; nothing else is a result."""
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, f"message {place} has no call"
            open_calls.discard(message["tool_call_id"])
            continue
        assert not open_calls, f"message {place} stands between a call and its result"
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}


def size(message: Message) -> int:
    """Tokens, counted by somebody else than the code under test."""
    calls = message.get("tool_calls") or ()
    called = [call["function"] for call in calls]
    inside = sum(8 + estimate_tokens(one["name"]) + estimate_tokens(one["arguments"]) for one in called)
    text = message["content"] or ""
    return 4 + inside + estimate_tokens(text) + (8 if message["role"] == "tool" else 0)


def words(count: int, salt: object) -> str:
    return " ".join(f"w{salt}x{number}" if number % 9 == 0 else "plain" for number in range(count))


def files(turn: int) -> tuple[SectionText, ...]:
    """Who it is, and a log that is another one each time."""
    return SectionText("identity", words(300, "me"), "SOUL.md"), SectionText(
        "days", words(100 + turn % 5 * 20, f"day{turn}")
    )


def no_files(turn: int) -> tuple[SectionText, ...]:
    return ()


@st.composite
def turns(draw: st.DrawFn) -> list[list[Message]]:
    """Each is appended as a whole, and then the model is asked."""
    found: list[list[Message]] = []
    for number in range(draw(st.integers(1, 20))):
        text = {"role": "user", "content": words(draw(st.sampled_from([1, 10, 200, 1500])), number)}
        found.append([text | ({"pinned": True} if len(text["content"]) < 80 and draw(st.booleans()) else {})])
        idents = [f"c{number}.{which}" for which in range(draw(st.integers(0, 3)))]
        if idents:
            found.append(
                [{"role": "assistant", "content": None, "tool_calls": [called(name, q=number) for name in idents]}]
            )
            found += [
                [{"role": "tool", "tool_call_id": name, "content": words(draw(st.sampled_from([2, 300, 3000])), name)}]
                for name in idents[: draw(st.integers(1, len(idents))) if draw(st.booleans()) else len(idents)]
            ]
        if draw(st.booleans()):
            found.append([{"role": "assistant", "content": words(20, f"a{number}")}])
    return found


@settings(max_examples=12, deadline=None)
@given(turns(), st.sampled_from([1500, 3000, 8000]), st.booleans())
def test_a_context_fits_keeps_what_must_stay_and_begins_as_the_last_one_did(
    said: list[list[Message]], budget: int, filed: bool
) -> None:
    follows(said, budget, files if filed else no_files)


@pytest.mark.parametrize("pieces", [no_files, files])
def test_a_long_conversation_of_all_kinds(pieces: Callable[[int], tuple[SectionText, ...]]) -> None:
    said: list[list[Message]] = []
    for number in range(60):
        said.append([{"role": "user", "content": words(1 + number % 7 * 20, number), "pinned": number % 20 == 3}])
        said.append([{"role": "assistant", "content": None, "tool_calls": [called(f"c{number}")]}])
        said.append([{"role": "tool", "tool_call_id": f"c{number}", "content": words(9 ** (number % 4), number)}])
    assert follows(said, 2000, pieces).steps > 3


def follows(said: list[list[Message]], budget: int, pieces: Callable[[int], tuple[SectionText, ...]]) -> Context:
    """Turn by turn, everything holds that is promised."""
    stage, before, rooms = Stage(), None, set[int]()
    for number, turn in enumerate(said):
        stage.say(*turn)
        context = stage.context(budget, pieces=pieces(number))
        rooms.add(context.sections["conversation"].room)
        messages = context.openai()
        assert context.tokens <= budget
        assert sum(map(size, messages)) <= budget
        is_whole(messages[: -1 if stage.messages[-1].get("tool_calls") else len(messages)])
        shown = [message["content"] for message in messages]
        assert all(message["content"] in shown for message in stage.messages if message.get("pinned"))
        assert not any("pinned" in message for message in messages)
        if estimate_tokens(text := stage.messages[-1]["content"] or "") < budget // 12:
            assert text in (shown[-1] or "")
        moves = [(one.steps, one.sections["conversation"].room) for one in (before, context) if one is not None]
        if before is not None and moves[0] == moves[1]:
            stay = before.openai()[: before.stable]
            assert messages[: len(stay)] == stay
            assert before.stable >= (1 if pieces(0) else len(before))
        before = context
    assert before is not None
    assert len(rooms) <= 4, "what changes beside the conversation seldom moves it"
    assert before.openai() == stage.context(budget, anew=True, pieces=pieces(len(said) - 1)).openai()
    return before


def test_a_conversation_goes_on_beginning_with_its_instructions() -> None:
    stage = Stage()
    stage.say({"role": "system", "content": "Be kind.", "pinned": True})
    for number in range(160):
        stage.say({"role": "user" if number % 2 else "assistant", "content": words(40, number)})
    first, summary = stage.context(1000).openai()[:2]
    assert first["content"] == "Be kind." and "summarised" in summary["content"]


def test_between_two_steps_a_third_of_the_room_is_filled() -> None:
    stage = Stage()
    for number in range(160):
        stage.say({"role": "user" if number % 2 else "assistant", "content": words(20 + number * 7 % 40, number)})
        context = stage.context(2000)
    added = sum(map(size, stage.messages))
    assert 0 < context.steps <= 1 + added / (2000 * 0.33)


def test_what_belongs_together_is_shown_together_or_not_at_all() -> None:
    stage = Stage()
    for number in range(300):
        stage.say(
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"t{number - 1}", "content": "x" * 2000}],
            }
            if number
            else {"role": "user", "content": "begin"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}]},
        )
    context = stage.context(2000)
    assert context.shape == "anthropic" and context.messages == context.anthropic()["messages"]
    roles = [message["role"] for message in context.messages]
    assert all(one != two for one, two in pairwise(roles))
    is_whole(context.openai()[:-1])
    assert any("shortened" in str(message) for message in context.messages)
    assert "a tool returned:" not in context.text and "no result" not in context.text


def test_a_result_that_is_missing_is_told_and_one_without_a_call_becomes_words() -> None:
    stage = Stage()
    stage.say(
        {"role": "assistant", "content": "", "tool_calls": [called("a"), called("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "found"},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "lost", "content": "whose?"},
    )
    messages = stage.context().messages
    is_whole(messages)
    assert "no result" in messages[2]["content"] and messages[2]["tool_call_id"] == "b"
    assert messages[-1] == {"role": "user", "content": "[a tool returned: whose?]"}


def test_a_late_result_goes_to_its_call() -> None:
    stage = Stage()
    stage.say(
        {"role": "assistant", "content": None, "tool_calls": [called("slow")]},
        {"role": "user", "content": "are you there?"},
        {"role": "tool", "tool_call_id": "slow", "content": "here it is"},
    )
    messages = stage.context().messages
    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]
    assert messages[1]["content"] == "here it is"


@pytest.mark.parametrize("budget", [700, 1500, 3000])
def test_results_that_never_came_are_counted(budget: int) -> None:
    stage = Stage()
    for number in range(60):
        idents = [f"c{number}.{which}" for which in range(4)]
        stage.say({"role": "assistant", "content": None, "tool_calls": [called(name) for name in idents]})
        if number % 3 == 0:
            stage.say({"role": "tool", "tool_call_id": idents[1], "content": "one"})
        stage.say({"role": "user", "content": f"go on {number}"})
        context = stage.context(budget)
        assert sum(map(size, context.openai())) <= context.tokens <= budget
        is_whole(context.openai())


def test_both_shapes_come_from_either() -> None:
    stage = Stage()
    stage.say(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [called("a", city="NYC")]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    )
    assert stage.context().openai() == stage.messages
    anthropic = stage.context().anthropic()
    assert anthropic["system"] == "Be brief."
    assert anthropic["messages"] == [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "search", "input": {"city": "NYC"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "sunny"}]},
    ]
    other = Stage()
    other.say(*anthropic["messages"])
    assert other.context().messages == anthropic["messages"]
    assert other.context().openai() == stage.messages[1:]
    marked = stage.context().anthropic(cache=True)
    assert marked["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def test_a_long_text_keeps_its_head_its_tail_and_its_errors() -> None:
    text = "\n".join(f"line {number}" if number != 500 else "ValueError: no seats" for number in range(1000))
    short = shorten_text(text, 100, estimate_tokens, "perdure:r#1")
    assert estimate_tokens(short) <= 100
    for part in ("line 0\n", "ValueError: no seats", "line 999", "1,000 lines", "perdure:r#1"):
        assert part in short
    assert shorten_text("x" * 50_000, 60, estimate_tokens, "perdure:r#1").count("\n") >= 2
    assert shorten_text("short", 100, estimate_tokens, "") == "short"


TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/booking.py", line 12, in <module>
    book(flight)
    ^^^^^^^^^^^^
  File "/srv/app/booking.py", line 7, in book
    raise NoSeats(flight)
booking.NoSeats: no seats left on LH 441
"""
LOG = "".join(f"10:00:{number % 60:02} checked page {number} without errors\n" for number in range(400))
WRONG = {
    "a traceback": (TRACEBACK, "booking.NoSeats: no seats left on LH 441"),
    "one in a log": (TRACEBACK.replace("\n", "\n[worker 3] ", 6).join(["[worker 3] ", ""]), "no seats left on LH 441"),
    "in the middle of a line": ("50 %" + TRACEBACK, "booking.NoSeats: no seats left on LH 441"),
    "with times": (
        "".join(f"10:0{n}:5{n} ERROR {line}\n" for n, line in enumerate(TRACEBACK.splitlines())),
        "booking.NoSeats: no seats left on LH 441",
    ),
    "of a test": ("    def test():\n>       go()\nE       ValueError: no seats\n", "E       ValueError: no seats"),
    "git": ("fatal: not a git repository (or any of the parent directories): .git\n", "fatal: not a git repository"),
    "go": ("panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\n", "panic: runtime error: index"),
    "pytest": ("FAILED tests/test_trip.py::test_book - assert 3 == 4\n", "FAILED tests/test_trip.py::test_book"),
    "a compiler": ("trip.c:17:3: error: expected ';' before '}' token\n", "trip.c:17:3: error: expected ';'"),
    "a shell": ("bash: ./go: Permission denied\n", "Permission denied"),
    "one long line": ('{"a": "' + "x" * 9000 + '", "error": "no seats"}\n', '"error": "no seats"'),
}


@pytest.mark.parametrize("room", [60, 110, 400])
@pytest.mark.parametrize("case", WRONG)
def test_what_went_wrong_is_said_in_a_short_text(case: str, room: int) -> None:
    wrong, told = WRONG[case]
    short = shorten_text(LOG + wrong + LOG, room, estimate_tokens, "perdure:r#1")
    assert estimate_tokens(short) <= room and "perdure:r#1" in short
    assert told in short
    if room >= 110:
        assert short.count("checked page") >= 2, "and how it began and ended"
    if room == 400 and "traceback" in case:
        assert "raise NoSeats(flight)" in short, "and what stands around it"


@pytest.mark.parametrize("room", [110, 400])
def test_of_many_errors_the_first_and_the_last_are_said(room: int) -> None:
    many = LOG.join(f"Error: step {number} broke\n" for number in range(40))
    short = shorten_text(LOG + many + LOG, room, estimate_tokens, "perdure:r#1")
    assert estimate_tokens(short) <= room
    assert "Error: step 0 broke" in short and "Error: step 39 broke" in short
    causes = LOG.join(TRACEBACK.replace("LH 441", flight) for flight in ("first", "second", "third", "fourth", "fifth"))
    short = shorten_text(LOG + causes + LOG, 400, estimate_tokens, "perdure:r#1")
    assert "seats left on first" in short and "seats left on fifth" in short


def test_that_nothing_went_wrong_is_no_error() -> None:
    text = LOG + "0 errors, 0 failed\n" + LOG + "3 failed, 0 errors\n" + LOG
    short = shorten_text(text, 110, estimate_tokens, "perdure:r#1")
    assert "3 failed" in short and "\n0 errors" not in short


@settings(max_examples=60, deadline=None)
@given(st.text("abEr: \nTé東\U0001f600", max_size=3000), st.integers(1, 300), st.integers(0, 40))
def test_a_short_text_fits_whatever_it_was(text: str, room: int, at: int) -> None:
    whole = text[:at] + TRACEBACK + text[at:]
    short = shorten_text(whole, room, estimate_tokens, "perdure:r#1")
    assert short == whole or "perdure:r#1" in short
    assert estimate_tokens(short) <= max(room, estimate_tokens("[shortened; open perdure:r#1]"))


def test_a_line_of_a_summary_says_what_went_wrong() -> None:
    message = {"role": "tool", "tool_call_id": "a", "content": LOG[:300] + TRACEBACK + "done\n"}
    heard = MeasuredMessage(StoredMessage(0, b""), parse_message(message), "perdure:r#1", estimate_tokens)
    assert heard.line == "- tool: returned booking.NoSeats: no seats left on LH 441"


@pytest.mark.parametrize("pinned", ["call", "result"])
def test_what_belongs_to_a_pinned_message_stays_with_it_and_is_masked(pinned: str) -> None:
    stage, long = Stage(), "\n".join(words(20, number) for number in range(500))
    arguments = json.dumps({"text": long if pinned == "result" else "x"})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    stage.say({"role": "assistant", "content": None, "tool_calls": [call], "pinned": pinned == "call"})
    result = long if pinned == "call" else "found 17"
    stage.say({"role": "tool", "tool_call_id": "c", "content": result, "pinned": pinned == "result"})
    for number in range(60):
        stage.say({"role": "user", "content": words(50, number)})
        context = stage.context(2000)
        assert context.tokens <= 2000
        [called] = [message for message in context.messages if message.get("tool_calls")]
        [told] = [message for message in context.messages if message["role"] == "tool"]
        assert pinned == "result" or called["tool_calls"] == [call]
        assert told["content"] == "found 17" if pinned == "result" else 20 < len(told["content"]) < 5000


def test_pinned_messages_that_do_not_fit_are_an_error_that_says_so() -> None:
    stage = Stage()
    stage.say({"role": "user", "content": words(3000, "p"), "pinned": True})
    with pytest.raises(ContextTooSmall, match="pinned messages, but the budget is 1,000") as error:
        stage.context(1000)
    assert "unpin" in error.value.hint
    assert stage.context(20_000).messages[0]["content"] == stage.messages[0]["content"]


def test_images_in_what_a_tool_returned_are_counted_and_make_way() -> None:
    stage, image = (
        Stage(),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 999}},
    )
    for number in range(12):
        use = {"type": "tool_use", "id": f"s{number}", "name": "screenshot", "input": {}}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [image, {"type": "text", "text": "ok"}]}
        stage.say({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]})
    context = stage.context(8000)
    told = [
        message["content"]
        for message in context.messages
        if message["role"] == "user" and isinstance(message["content"], list)
    ]
    results = [block["content"] for value in told for block in value if block["type"] == "tool_result"]
    assert results[-1] == result["content"], "the last one is there"
    masked = [item for item in results if isinstance(item, str)]
    assert 1 <= len(results) - len(masked) <= 7, "each is about a thousand tokens"
    assert masked and all(name.startswith("[image]") and "open perdure:trip#" in name for name in masked)


def test_the_responses_api_is_understood() -> None:
    stage = Stage()
    stage.say(
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "https://x/y.png"}]},
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x" * 3000},
        {"type": "function_call", "call_id": "a", "name": "search", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "rain"},
        {"type": "function_call_output", "call_id": "a", "output": "sun"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sun.", "logprobs": []}]},
    )  # fmt: skip
    messages = stage.context().openai()
    is_whole(messages)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert messages[0]["content"][1] == {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    assert messages[-1] == {"role": "assistant", "content": "Sun."}
    assert stage.context().tokens < 2000, "thoughts that nobody can read are not sent"


def test_for_anthropic_the_user_speaks_first() -> None:
    stage = Stage()
    stage.say({"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Hi."})
    context = stage.context()
    assert [message["role"] for message in context.anthropic()["messages"]] == ["user", "assistant", "user"]
    assert [item["role"] for item in context.openai()] == ["assistant", "user"]
    assert context.tokens >= sum(map(size, context.anthropic()["messages"]))


@given(st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_a_tiny_budget_is_kept_or_refused(budget: int) -> None:
    stage = Stage()
    stage.say(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}, words(500, "a")]},
        {"role": "assistant", "content": None, "tool_calls": [called("a", text="y" * 3000, other=["z" * 500] * 20)]},
        {"role": "tool", "tool_call_id": "a", "content": words(1000, "b")},
        {"role": "user", "content": "and?"},
    )
    with contextlib.suppress(ContextTooSmall):
        context = stage.context(budget)
        assert context.tokens <= budget and sum(map(size, context.openai())) <= budget
        assert context.messages[-1]["content"] == "and?"
    assert stage.context(8000).tokens <= 8000


@pytest.mark.parametrize("budget", [150, 200, 300])
@pytest.mark.parametrize(
    "text", ["word " * 40_000, "x" * 200_000, "█" * 60_000, "日本語" * 20_000, "😀" * 30_000, LOG * 4]
)
def test_a_giant_message_fits_into_a_tiny_budget(text: str, budget: int) -> None:
    stage, image = Stage(), {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}
    stage.say({"role": "user", "content": [image, {"type": "text", "text": text}]})
    assert "open perdure:trip#0" in stage.context(budget).text
    stage.say({"role": "assistant", "content": text, "tool_calls": [called("a", text=text)]})
    stage.say({"role": "tool", "tool_call_id": "a", "content": text})
    for _ in range(2):
        context = stage.context(budget)
        messages = context.openai()
        assert context.tokens <= budget and sum(map(size, messages)) <= budget
        is_whole(messages)
        assert messages[-1]["role"] == "tool" or messages[-1]["content"] == "and?"
        assert stage.context(budget, anew=True).openai() == messages
        stage.say({"role": "user", "content": "and?"})


def test_whatever_is_shown_has_tokens() -> None:
    for text in ("█", "─", "→", "…", "—", "。", "😀", "⠋", "\u200b", "☀", "│ a │", "日"):
        assert estimate_tokens(text) > 0
    assert estimate_tokens("iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB" * 100) > 1000, "an image in base64 is no word"
    assert estimate_tokens("Donaudampfschifffahrtsgesellschaft") == 4


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 20_000)), min_size=1, max_size=7),
)
def test_shares_flow_to_those_who_want_more(budget: int, given_to: list[tuple[float, int]]) -> None:
    total = sum(share for share, _ in given_to) or 1
    slots = parse_layout({f"s{place}": (share / max(1, total), "x") for place, (share, _) in enumerate(given_to)})
    wants = [want for _, want in given_to]
    rooms = share_budget(budget, slots, wants)
    assert all(room <= want for room, want in zip(rooms, wants, strict=True))
    assert all(
        room >= min(want, int(budget * slot.share)) for room, want, slot in zip(rooms, wants, slots, strict=True)
    )
    assert sum(rooms) == min(budget, sum(wants)), "nothing is left while somebody wants more"


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        ({"memry": 0.2}, "did you mean 'memory'"),
        ({"identity": 0.8, "conversation": 0.7}, "add up to 1.50"),
        ({"identity": 3}, "share from 0 to 1"),
        ("identity", "a dict of sections"),
        ({"conversation": "hello"}, "give it a share, not a text"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(layout: Any, complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        parse_layout(layout)
