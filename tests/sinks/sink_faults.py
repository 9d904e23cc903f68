"""The parts of the suite about the checkpoint and its runners, and about lost answers and servers that are down."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import sinks._retry
from driftless.errors import SinkUnavailable
from driftless.sink import Applied, Sink
from tests.sinks.store_case import Opener, StoreCase, delete, stored, upsert, writes
from tests.support.proxy import Proxy


class CheckpointCases(StoreCase):
    """Inherited by `SinkContract`."""

    def test_a_new_generation_has_no_checkpoint(self, sink: Sink, generation: int) -> None:
        assert sink.load(generation) is None

    def test_a_checkpoint_is_replaced_only_where_it_is_the_expected_one(self, sink: Sink, generation: int) -> None:
        assert sink.save(generation, "a", expected="never") is False
        assert sink.load(generation) is None
        assert sink.save(generation, "a", expected=None) is True
        assert sink.save(generation, "b", expected=None) is False
        assert sink.save(generation, "b", expected="c") is False
        assert sink.load(generation) == "a"
        assert sink.save(generation, 'é "b" {}\n', expected="a") is True
        assert sink.load(generation) == 'é "b" {}\n'

    def test_a_save_given_again_counts_as_saved(self, sink: Sink, generation: int) -> None:
        assert sink.save(generation, "a", expected=None) is True
        assert sink.save(generation, "a", expected=None) is True
        assert sink.save(generation, "b", expected="a") is True
        assert sink.save(generation, "b", expected="a") is True
        assert sink.load(generation) == "b"

    def test_a_second_runner_is_fenced_by_its_first_save(self, opened: Opener, generation: int) -> None:
        first, second = opened(), opened()
        assert first.save(generation, "1 at 10", expected=None) is True
        seen = second.load(generation)
        assert second.save(generation, "2 at 20", expected=seen) is True
        assert first.save(generation, "1 at 20", expected="1 at 10") is False
        assert first.load(generation) == "2 at 20"

    def test_of_many_runners_at_once_one_saves(self, opened: Opener, generation: int) -> None:
        runners = [opened() for _ in range(6)]
        start = threading.Barrier(len(runners))

        def save(place: int) -> bool:
            start.wait(30)
            return runners[place].save(generation, f"runner {place}", expected=None)

        with ThreadPoolExecutor(len(runners)) as pool:
            saved = list(pool.map(save, range(len(runners))))
        assert sum(saved) == 1
        assert runners[0].load(generation) == f"runner {saved.index(True)}"

    def test_each_generation_has_its_own_checkpoint(self, sink: Sink, generation: int) -> None:
        sink.create(2)
        sink.save(generation, "one", expected=None)
        assert sink.load(2) is None
        sink.save(2, "two", expected=None)
        assert (sink.load(1), sink.load(2)) == ("one", "two")


class SinkFaults(StoreCase):
    """What a network does to a store that is a server. Inherited by `SinkSuite`."""

    # -- faults -------------------------------------------------------------------------------------------------

    def test_a_write_that_landed_and_whose_answer_was_lost_counts_as_held(
        self, opened: Opener, sink: Sink, generation: int, proxy: Proxy
    ) -> None:
        shaky = opened(proxy.url)
        shaky.apply(generation, writes(upsert("0", 1, {})))
        proxy.lose_reply_to(self.apply_mark)
        assert shaky.apply(generation, writes(upsert("1", 5, {"a": 1}), delete("0", 5))) == Applied(stale=2)
        assert proxy.faults == 1
        assert stored(sink, generation, "0", "1") == {"1": (5, {"a": 1})}
        assert sink.count(generation) == 1

    def test_an_answer_lost_in_a_large_batch_loses_nothing(
        self, opened: Opener, sink: Sink, generation: int, proxy: Proxy
    ) -> None:
        shaky = opened(proxy.url)
        shaky.apply(generation, writes(upsert("0", 1, {})))
        proxy.lose_reply_to(self.apply_mark)
        applied = shaky.apply(generation, writes(*(upsert(str(n), n, {"n": n}) for n in range(1, 8001))))
        assert (proxy.faults, applied.rejected, applied.written + applied.stale) == (1, (), 8000)
        assert sink.count(generation) == 8001
        assert stored(sink, generation, "1", "8000") == {"1": (1, {"n": 1}), "8000": (8000, {"n": 8000})}

    def test_a_store_that_is_down_for_a_while_delays_the_write(
        self, opened: Opener, sink: Sink, generation: int, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shaky = opened(proxy.url)
        shaky.apply(generation, writes(upsert("0", 1, {})))
        failed_twice = threading.Event()
        real = sinks._retry.pause

        def pause(tries: int) -> float:
            if tries:
                failed_twice.set()
            return real(tries)

        monkeypatch.setattr(sinks._retry, "pause", pause)
        proxy.refuse()
        with ThreadPoolExecutor(1) as background:
            applied = background.submit(shaky.apply, generation, writes(upsert("1", 5, {"a": 1})))
            assert failed_twice.wait(30), "the write was not tried again within 30 s"
            assert not applied.done()
            proxy.accept()
            assert applied.result(60) == Applied(written=1)
        assert stored(sink, generation, "1") == {"1": (5, {"a": 1})}

    def test_a_store_that_stays_down_is_given_up(self, opened: Opener, generation: int, proxy: Proxy) -> None:
        shaky = opened(proxy.url, retry_seconds=0.5, request_seconds=1)
        proxy.refuse()
        with pytest.raises(SinkUnavailable, match=r"does not answer.*; tried for 0.5 s$"):
            shaky.apply(generation, writes(upsert("1", 5, {"a": "SECRET"})))

    def test_a_store_that_does_not_answer_is_given_up(self, opened: Opener, generation: int, proxy: Proxy) -> None:
        shaky = opened(proxy.url, retry_seconds=0.5, request_seconds=0.5)
        proxy.hold()
        with pytest.raises(SinkUnavailable, match=r"Timeout"):
            shaky.apply(generation, writes(upsert("1", 5, {"a": 1})))
        proxy.let_go()

    # -- generations --------------------------------------------------------------------------------------------

    def test_a_switch_that_landed_and_whose_answer_was_lost_is_done(
        self, opened: Opener, sink: Sink, store_url: str, name: str, proxy: Proxy
    ) -> None:
        shaky = opened(proxy.url)
        for n in (1, 2):
            sink.create(n)
            sink.apply(n, writes(upsert("1", 5, {"of": n}), upsert(f"only {n}", 5, {"of": n})))
        for n in (1, 2, 1):
            proxy.lose_reply_to(self.promote_mark)
            shaky.promote(n)
            assert sink.promoted() == n
            asked = [self.as_reader(store_url, name, key) for key in ("1", f"only {n}", f"only {3 - n}")]
            assert asked == [self.canonical(f'{{"of": {n}}}'), self.canonical(f'{{"of": {n}}}'), None]
            assert (sink.count(1), sink.count(2)) == (2, 2)
        assert proxy.faults == 3

    def test_a_drop_that_landed_and_whose_answer_was_lost_is_done(
        self, opened: Opener, sink: Sink, generation: int, proxy: Proxy
    ) -> None:
        shaky = opened(proxy.url)
        sink.create(2)
        for n in (generation, 2):
            sink.apply(n, writes(upsert("1", 5, {"of": n})))
            sink.save(n, f"at {n}", expected=None)
        sink.promote(generation)
        proxy.lose_reply_to(self.drop_mark)
        shaky.drop(2)
        assert proxy.faults == 1
        assert (sink.load(generation), sink.load(2)) == ("at 1", None)
        assert stored(sink, generation, "1") == {"1": (5, {"of": 1})}

    def test_a_generation_made_and_whose_answer_was_lost_is_there(
        self, opened: Opener, sink: Sink, proxy: Proxy
    ) -> None:
        shaky = opened(proxy.url)
        proxy.lose_reply_to(self.create_mark)
        shaky.create(1)
        assert proxy.faults == 1
        assert sink.apply(1, writes(upsert("1", 5, {"a": 1}))) == Applied(written=1)

    # -- the checkpoint -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("before", [None, "a"])
    def test_a_save_that_landed_and_whose_answer_was_lost_counts_as_saved(
        self, opened: Opener, sink: Sink, generation: int, proxy: Proxy, before: str | None
    ) -> None:
        shaky = opened(proxy.url)
        assert before is None or shaky.save(generation, before, expected=None)
        proxy.lose_reply_to(self.save_mark)
        assert shaky.save(generation, "b", expected=before) is True
        assert proxy.faults == 1
        assert sink.load(generation) == "b"
