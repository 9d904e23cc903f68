"""What every store must do, as tests against a real one. A kind's own test class inherits all of it."""

from __future__ import annotations

import json
import pickle
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftless.errors import SinkError, SinkMisconfigured
from driftless.sink import Applied, Rejected, Sink, SinkContext
from sinks import open_sink
from tests.sinks.sink_faults import CheckpointCases, SinkFaults
from tests.sinks.store_case import Opener, Write, delete, exactly, rows, stored, upsert, writes

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
"""Each example uses keys of its own, so that all may share one generation; derandomized, so that a failure repeats."""


class Model:
    """The promise in a dozen lines: newest version of each key, whatever the order and the number of deliveries."""

    def __init__(self) -> None:
        self.newest: dict[str, Write] = {}

    def apply(self, items: list[Write]) -> Applied:
        done = Applied()
        for item in items:
            if item[0] in self.newest and self.newest[item[0]][1] >= item[1]:
                done += Applied(stale=1)
            else:
                self.newest[item[0]] = item
                done += Applied(written=1)
        return done

    def documents(self) -> dict[str, tuple[int, Any]]:
        return {key: (version, exactly(text)) for key, version, text in self.newest.values() if text is not None}


# Items of one key with one version are the same record of the log, so they hold the same.
_items = st.builds(
    lambda key, version: (
        delete(key, version) if version % 3 == 0 else upsert(key, version, {"key": key, "version": version})
    ),
    st.sampled_from("abc"),
    st.integers(1, 9).map(lambda low: (1 << 60) + low),  # beyond 2**53, where doubles no longer tell numbers apart
)
_deliveries = st.lists(st.lists(_items, max_size=6), min_size=1, max_size=6)

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=20).map(lambda number: format(number, "f")),
    st.sampled_from(["1e400", "-1E-400", "0.1000", "9007199254740993", "18446744073709551616", "1" * 900]),
)


class SinkContract(CheckpointCases):
    """Inherit, say how to reach the store, and meet every case. For a store that is a server: `SinkSuite`."""

    # -- order and duplication ----------------------------------------------------------------------------------

    _example = count()

    @quick
    @given(deliveries=_deliveries)
    def test_any_order_and_any_duplication_of_deliveries_ends_the_same(
        self, sink: Sink, generation: int, deliveries: list[list[Write]]
    ) -> None:
        example, model = next(self._example), Model()
        for batch in deliveries:
            mine = [(f"{example}-{key}", version, text) for key, version, text in batch]
            assert sink.apply(generation, writes(*mine)) == model.apply(mine)
        assert stored(sink, generation, *(f"{example}-{key}" for key in "abc")) == model.documents()

    def test_a_newer_upsert_replaces_the_document(self, sink: Sink, generation: int) -> None:
        assert sink.apply(generation, writes(upsert("1", 8, {"a": 1}))) == Applied(written=1)
        assert sink.apply(generation, writes(upsert("1", 9, {"b": 2}))) == Applied(written=1)
        assert stored(sink, generation, "1") == {"1": (9, {"b": 2})}

    def test_an_older_upsert_is_stale(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 9, {"a": 1})))
        assert sink.apply(generation, writes(upsert("1", 8, {"b": 2}))) == Applied(stale=1)
        assert stored(sink, generation, "1") == {"1": (9, {"a": 1})}

    def test_an_equal_version_is_stale(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 9, {"a": 1}), delete("2", 9)))
        assert sink.apply(generation, writes(upsert("1", 9, {"a": 1}), delete("2", 9))) == Applied(stale=2)

    def test_stale_upsert_does_not_revive_a_deleted_key(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 7, {"a": 0})))
        assert sink.apply(generation, writes(delete("1", 9))) == Applied(written=1)
        assert sink.apply(generation, writes(upsert("1", 8, {"a": 1}))) == Applied(stale=1)
        assert stored(sink, generation, "1") == {}

    def test_a_delete_that_comes_before_its_upsert_keeps_it_out(self, sink: Sink, generation: int) -> None:
        assert sink.apply(generation, writes(delete("1", 9))) == Applied(written=1)
        assert sink.apply(generation, writes(upsert("1", 8, {"a": 1}))) == Applied(stale=1)
        assert stored(sink, generation, "1") == {}

    def test_a_stale_delete_removes_nothing(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 9, {"a": 1})))
        assert sink.apply(generation, writes(delete("1", 8))) == Applied(stale=1)
        assert stored(sink, generation, "1") == {"1": (9, {"a": 1})}

    def test_a_deleted_key_may_come_back_with_a_newer_version(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 1, {"a": 1}), delete("1", 2), upsert("1", 3, {"a": 3})))
        assert stored(sink, generation, "1") == {"1": (3, {"a": 3})}
        assert sink.count(generation) == 1

    def test_versions_that_a_double_cannot_tell_apart_are_told_apart(self, sink: Sink, generation: int) -> None:
        low, high = 2**63 - 2, 2**63 - 1
        assert sink.apply(generation, writes(upsert("1", high, {"a": 1}))) == Applied(written=1)
        assert sink.apply(generation, writes(upsert("1", low, {"a": 2}))) == Applied(stale=1)
        assert stored(sink, generation, "1") == {"1": (high, {"a": 1})}

    def test_a_large_batch_lands_whole(self, sink: Sink, generation: int) -> None:
        batch = writes(*(upsert(str(n), n, {"n": n}) for n in range(1, 12_001)))
        assert sink.apply(generation, batch) == Applied(written=12_000)
        assert sink.apply(generation, batch) == Applied(stale=12_000)
        assert sink.count(generation) == 12_000

    def test_an_empty_batch_is_nothing(self, sink: Sink, generation: int) -> None:
        assert sink.apply(generation, writes()) == Applied()
        assert rows(sink.read(generation, [])) == []
        assert rows(sink.read(generation, ["absent"])) == []
        assert list(sink.scan(generation)) == []

    # -- what is stored is what was given -----------------------------------------------------------------------

    @quick
    @given(key=_text.filter(bool), text=_text, number=_numbers)
    def test_keys_and_documents_round_trip_exactly(
        self, sink: Sink, generation: int, key: str, text: str, number: str
    ) -> None:
        example = next(self._example)
        key = f"{example} {key}"[:100]
        document = (
            f'{{"text":{json.dumps(text, ensure_ascii=False)},"number":{number},"null":null,"list":[true,false]}}'
        )
        applied = sink.apply(generation, writes((key, 7, document)))
        assert applied == Applied(written=1), applied
        assert self.kept(rows(sink.read(generation, [key]))) == self.kept([(key, 7, document)])

    @pytest.mark.parametrize(
        "document",
        [
            "{}",
            '{"a": "line\\nline \\"quoted\\" \\\\ \\u2028 \u2028 \U0001f600"}',
            '{"a":"' + "x" * 1_000_000 + '"}',
            '{"_source":{"_source":"\\"_source\\":"},"sort":[1],"found":false}',
        ],
        ids=["empty", "escapes", "1 MB", "the store's own words"],
    )
    def test_documents_of_every_shape_round_trip_exactly(self, sink: Sink, generation: int, document: str) -> None:
        sink.apply(generation, writes(upsert("1", 1, document), upsert("2", 1, document)))
        both = self.kept([("1", 1, document), ("2", 1, document)])
        assert self.kept(rows(sink.read(generation, ["1", "2"]))) == both
        assert self.scanned(sink, generation) == both

    def test_a_document_over_several_lines_is_one_document(self, sink: Sink, generation: int) -> None:
        document = '{\n  "a": 1,\n  "b": "x"\n}'
        assert sink.apply(generation, writes(upsert("1", 1, document), delete("2", 1))) == Applied(written=2)
        assert stored(sink, generation, "1") == {"1": (1, {"a": 1, "b": "x"})}

    def test_keys_of_several_columns_never_meet(self, opened: Opener, name: str) -> None:
        sink = opened(key_columns=("a", "b"), **self.composite(name))
        sink.create(1)
        pairs = [
            ["a-b", "c"],
            ["a", "b-c"],
            ["a:b", "c"],
            ["a", "b:c"],
            ["a", ""],
            ["", "a"],
            ["a%3A", "b"],
            ["a:", "b"],
        ]
        keys = [json.dumps(pair, separators=(",", ":")) for pair in pairs] + [
            '["a",1]',
            '["a",12345678901234567890123]',
        ]
        assert sink.apply(1, writes(*(upsert(key, 5, {"key": key}) for key in keys))) == Applied(written=len(keys))
        assert stored(sink, 1, *keys) == {key: (5, {"key": key}) for key in keys}
        scanned = [row for batch in sink.scan(1) for row in rows(batch)]
        assert {key: exactly(text) for key, _, text in scanned} == {key: {"key": key} for key in keys}

    # -- each item is judged by itself --------------------------------------------------------------------------

    def test_a_refused_item_leaves_its_neighbours_alone(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("old", 9, {"a": 9})))
        bad = self.refusable(store_url, name, "bad")
        batch = writes(
            upsert("1", 1, {"a": 1}),
            upsert("bad", 5, bad),
            upsert("old", 8, {"a": 8}),
            delete("gone", 1),
            upsert("2", 1, {}),
        )
        applied = sink.apply(generation, batch)
        assert applied == Applied(written=3, stale=1, rejected=(Rejected("bad", 5, self.refusal),))
        assert "SECRET" not in str(applied)
        assert stored(sink, generation, "1", "2", "old", "gone") == {
            "1": (1, {"a": 1}),
            "2": (1, {}),
            "old": (9, {"a": 9}),
        }

    # -- generations --------------------------------------------------------------------------------------------

    def test_creating_again_keeps_what_is_there(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 5, {"a": 1})))
        sink.save(generation, "a", expected=None)
        sink.create(generation)
        assert stored(sink, generation, "1") == {"1": (5, {"a": 1})}
        assert sink.load(generation) == "a"
        assert sink.count(generation) == 1

    def test_readers_see_the_promoted_generation(self, sink: Sink, generation: int, store_url: str, name: str) -> None:
        assert sink.promoted() is None
        sink.apply(generation, writes(upsert("1", 5, '{"a": 1.10}')))
        sink.promote(generation)
        assert sink.promoted() == 1
        sink.promote(generation)
        assert sink.promoted() == 1
        assert self.as_reader(store_url, name, "1") == self.canonical('{"a": 1.10}')
        assert self.as_reader(store_url, name, "2") is None

    def test_a_later_generation_is_not_seen_before_it_is_promoted(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("1", 5, '{"of":1}'), upsert("only 1", 5, '{"of":1}')))
        sink.promote(generation)
        sink.create(2)
        assert sink.apply(2, writes(upsert("1", 3, '{"of":2}'), upsert("only 2", 3, '{"of":2}'))) == Applied(written=2)
        assert stored(sink, 2, "1", "only 1", "only 2") == {"1": (3, {"of": 2}), "only 2": (3, {"of": 2})}
        assert (sink.count(1), sink.count(2), sink.promoted()) == (2, 2, 1)
        assert [self.as_reader(store_url, name, key) for key in ("1", "only 1", "only 2")] == [
            self.canonical('{"of":1}'),
            self.canonical('{"of":1}'),
            None,
        ]

    def test_promoting_switches_all_documents_and_goes_back_as_well(
        self, opened: Opener, sink: Sink, store_url: str, name: str
    ) -> None:
        writer = opened()
        sink.create(1)
        sink.create(2)
        for n in (1, 2):
            writer.apply(n, writes(upsert("1", 5, {"of": n}), upsert(f"only {n}", 5, {"of": n}), delete("gone", 5)))
        sink.promote(1)
        for promoted, other in ((2, 1), (1, 2)):
            sink.promote(promoted)
            assert sink.promoted() == promoted
            asked = [self.as_reader(store_url, name, key) for key in ("1", f"only {promoted}", f"only {other}")]
            document = self.canonical(json.dumps({"of": promoted}))
            assert asked == [document, document, None]
            # Both go on following, and remember what was deleted.
            for n in (1, 2):
                assert writer.apply(n, writes(upsert("gone", 4, {}), upsert("1", 5, {}))) == Applied(stale=2)
                assert stored(sink, n, "1", "only 1", "only 2") == {"1": (5, {"of": n}), f"only {n}": (5, {"of": n})}
                assert sink.count(n) == 2

    def test_a_generation_that_was_never_made_cannot_be_promoted(self, sink: Sink) -> None:
        sink.create(1)
        with pytest.raises(SinkMisconfigured, match=r"Generation 2 of .* cannot be promoted: there is none"):
            sink.promote(2)
        assert sink.promoted() is None

    def test_dropping_removes_documents_versions_and_checkpoint(self, sink: Sink, generation: int) -> None:
        sink.apply(generation, writes(upsert("1", 5, {"a": 1}), delete("2", 5)))
        sink.save(generation, "a", expected=None)
        sink.promote(generation)
        sink.drop(generation, also_live=True)
        sink.drop(generation)
        assert sink.promoted() is None
        assert sink.load(generation) is None
        sink.create(generation)
        assert sink.load(generation) is None
        assert sink.count(generation) == 0
        assert sink.apply(generation, writes(upsert("1", 1, {"b": 1}), upsert("2", 1, {"b": 2}))) == Applied(written=2)

    def test_what_readers_see_is_not_dropped(self, sink: Sink, generation: int, store_url: str, name: str) -> None:
        sink.create(2)
        for n in (generation, 2):
            sink.apply(n, writes(upsert("1", 5, {"of": n})))
            sink.save(n, f"at {n}", expected=None)
        for seen in (2, 1):
            sink.promote(seen)
            with pytest.raises(SinkError, match=f"generation {seen} of `{name}` is not dropped: readers") as said:
                sink.drop(seen)
            assert f"`driftless promote {name} --generation N`" in said.value.hint
            assert (sink.promoted(), sink.load(seen), sink.count(seen)) == (seen, f"at {seen}", 1)
            assert self.as_reader(store_url, name, "1") == self.canonical(f'{{"of": {seen}}}')
            assert sink.apply(seen, writes(upsert("1", 5 + seen, {"of": seen}))) == Applied(written=1)
        sink.drop(2)
        assert (sink.promoted(), sink.load(2)) == (1, None)

    @pytest.mark.parametrize("promoted", [1, 2])
    def test_dropping_one_generation_leaves_the_other(
        self, opened: Opener, sink: Sink, store_url: str, name: str, promoted: int
    ) -> None:
        writer, kept = opened(), 3 - promoted
        for n in (1, 2):
            sink.create(n)
            writer.apply(n, writes(upsert("1", 5, {"of": n}), upsert("2", 5, {"of": n}), delete("gone", 5)))
            sink.save(n, f"at {n}", expected=None)
        sink.promote(promoted)
        sink.drop(kept)
        assert sink.promoted() == promoted
        assert self.as_reader(store_url, name, "1") == self.canonical(json.dumps({"of": promoted}))
        assert writer.apply(promoted, writes(upsert("1", 6, {"of": 6}), upsert("gone", 4, {}))) == Applied(1, 1)
        assert stored(sink, promoted, "1", "2") == {"1": (6, {"of": 6}), "2": (5, {"of": promoted})}
        assert (sink.load(promoted), sink.load(kept)) == (f"at {promoted}", None)
        assert sink.count(promoted) == 2
        # The place of the dropped one is empty and may be taken again.
        sink.create(kept)
        assert sink.apply(kept, writes(upsert("1", 1, {"of": kept}))) == Applied(written=1)
        assert self.scanned(sink, kept) == self.kept([upsert("1", 1, {"of": kept})])
        assert (sink.count(promoted), sink.count(kept), sink.promoted()) == (2, 1, promoted)

    def test_a_kept_generation_that_was_followed_meanwhile_is_gone_back_to(
        self, opened: Opener, sink: Sink, store_url: str, name: str
    ) -> None:
        writer = opened()
        for n in (1, 2):
            sink.create(n)
            writer.apply(n, writes(upsert("1", 5, {"of": n}), upsert("2", 5, {"of": n}), upsert("3", 5, {"of": n})))
            sink.promote(n)
        for n in (1, 2):
            newer = writes(upsert("1", 7, {"of": 10 + n}), delete("2", 7), upsert("4", 7, {"of": 10 + n}))
            assert writer.apply(n, newer) == Applied(written=3)
        sink.promote(1)
        asked = [self.as_reader(store_url, name, key) for key in "1234"]
        newest = self.canonical('{"of": 11}')
        assert asked == [newest, None, self.canonical('{"of": 1}'), newest]
        for n in (1, 2):
            assert writer.apply(n, writes(upsert("2", 6, {}), upsert("1", 6, {}))) == Applied(stale=2)
            assert sink.count(n) == 3

    def test_what_scan_calls_a_document_is_told_beforehand(self, sink: Sink, generation: int) -> None:
        keys = ["1", "", "é" * 300, "x" * 512, "x" * 513, "sha256:abc", *(f"{n}" * 700 for n in range(10))]
        assert sink.apply(generation, writes(*(upsert(key, 1, {"key": key}) for key in keys))) == Applied(len(keys))
        called = sink.scan_keys(pa.array(keys, pa.string())).to_pylist()
        assert len(set(called)) == len(keys)
        expected = self.kept(upsert(name, 1, {"key": key}) for name, key in zip(map(str, called), keys, strict=True))
        assert self.scanned(sink, generation) == expected
        assert stored(sink, generation, *keys) == {key: (1, {"key": key}) for key in keys}
        assert sink.apply(generation, writes(*(delete(key, 2) for key in keys))) == Applied(len(keys))
        assert sink.count(generation) == 0

    # -- reading back -------------------------------------------------------------------------------------------

    def test_scan_gives_what_was_written(self, sink: Sink, generation: int) -> None:
        items = [upsert(str(n), n, f'{{"n":{n}.50}}') for n in range(1, 2502)]
        sink.apply(generation, writes(*items, *(delete(str(n), 9000) for n in range(1, 101))))
        assert self.scanned(sink, generation) == self.kept(items[100:])
        assert sink.count(generation) == 2401

    def test_count_is_exact_through_every_kind_of_write(self, sink: Sink, generation: int) -> None:
        steps: list[tuple[Write, int]] = [
            (upsert("1", 1, {}), 1),
            (upsert("1", 2, {}), 1),
            (upsert("1", 1, {}), 1),
            (delete("2", 1), 1),
            (upsert("2", 2, {}), 2),
            (delete("1", 3), 1),
            (delete("1", 4), 1),
            (delete("1", 3), 1),
            (upsert("1", 5, {}), 2),
        ]
        for step, expected in steps:
            sink.apply(generation, writes(step))
            assert sink.count(generation) == expected, step

    def test_what_opens_a_sink_can_be_sent_to_an_executor(self, store_url: str, name: str) -> None:
        parcel = (self.kind, self.config(store_url, name), SinkContext("suite", name, ("id",)))
        kind, config, context = pickle.loads(pickle.dumps(parcel))  # noqa: S301
        sink = open_sink(kind, config, context)
        sink.check()
        sink.close()


class SinkSuite(SinkFaults, SinkContract):
    """All of it for a store that is a server, which a network comes between."""
