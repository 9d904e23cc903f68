"""Which figures are an alarm: the one list behind Prometheus' rules, the webhook of `driftless serve`, and the docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from driftless.control.health import Kind
from driftless.metrics import catalogue as m
from driftless.metrics.catalogue import Metric
from driftless.metrics.figures import Figure

Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Condition:
    """`value` of a figure is over, or under, a bound. `only`: with these labels alone."""

    metric: Metric
    over: float | None = None
    under: float | None = None
    only: Mapping[str, str] = field(default_factory=dict)

    def holds(self, figure: Figure) -> bool:
        """Whether a figure is one that it means, and beyond its bound."""
        if figure.metric is not self.metric or isinstance(figure.value, tuple) or not figure.has(self.only):
            return False
        return (self.over is not None and figure.value > self.over) or (
            self.under is not None and figure.value < self.under
        )


@dataclass(frozen=True)
class Alert:
    """`seconds`: for so long it has to hold. `about`: a sentence with labels in braces. `do`: what the operator does.

    `unless`: it is no alarm where that holds of the same follower, as where somebody has paused it.
    """

    name: str
    when: Condition
    seconds: float
    severity: Severity
    about: str
    do: str
    unless: Condition | None = None

    def firing(self, figures: Iterable[Figure]) -> Iterator[Figure]:
        """The figures for which it holds now, however long."""
        given = list(figures)
        exempt = {figure.labels[0] for figure in given if self.unless is not None and self.unless.holds(figure)}
        for figure in given:
            if self.when.holds(figure) and not (figure.labels and figure.labels[0] in exempt):
                yield figure

    def told(self, figure: Figure) -> str:
        """`about` one figure."""
        return self.about.format(**dict(zip(figure.metric.labels, figure.labels, strict=True)))


def _problem(name: str, kind: Kind, seconds: float, severity: Severity, about: str, do: str) -> Alert:
    return Alert(name, Condition(m.PROBLEM, over=0, only={"kind": kind}), seconds, severity, about, do)


STATUS = "`driftless status` says what it is and what to do"
LAG_SECONDS = 60.0
PROOF_SECONDS = 8 * 86400.0
SLOT_SECONDS = 6 * 3600.0


def alerts(lag: float = LAG_SECONDS, proof: float = PROOF_SECONDS) -> tuple[Alert, ...]:
    """All of them. `lag`: seconds by which a follower may be behind. `proof`: seconds after which a follower is to be
    proven again.
    """
    paused = Condition(m.FOLLOWER_STATE, over=0, only={"state": "paused"})
    behind = "{follower} is behind the source by more than it may be"
    return (
        _problem(
            "DriftlessKafkaUnreachable",
            Kind.KAFKA_UNREACHABLE,
            30,
            "critical",
            "Kafka does not answer",
            "see whether the brokers run and `kafka.bootstrap` leads to them; runs wait, and resume by themselves",
        ),
        _problem(
            "DriftlessSourceUnreachable",
            Kind.SOURCE_UNREACHABLE,
            60,
            "critical",
            "Postgres does not answer",
            "see whether the server runs and `source.dsn` leads to it; followers keep what they have",
        ),
        _problem(
            "DriftlessLogUntrusted",
            Kind.SOURCE_TROUBLE,
            30,
            "critical",
            "the log can no longer be trusted, or does not go on",
            f"{STATUS}; often `driftless apply` re-snapshots what is missing",
        ),
        _problem(
            "DriftlessConnectUnreachable",
            Kind.CONNECT_UNREACHABLE,
            60,
            "critical",
            "Kafka Connect does not answer",
            "see whether the worker runs and `connect.url` leads to it; nothing reads the slot until it does",
        ),
        _problem(
            "DriftlessConnectorDown",
            Kind.CONNECTOR_TROUBLE,
            60,
            "critical",
            "the connector brings no changes",
            f"{STATUS}; `driftless apply` starts it again",
        ),
        Alert(
            "DriftlessSlotLost",
            Condition(m.SLOT_LOST, over=0),
            0,
            "critical",
            "Postgres has given the replication slot up: changes are missing from the log",
            "run `driftless apply`: it re-snapshots the tables; then raise max_slot_wal_keep_size",
        ),
        Alert(
            "DriftlessSlotRunsOut",
            Condition(m.SLOT_SECONDS, under=SLOT_SECONDS),
            300,
            "critical",
            "Postgres will give the replication slot up within six hours",
            "start the connector, or raise max_slot_wal_keep_size and make room on the disk",
        ),
        _problem(
            "DriftlessTableChanged",
            Kind.TABLE_CHANGED,
            60,
            "warning",
            "{who} is no longer as it was registered",
            "`driftless plan` shows what that means, `driftless apply` follows it",
        ),
        _problem(
            "DriftlessNotApplied",
            Kind.NOT_APPLIED,
            300,
            "warning",
            "{who} is in sync.yaml and was never applied",
            "run `driftless apply`",
        ),
        _problem(
            "DriftlessNotRunning",
            Kind.NOT_RUNNING,
            60,
            "critical",
            "nobody runs {who}",
            "start `driftless run` again; its output says why it ended",
        ),
        _problem(
            "DriftlessNotStarting",
            Kind.NOT_STARTING,
            60,
            "warning",
            "the run of {who} does not start",
            f"{STATUS}; the run's output says what it waits for",
        ),
        _problem(
            "DriftlessFailed",
            Kind.FAILED,
            0,
            "critical",
            "{who} has failed and is not tried again",
            f"{STATUS}; mend it, then start `driftless run` again",
        ),
        _problem(
            "DriftlessWaiting",
            Kind.WAITING,
            120,
            "critical",
            "{who} waits for something, as for its store",
            f"{STATUS}; it resumes by itself once that is over",
        ),
        _problem(
            "DriftlessStandsStill",
            Kind.STANDS_STILL,
            60,
            "critical",
            "{who} does not get on while the source does",
            f"{STATUS}; the run's output may say more",
        ),
        _problem(
            "DriftlessNoReaders",
            Kind.NO_READERS,
            60,
            "critical",
            "{who}: readers see none of its generations",
            "run `driftless rebuild` of it",
        ),
        _problem(
            "DriftlessQuarantine",
            Kind.QUARANTINE,
            60,
            "warning",
            "documents of {who} are in quarantine",
            "`driftless quarantine list` has the reasons; mend the rows or the mapping, then `quarantine retry`",
        ),
        Alert(
            "DriftlessFollowerLags",
            Condition(m.FOLLOWER_LAG_SECONDS, over=lag),
            120,
            "warning",
            behind,
            f"{STATUS}; if nothing is wrong, the run needs more of the machine, or another run takes some followers",
            unless=paused,
        ),
        Alert(
            "DriftlessDrift",
            Condition(m.FOLLOWER_PROVEN, under=1),
            0,
            "critical",
            "the last `verify` did not find {follower} in sync",
            "`driftless verify` names the documents and the stage; `driftless verify --repair` mends them",
        ),
        Alert(
            "DriftlessProofIsOld",
            Condition(m.FOLLOWER_PROOF_AGE, over=proof),
            0,
            "warning",
            "{follower} was not verified for longer than it should be",
            "run `driftless verify`, best from cron",
        ),
    )


ABSENT_SECONDS = 120.0
"""After so long without `driftless serve` Prometheus says so, by a rule that `serve` itself cannot have."""
