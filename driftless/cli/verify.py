"""`verify`: prove that followers equal the source."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftless.cli import complete
from driftless.cli.base import NO, SYNC, YES, File, Json, app, chosen, control_of, err, load, out, say
from driftless.cli.run import spark_jars
from driftless.config import Config
from driftless.control import Control, State
from driftless.errors import ConfigError, SourceError
from driftless.generation import Generation, generations, overtaken
from driftless.progress import show
from driftless.quarantine import QuarantineLog

if TYPE_CHECKING:
    from driftless.verify.report import Report
    from driftless.verify.subject import Subject, Target


@app.command()
def verify(
    followers: Annotated[
        list[str] | None,
        typer.Argument(help="Followers to compare; all if none is named.", autocompletion=complete.followers),
    ] = None,
    file: File = SYNC,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation", help="Another one than readers see, of one follower.", autocompletion=complete.generations
        ),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="How many keys to name for each follower.", min=0)] = 10,
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
    as_json: Json = False,
) -> None:
    """Compare every document with the source at one exact position, while everybody goes on writing.

    Says which stage is the first that differs: the log of a table, or the follower. Exits 1 when anything differs, or
    could not be compared.

    Example: `driftless verify`

    One follower, gently: `driftless verify product-search --source-rate 5000 --follower-rate 5000`
    """
    config = load(file)
    names = chosen(config, followers or [])
    if generation is not None and len(names) != 1:
        raise ConfigError("--generation is of one follower: name it")
    reports = _verify(config, names, generation, samples, source_rate, follower_rate, patience, timeout)
    if as_json:
        print(json.dumps({"followers": [report.to_json() for report in reports]}))
    else:
        for report in reports:
            for line in report.lines():
                out.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(YES if all(report.in_sync for report in reports) else NO)


def _verify(
    config: Config,
    names: list[str],
    generation: int | None,
    samples: int,
    source_rate: float,
    follower_rate: float,
    patience: float,
    timeout: float,
) -> list[Report]:
    from connectors.moment import moment
    from connectors.postgres import Postgres
    from driftless.verify.proof import Means, Proof
    from driftless.verify.reached import Reached
    from driftless.verify.report import report
    from driftless.verify.steps import Step
    from driftless.verify.subject import Source
    from jobs.spark import session, stop

    control = control_of(config)
    state = control.read()
    wanted = {name: _generation(state, name, generation) for name in names}
    reports: dict[str, Report] = {}
    with ExitStack() as ending:
        source = ending.enter_context(Postgres(config.source.dsn))
        folder = Path(tempfile.mkdtemp(prefix="driftless-verify-"))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = session(spark_jars(), memory="512m")
        ending.callback(stop, spark)
        steps: list[Step] = []
        ending.enter_context(show(steps, err))
        taken = Source(partial(moment, config.source.dsn, patience), source.emit_marker)
        reached = Reached(control, timeout, say)
        for subject in _subjects(config, control, state, spark, wanted):
            place = folder / str(len(list(folder.iterdir())))
            place.mkdir()
            means = Means(control.kafka, taken, reached, place, source_rate, follower_rate, say, steps)
            begun = time.monotonic()
            try:
                verdict = Proof(subject, means).run()
            finally:
                for target in subject.targets:
                    target.sink.close()
            shutil.rmtree(place)
            for target in subject.targets:
                made = report(subject, target, verdict, [], samples)
                made.seconds = time.monotonic() - begun
                reports[target.follower] = made
    return [reports[name] for name in names]


def _generation(state: State, follower: str, number: int | None) -> Generation:
    """The one that is named, else the one that readers see."""
    known = generations(state, follower)
    if not known:
        raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
    if number is not None:
        if number not in known:
            raise ConfigError(f"{follower} has no generation {number}; there is {', '.join(map(str, known))}")
        return known[number]
    live = [n for n in known if (state.get(f"follower/{follower}/{n}") or {}).get("live")]
    return known[live[0] if live else max(known)]


def _subjects(
    config: Config, control: Control, state: State, spark: Any, wanted: dict[str, Generation]
) -> list[Subject]:
    """What is to be compared: followers of the same documents together, so that source and log are read once."""
    from driftless.registry import same_topic
    from driftless.verify.subject import Subject
    from driftless.views.sql import select
    from driftless.views.tree import Node, View
    from jobs.history import History
    from jobs.job import make_job

    quarantine = QuarantineLog(control.kafka, config.name)
    made: dict[tuple[object, ...], Subject] = {}
    for name, generation in wanted.items():
        if overtaken(generation, state):
            raise SourceError(
                f"{name}: generation {generation.number} is of an older epoch of the log: it holds what is gone",
                hint="run the follower until its newest generation is live",
            )
        job = make_job(config, name, generation, state, control.kafka)
        table = generation.table
        alike = (job.log.topic, generation.epoch, job.source.parse, job.source.shape)
        if alike not in made:
            same_topic(control.kafka, job.log)
            node = Node("", "root", table.full_name, generation.fields)
            view = View(generation.view, node, {table.full_name: table}, generation.where)
            history = History(spark, job.source)
            made[alike] = Subject(
                generation.view,
                table.full_name,
                "table-log",
                select(view),
                job.log,
                history,
                beside=_beside(state, config),
            )
        made[alike].targets.append(_target(name, generation, job.spec, quarantine))
    return list(made.values())


def _target(name: str, generation: Generation, spec: object, quarantine: QuarantineLog) -> Target:
    from driftless.verify.subject import Target
    from jobs.apply import SinkSpec
    from sinks import config_model

    assert isinstance(spec, SinkSpec)
    store = config_model(spec.kind).model_validate(dict(spec.config))

    def quarantined() -> frozenset[str]:
        return frozenset(entry.key for entry in quarantine.read(name, generation.number))

    return Target(
        name,
        generation.number,
        spec.open(),
        quarantined,
        keeps_text=store.keeps_text,
        expires=store.expires,
    )


def _beside(state: State, config: Config) -> dict[str, int]:
    """Every topic whose records tell where a transaction ended: those of all tables, and the markers'."""
    from driftless import names
    from driftless.registry import registered_log

    logs = [log for table in state.under("epochs") if (log := registered_log(state, table)) is not None]
    return {names.message_topic(config.name): 1, **{log.topic: log.partitions for log in logs}}
