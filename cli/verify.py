"""`verify`: prove that followers equal the source."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cli import complete
from cli.base import NO, SYNC, YES, File, Json, app, err, no_generation, out, say
from cli.output.progress import show
from cli.run import spark_jars
from driftless import exact
from driftless.config.models import Config
from driftless.errors import ConfigError, SinkUnavailable, SourceUnavailable, SyncError
from driftless.facts.generation import Generation, generations, readers_generation
from driftless.facts.state import State
from driftless.pipeline import chosen, control_of, load

if TYPE_CHECKING:
    from cli.comparison.subjects import Group
    from driftless.verify.report import Report
    from driftless.verify.resumable_run import ResumableRun
    from driftless.verify.subject import Subject

GENTLE = 2_000
"""Rows a second that a continuous verify reads of each stage."""
NICE = 5
"""By so much its priority is below that of a run on the same machine, whose changes are to wait as little as may be."""


@app.command()
def verify(
    followers: Annotated[
        list[str] | None,
        typer.Argument(help="Followers or streams to compare; all if none is named.", autocompletion=complete.compared),
    ] = None,
    file: File = SYNC,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation", help="Another one than readers see, of one follower.", autocompletion=complete.generations
        ),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="How many keys to name for each follower.", min=0)] = 10,
    values: Annotated[
        bool, typer.Option("--values", help="Show the documents of these keys too, in the source and in the follower.")
    ] = False,
    source_rate: Annotated[
        float, typer.Option("--source-rate", help="Rows a second to read from the source; 0: no limit.", min=0)
    ] = 0,
    follower_rate: Annotated[
        float, typer.Option("--follower-rate", help="Documents a second to read from a store; 0: no limit.", min=0)
    ] = 0,
    patience: Annotated[
        float, typer.Option("--patience", help="Seconds to wait for open transactions of the source, twice.", min=1)
    ] = 30,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds that a follower may take to apply what is committed.", min=1)
    ] = 300,
    repair: Annotated[bool, typer.Option("--repair", help="Mend the stage that is wrong, and look again.")] = False,
    allow_quarantined: Annotated[
        bool, typer.Option("--allow-quarantined", help="Documents in quarantine do not speak against a follower.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Again and again, until Ctrl-C, at 2,000 rows/s if not told otherwise.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the same verify where it was interrupted, within an hour.")
    ] = False,
    memory: Annotated[str, typer.Option("--memory", help="Heap of the Spark driver.")] = "1g",
    every: Annotated[float, typer.Option("--every", help="Seconds of rest between two of these.", min=0)] = 600,
    as_json: Json = False,
) -> None:
    """Compare every document with the source at one exact position, while everybody goes on writing.

    Compares the generation that readers see, under their own names. Says which stage is the first that differs: the log
    of a table, of a view, or the follower. Exits 1 when anything differs, is quarantined, or could not be compared.

    Example: `driftless verify`

    A stream against its own SQL over the events: `driftless verify page_minute`

    Mend what is wrong in a store: `driftless verify product-cache --repair`

    One follower, gently: `driftless verify product-search --source-rate 5000 --follower-rate 5000`
    """
    config = load(file)
    given = followers or []
    read = {follower.view for follower in config.followers.values()}
    streams = [name for name in config.streams if (name in given if given else name not in read)]
    others = [name for name in given if name not in streams]
    names = chosen(config, others) if others or not given else []
    if generation is not None and len(names) != 1:
        raise ConfigError(
            "--generation is of one follower",
            hint=f"name the follower, as in `driftless verify FOLLOWER --generation {generation}`",
        )
    if continuous and resume:
        raise ConfigError(
            "--continuous and --resume do not go together: --continuous always compares everything",
            hint="leave one of the two out",
        )
    os.nice(NICE)
    usual = GENTLE * continuous
    asked = _Asked(
        names,
        streams,
        generation,
        samples,
        source_rate or usual,
        follower_rate or usual,
        patience,
        timeout,
        repair,
        values,
        resume,
        continuous,
        memory,
        allow_quarantined,
    )
    if not continuous:
        reports = _verify(config, asked)
        _show(reports, as_json=as_json)
        raise typer.Exit(YES if all(report.in_sync for report in reports) else NO)
    while True:
        try:
            _show(_verify(config, asked), as_json=as_json)
        except ConfigError:
            raise
        except SyncError as exc:
            say(f"not compared: {exc}; trying again in {every:g} s")
        time.sleep(every)


def _show(reports: list[Report], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"followers": [report.to_json() for report in reports]}), flush=True)
        return
    for report in reports:
        for line in report.lines():
            out.print(line, soft_wrap=True)


@dataclass(frozen=True)
class _Asked:
    """The options of one verify."""

    names: list[str]
    streams: list[str]
    generation: int | None
    samples: int
    source_rate: float
    follower_rate: float
    patience: float
    timeout: float
    repair: bool
    values: bool
    resume: bool
    continuous: bool
    memory: str
    allowed: bool


def _verify(config: Config, asked: _Asked) -> list[Report]:
    from cli.comparison.subjects import Subjects
    from connectors.debezium.connect import Connect
    from connectors.debezium.snapshot import Snapshots
    from connectors.pipeline.token import emit_marker
    from connectors.postgres.client import Postgres
    from connectors.postgres.source_snapshot import moment
    from driftless.verify.position_waiter import PositionWaiter
    from driftless.verify.proof import Proof, Verdict, VerifyContext
    from driftless.verify.report import proof_facts, report, stream_report
    from driftless.verify.steps import Step
    from driftless.verify.subject import Source
    from jobs.spark.login import log_in_as_spark
    from jobs.spark.session import session, stop

    control = control_of(config)
    state = control.read()
    wanted = {name: _generation(state, name, asked.generation) for name in asked.names}
    standing = dict(_standing(state, wanted, control.now()))
    if len(standing) == len(wanted) and not asked.streams:
        return list(standing.values())
    with ExitStack() as ending:
        source = ending.enter_context(Postgres(config.source.dsn))
        kept = ending.enter_context(_kept(config, asked, wanted))
        spark = session(spark_jars(), security=control.kafka.security, memory=asked.memory)
        ending.callback(stop, spark)
        log_in_as_spark(spark, control.kafka, spark_jars())
        steps: list[Step] = []
        ending.enter_context(show(steps, err))
        mark = partial(emit_marker, source, config.name)
        taken = Source(partial(moment, config.source.dsn, asked.patience), mark)
        reached = ending.enter_context(PositionWaiter(control, asked.timeout, say))
        connect = Connect(config.connect)
        again = Snapshots(config.name, source, control.kafka, connect, say).again
        subjects = Subjects(config, control, state, spark, again, taken, asked.timeout)
        for name in asked.names:
            if name not in standing:
                subjects.add(name, wanted[name], live=asked.generation is None)
        computed = {name: subjects.add_stream(name) for name in asked.streams}
        every = [*subjects.tables.values(), *(group.subject for group in subjects.groups.values())]
        places = {id(subject): number for number, subject in enumerate(every)}

        def prove(subject: Subject) -> Verdict:
            place = kept.place(places[id(subject)])
            means = VerifyContext(
                control.kafka, taken, reached, place, asked.source_rate, asked.follower_rate, say, steps
            )
            try:
                proof = Proof(subject, means)
                verdict = proof.run() if not subject.idle else Verdict()
                if asked.values:
                    proof.collect_samples(asked.samples)
                if asked.repair:
                    proof.mend()
                for target in subject.targets:
                    target.look_at_readers(meanwhile=True)
                return verdict
            finally:
                for target in subject.targets:
                    target.sink.close()

        left = {name: group for name, group in subjects.groups.items() if not _done(group, kept)}
        above = {table for group in left.values() if not group.subject.idle for table in group.tables}
        upstream = {name: (table, prove(table)) for name, table in subjects.tables.items() if name in above}
        for group in left.values():
            begun = time.monotonic()
            verdict = prove(group.subject)
            for target in group.subject.targets:
                tables = [upstream[name] for name in group.tables if name in upstream]
                made = report(group.subject, target, verdict, tables, asked.samples, allowed=asked.allowed)
                made.seconds = time.monotonic() - begun
                kept.done(made)
                control.write(proof_facts(made))
            for name, subject in computed.items():
                if subject is group.subject:
                    kept.done(stream_report(name, subject, verdict, asked.samples))
        return [standing.get(name) or kept.reports[name] for name in (*asked.names, *asked.streams)]


def _standing(state: State, wanted: Mapping[str, Generation], now: float) -> Iterator[tuple[str, Report]]:
    """Those that will not apply a position by themselves, so that nothing could be proven: this is said first."""
    from driftless.verify.position_waiter import why_it_stands
    from driftless.verify.report import Report

    for name, generation in wanted.items():
        why = why_it_stands(state, name, generation.number, now)
        if why:
            say(f"{name}: not compared: {why}")
            yield name, Report(name, generation.number, generation.view, trouble=why)


@contextmanager
def _kept(config: Config, asked: _Asked, wanted: Mapping[str, Generation]) -> Iterator[ResumableRun]:
    """What is read and found is kept where it is interrupted, and removed where it is not."""
    from driftless.verify.resumable_run import ResumableRun
    from stack import stack_home

    compared = {name: [generation.number, generation.build] for name, generation in wanted.items()}
    rates = [asked.source_rate, asked.follower_rate]
    how = {"followers": compared, "streams": asked.streams, "repair": asked.repair, "rates": rates}
    kept = ResumableRun(stack_home() / "verify" / config.name, how, resume=asked.resume)
    if kept.reports:
        say(f"compared before it was interrupted: {', '.join(kept.reports)}")
    try:
        yield kept
    except (KeyboardInterrupt, SourceUnavailable, SinkUnavailable):
        if asked.continuous:
            kept.remove()
        else:
            say("progress is kept for an hour: the same command with --resume continues from there")
        raise
    except Exception:
        kept.remove()
        raise
    else:
        kept.remove()
    finally:
        kept.close()


def _done(group: Group, kept: ResumableRun) -> bool:
    names = [target.follower for target in group.subject.targets] or [group.subject.name]
    return all(name in kept.reports for name in names)


def _generation(state: State, follower: str, number: int | None) -> Generation:
    """The one that is named, else the one that readers see."""
    seen = readers_generation(state, follower)
    if seen is None:
        raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
    if number is None:
        return seen
    known = generations(state, follower)
    if number not in known:
        raise no_generation(follower, number, known)
    return known[number]


@app.command()
def why(
    follower: Annotated[
        str, typer.Argument(help="A follower of sync.yaml.", metavar="FOLLOWER", autocompletion=complete.followers)
    ],
    key: Annotated[str, typer.Argument(help="The document's key, as OpenSearch has it in `_id`.", metavar="KEY")],
    file: File = SYNC,
    values: Annotated[bool, typer.Option("--values", help="Show the documents too.")] = False,
    as_json: Json = False,
) -> None:
    """Why one document is as it is: what source, log, view and followers hold of a key, and where they first differ.

    Exits 1 where they differ. It reads the whole log of the table, or of the view: of a million records, seconds.

    Example: `driftless why product-search 42`

    With what each of them holds: `driftless why product-search 42 --values`
    """
    from cli.comparison.explain import explain

    config = load(file)
    chosen(config, [follower])
    found = explain(config, control_of(config), follower, key)
    if as_json:
        print(exact.write(found.to_json(values=values)))
    else:
        for stage in found.stages:
            held = "cannot be read" if not stage.known else "no document" if stage.document is None else "a document"
            version = "" if stage.version is None else f", version {stage.version}"
            note = f"; {stage.note}" if stage.note else ""
            out.print(f"{stage.name}: {held} in {stage.where}{version}{note}", soft_wrap=True)
            if values and stage.document is not None:
                out.print(exact.write(exact.read(stage.document), 2), soft_wrap=True)
        out.print(f"{follower} {key}: {found.verdict}", soft_wrap=True)
    raise typer.Exit(YES if found.first_different is None else NO)
