"""Executes one batch of store operations: all reads first, then all writes in one commit.

As in LangGraph's own store, reads see the state before the batch, and the last put of a key wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from perdure.adapters.langgraph.store_filter import check_filter, matches
from perdure.data import namespaces, state
from perdure.data.namespaces import KeyValue, NamespaceTree
from perdure.data.search.key_ranking import SearchQuery, find
from perdure.errors import WrongType, WrongValue
from perdure.journal.agent_writes import SetKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.protocol import Protocol, Read
from perdure.records import StateChange
from perdure.store.base import is_storable_name
from perdure.values.clock import moment
from perdure.values.limits import NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from perdure.adapters.langgraph.store_index import StoreIndex
    from perdure.kernel.engine import Engine

NamespaceLabels = tuple[str, ...]
_MINUTE_MS = 60_000
_MINUTES_MAX = 100 * 366 * 24 * 60


def join_labels(labels: NamespaceLabels) -> str:
    """Return the `agent.state` namespace of LangGraph labels: ("users", "ann") is "users.ann". Labels have no dots."""
    return ".".join(labels)


def split_namespace(space: str) -> NamespaceLabels:
    """Return the LangGraph labels of a namespace."""
    return tuple(space.split("."))


def locate_item(labels: NamespaceLabels, key: Any) -> tuple[str, str]:
    """Return the namespace and key of an item in `agent.state`."""
    if not labels:
        raise InvalidNamespaceError("Namespace cannot be empty.")
    if not isinstance(key, str):
        raise WrongType(f"a key must be a str, not {key!r}")
    return join_labels(labels), key


class OperationBatch:
    """The checked operations of a batch."""

    def __init__(self, ops: Iterable[Op], index: StoreIndex | None, if_version: int | None = None) -> None:
        self._index = index
        self._if_version = if_version
        self._results: list[Result] = []
        self._gets: dict[int, GetOp] = {}
        self._searches: dict[int, SearchOp] = {}
        self._lists: dict[int, ListNamespacesOp] = {}
        self._puts: dict[tuple[str, str], PutOp] = {}
        for place, op in enumerate(ops):
            self._results.append(None)
            self._add(place, op)
        self._texts = {} if index is None else self._texts_of(index)

    def _add(self, place: int, op: Op) -> None:
        validate_op_namespace(op)
        if isinstance(op, GetOp):
            _refuse_foreign_labels(op.namespace)
            self._gets[place] = op
        elif isinstance(op, PutOp):
            _refuse_foreign_labels(op.namespace)
            _check_put(op)
            self._puts[locate_item(op.namespace, op.key)] = op
        elif isinstance(op, SearchOp):
            _refuse_foreign_labels(op.namespace_prefix)
            _check_page(op.limit, op.offset)
            if op.filter is not None:
                check_filter(op.filter)
            self._searches[place] = op
        elif isinstance(op, ListNamespacesOp):
            _check_page(op.limit, op.offset)
            self._lists[place] = op
        else:
            raise WrongValue(f"Unknown operation type: {type(op)}")

    def _texts_of(self, index: StoreIndex) -> dict[tuple[str, str], list[tuple[str, str]]]:
        puts = self._puts.items()
        return {place: index.texts(op.value, op.index) for place, op in puts if op.value is not None}

    @property
    def texts(self) -> list[str]:
        """The texts that must be embedded before the puts."""
        return [text for texts in self._texts.values() for _, text in texts]

    @property
    def queries(self) -> list[str]:
        """The search queries."""
        return [op.query for op in self._searches.values() if op.query]

    # -- performing ---------------------------------------------------------------------------------------------------

    def perform(
        self, engine: Engine, vectors: Mapping[str, bytes], questions: Mapping[str, SearchQuery]
    ) -> Protocol[list[Result]]:
        """Execute the batch. Returns the results in the order of the operations."""
        touched = list[SetKey]()
        if self._gets or self._searches or self._lists:
            touched = yield Read(self._execute_reads, (engine, questions))
        asks: list[SetKey] = (yield Read(self._build_writes, (engine, vectors))) if self._puts else []
        if asks or touched:
            yield from state.change(engine, [*touched, *asks])
        return self._results

    def put_one(self, engine: Engine, vectors: Mapping[str, bytes]) -> Protocol[int]:
        """Execute the only put and return the new version."""
        [ask] = yield Read(self._build_writes, (engine, vectors))
        landed: list[StateChange] = yield from state.change(engine, [ask])
        return landed[0].version if landed else (yield from state.read_current(engine, ask.place)).version

    def _build_writes(self, engine: Engine, vectors: Mapping[str, bytes]) -> list[SetKey]:
        return [self._ask(engine, place, op, vectors) for place, op in self._puts.items()]

    def _ask(self, engine: Engine, place: tuple[str, str], op: PutOp, vectors: Mapping[str, bytes]) -> SetKey:
        at = state.place(engine, *place)
        if op.value is None:
            return SetKey(at, if_version=self._if_version)
        documents = None if self._index is None else self._index.documents(self._texts[place], vectors)
        lasts = 0 if op.ttl is None else int(op.ttl * _MINUTE_MS)
        return state.ask_set(engine, at, dict(op.value), None, self._if_version, lasts=lasts, documents=documents)

    def _execute_reads(self, engine: Engine, questions: Mapping[str, SearchQuery]) -> list[SetKey]:
        """Fill in the results of reads. Returns the writes that extend expiries."""
        read = list[KeyValue]()
        wanted = {place: locate_item(op.namespace, op.key) for place, op in self._gets.items() if _reachable(op)}
        there = namespaces.read_keys(engine, set(wanted.values()))
        for place, op in self._gets.items():
            kept = there.get(wanted[place]) if place in wanted else None
            self._results[place] = None if kept is None else _item(kept)
            if kept is not None and op.refresh_ttl:
                read.append(kept)
        for place, search in self._searches.items():
            found = _search_items(engine, search, questions)
            self._results[place] = [_search_item(kept, score) for kept, score in found]
            if search.refresh_ttl:
                read += [kept for kept, _ in found]
        for place, listing in self._lists.items():
            self._results[place] = _filter_namespaces(namespaces.names(engine), listing)
        return namespaces.extend_expiries(engine, {(item.space, item.key): item for item in read}.values())


def _search_items(
    engine: Engine, op: SearchOp, questions: Mapping[str, SearchQuery]
) -> list[tuple[KeyValue, float | None]]:
    prefix = join_labels(op.namespace_prefix)
    if not is_storable_name(prefix) or len(prefix) > NAME_CHARACTERS_MAX or not op.limit:
        return []
    tree, wanted = NamespaceTree(prefix), partial(_is_wanted, op.filter) if op.filter else None
    if op.query and op.query in questions:
        hits = find(engine, tree, questions[op.query], wanted, op.offset, op.limit)
        return [(hit.kept, hit.score) for hit in hits]
    return [(kept, None) for kept in namespaces.keys_below(engine, tree, wanted, op.offset, op.limit)]


def _is_wanted(wanted: Mapping[str, Any], kept: KeyValue) -> bool:
    return matches(_as_mapping(kept.value), wanted)


def _reachable(op: GetOp) -> bool:
    """Return whether a name can be stored. One that cannot does not exist."""
    return bool(op.namespace) and is_storable_name(op.key) and is_storable_name(join_labels(op.namespace))


def _as_mapping(value: Any) -> dict[str, Any]:
    """Wrap a value that is not a dict: plain Python may have written it, but items of LangGraph are dicts."""
    return value if isinstance(value, dict) else {"value": value}


def _item(kept: KeyValue) -> Item:
    times = {"created_at": moment(kept.created), "updated_at": moment(kept.at)}
    return Item(value=_as_mapping(kept.value), key=kept.key, namespace=split_namespace(kept.space), **times)


def _search_item(kept: KeyValue, score: float | None) -> SearchItem:
    times = moment(kept.created), moment(kept.at)
    return SearchItem(split_namespace(kept.space), kept.key, _as_mapping(kept.value), *times, score=score)


def _filter_namespaces(names: list[str], op: ListNamespacesOp) -> list[NamespaceLabels]:
    found = {split_namespace(name) for name in names}
    for condition in op.match_conditions or ():
        found = {labels for labels in found if _agrees(labels, condition)}
    if op.max_depth is not None:
        found = {labels[: op.max_depth] for labels in found}
    return sorted(found)[op.offset : op.offset + op.limit]


def _agrees(labels: NamespaceLabels, condition: MatchCondition) -> bool:
    path = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise WrongValue(f"Unsupported match type: {condition.match_type}; supported: 'prefix' and 'suffix'")
    if len(labels) < len(path):
        return False
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[len(labels) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


# -- refusing ---------------------------------------------------------------------------------------------------------


def _refuse_foreign_labels(labels: NamespaceLabels) -> None:
    if labels and labels[0].startswith(OURS):
        raise InvalidNamespaceError(f"namespaces that begin with {OURS!r} are reserved for Perdure. Got: {labels}")


def _check_put(op: PutOp) -> None:
    if op.value is not None and not isinstance(op.value, Mapping):
        raise WrongType(f"the value of an item must be a dict, not {type(op.value).__name__}: {{'value': ...}}")
    if op.ttl is not None and not 0 < op.ttl <= _MINUTES_MAX:
        raise WrongValue(f"ttl={op.ttl!r}: must be a positive number of minutes, or None for no expiry")
    if op.index not in (None, False) and not isinstance(op.index, list | tuple):
        raise WrongType(
            f"index={op.index!r}: must be False, or a list of fields such as ['text', 'messages[*].content']"
        )


def _check_page(limit: Any, offset: Any) -> None:
    for name, number in (("limit", limit), ("offset", offset)):
        if type(number) is not int or number < 0:
            raise WrongValue(f"{name}={number!r}: must be an int from 0")
