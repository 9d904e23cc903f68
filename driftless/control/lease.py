"""One runner per follower: a lease in the control topic, enforced by the brokers' fencing of producers."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from driftless import names
from driftless.control.topic import Control, absorb, encode
from driftless.errors import Fenced, SourceUnavailable
from driftless.facts.state import LEASE_SECONDS, Fact
from driftless.kafka.client import Setting
from driftless.kafka.errors import is_fencing, kafka_error

WRITE_SECONDS = 3.0
"""How long a renewal may take: a stop must not wait for brokers that are away."""
SURE_SECONDS = 0.8 * LEASE_SECONDS
"""How long after a renewal the lease is surely still ours: the rest is for what has been begun by then."""
_INSTANCE = uuid.uuid4().hex[:12]
"""Of this process alone, whatever its pid is and wherever it runs."""


def _boot() -> str:
    """What names this start of this machine's kernel; "" where that cannot be known."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _pid_space() -> str:
    """What names the namespace that pids are of here: two containers of one machine each have their own."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def taken_at(lease: Fact) -> float | None:
    """When its holder took it, by the clock of the broker; None for a lease of an older version."""
    held = lease.value.get("held_seconds")
    return None if held is None else lease.time - float(str(held))


def elapsed() -> float:
    """Seconds on a clock that goes on while the process, or the machine, sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class Holder:
    """A process, such that another one that was given the same pid later is not taken for it.

    `boot`, `space`: of the kernel's start and of the namespace of pids. Two machines or containers may have one name.
    All but the first three are "" in the leases of older versions.
    """

    host: str
    pid: int
    started: float
    boot: str = ""
    space: str = ""
    instance: str = ""

    @classmethod
    def here(cls) -> Holder:
        started = psutil.Process().create_time()
        return cls(socket.gethostname(), os.getpid(), started, _boot(), _pid_space(), _INSTANCE)

    @classmethod
    def of(cls, lease: Fact) -> Holder:
        """Who wrote a lease."""
        value = lease.value
        more = (str(value.get(name, "")) for name in ("boot", "space", "instance"))
        return cls(str(value["host"]), int(str(value["pid"])), float(str(value["started"])), *more)

    def surely_gone(self) -> bool:
        """Whether it ran where its pid means what it means here, and runs no more. False when that cannot be known."""
        here = (socket.gethostname(), _boot(), _pid_space())
        if not all(here) or (self.host, self.boot, self.space) != here:
            return False
        try:
            process = psutil.Process(self.pid)
            return process.create_time() != self.started or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """The right to write for a follower, and the producer that every such write goes through.

    Taking it fences the producer of whoever held it before, so a runner that was only asleep cannot write to the
    control topic again: its next `write` raises Fenced. `token` rises with every taking.

    One thread writes at a time; any may ask whether it is `sure`.
    """

    def __init__(self, control: Control, follower: str, *, on_wait: Callable[[str], None] = lambda _: None) -> None:
        self._control = control
        self._key = f"lease/{follower}"
        self.follower = follower
        self._holder = Holder.here()
        self.token = self._outwait(on_wait) + 1
        self._taken_at = elapsed()
        self.held = True
        self._producer: Producer | None = None
        self._lock = threading.Lock()
        self._renewed_at = -LEASE_SECONDS
        self._why = ""
        self.write({})

    def _open(self) -> Producer:
        """A producer with this follower's id, after which every older one is fenced.

        Not where another runner has taken over since: it would be the one that is fenced.
        """
        self.confirm()
        settings: dict[str, Setting] = {"transaction.timeout.ms": int(LEASE_SECONDS * 1000)}
        id_ = names.lease_id(self._control.pipeline, self.follower)
        return self._control.kafka.fencing_producer(id_, **settings)

    def confirm(self) -> None:
        """Raise Fenced where another runner has taken over since. Any thread may ask."""
        fact = self._control.read().facts.get(self._key)
        if fact is not None:
            token = int(str(fact.value["token"]))
            if token > self.token or (token == self.token and Holder.of(fact) != self._holder):
                raise self._fenced()

    @property
    def renewed(self) -> float:
        """Seconds since it was last renewed, from before that was begun."""
        return elapsed() - self._renewed_at

    def sure(self) -> None:
        """Raise SourceUnavailable where another runner may take over before long: it has not been renewed in time."""
        if self.renewed > SURE_SECONDS:
            why = self._why or "this process was asleep"
            raise SourceUnavailable(
                f"the lease of `{self.follower}` has not been renewed for {self.renewed:.0f} s: {why}",
                hint="nothing is written until it is; is the broker running?",
            )

    def write(self, facts: Mapping[str, dict[str, object] | None], *, held: bool = True) -> list[Message]:
        """Renew the lease and write facts with it, all or none; returns the records as they can be read now.

        Raises Fenced when another runner took over. After SourceUnavailable it may be called again: it then makes sure
        first that the lease is still ours.
        """
        with self._lock:
            lease = {"held": held, "token": self.token, "held_seconds": round(elapsed() - self._taken_at, 1)}
            return self._write({self._key: {**lease, **vars(self._holder)}, **facts})

    def _write(self, facts: Mapping[str, dict[str, object] | None]) -> list[Message]:
        written: list[Message] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                written.append(message)

        try:
            # Kept once it has committed: after any error it may be within a transaction, which the next producer ends.
            producer, self._producer = self._producer or self._open(), None
            begun = elapsed()
            producer.begin_transaction()
            for key, value in facts.items():
                producer.produce(self._control.topic, key=key.encode(), value=encode(value), on_delivery=delivered)
            producer.commit_transaction(WRITE_SECONDS)
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if is_fencing(error):
                raise self._fenced() from exc
            failure = kafka_error(error, self._control.topic)
            self._why = str(failure)
            raise failure from exc
        self._producer, self._renewed_at, self._why = producer, begun, ""
        return written

    def _fenced(self) -> Fenced:
        hint = "only one process may run a follower; stop one of the two"
        return Fenced(f"another runner took over the follower `{self.follower}`", hint=hint)

    def release(self, facts: Mapping[str, dict[str, object] | None]) -> list[Message]:
        """Write the last facts and let another runner start at once."""
        self.held = False
        return self.write(facts, held=False)

    def _outwait(self, on_wait: Callable[[str], None]) -> int:
        """The last token, once nobody holds the lease; raises Fenced when its holder shows that it is alive.

        No clock is compared: a holder is alive if it renews while we watch for as long as a lease lasts.
        """
        fact = self._control.read().facts.get(self._key)
        if fact is None:
            return 0
        token = int(str(fact.value["token"]))
        holder = Holder.of(fact)
        if not fact.value["held"] or holder.surely_gone():
            return token
        on_wait(f"{self.follower}: waiting up to {LEASE_SECONDS:.0f} s for the lease of {holder}")
        consumer = self._control.kafka.consumer(**{"isolation.level": "read_uncommitted"})
        try:
            consumer.assign([TopicPartition(self._control.topic, 0, fact.offset + 1)])
            deadline = time.monotonic() + LEASE_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(min(left, 0.5))  # so that Ctrl-C is heard
                if message is None or message.error() is not None or message.key() != self._key.encode():
                    continue
                facts = {self._key: fact}
                absorb(facts, message)
                newest = facts.get(self._key)
                if newest is None or newest is fact:
                    continue  # no holder writes such a record: it is a stranger's
                if not newest.value["held"]:
                    return int(str(newest.value["token"]))
                raise Fenced(
                    f"the follower `{self.follower}` is already run by {holder}",
                    hint="stop that process first; it gives the lease back when it is stopped with SIGTERM",
                )
        except KafkaException as exc:
            raise SourceUnavailable(f"reading {self._control.topic}: {exc.args[0].str()}") from exc
        finally:
            consumer.close()
        return token
