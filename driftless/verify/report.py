"""What verify says of a follower: the contract's JSON, and a line for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftless.lsn import format_lsn
from driftless.verify.judge import AHEAD, DIFFERENT, EXTRA, MISSING, ROWS, STALE
from driftless.verify.proof import LOG, Verdict
from driftless.verify.subject import Subject, Target

KINDS = {MISSING: "missing", EXTRA: "extra", **dict.fromkeys((DIFFERENT, STALE, AHEAD, ROWS), "different")}
_TOLD = (
    *("lsn", "generation", "in_sync", "stage", "trouble", "seconds", "source_documents", "follower_documents"),
    *("missing", "extra", "different", "quarantined", "unproven", "uncomparable", "repaired"),
)
"""What of a report the control topic keeps: no sample, since it names keys."""
DETAILS = {
    STALE: "an older state than the follower must have applied",
    AHEAD: "its version is beyond the log's end, so changes to come would be refused",
    ROWS: "the rows that the view keeps are wrong: its next change would publish another document",
}


@dataclass
class Report:
    """One follower. `left`: what is still wrong, at any stage. `beyond`: documents that the source cannot show, so that
    they cannot be compared. `allowed`: in sync in spite of what is quarantined. `trouble`: why it was not compared.
    """

    name: str
    generation: int
    view: str
    lsn: int = 0
    source_documents: int = 0
    follower_documents: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    quarantined: int = 0
    unproven: int = 0
    beyond: int = 0
    allowed: bool = False
    stage: str | None = None
    samples: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""
    seconds: float = 0.0
    repaired: int = 0
    left: int = 0

    @property
    def in_sync(self) -> bool:
        return not self.trouble and not self.left and not self.unproven and not self.beyond and not self._held

    @property
    def _held(self) -> int:
        """Documents in quarantine, unless they are allowed."""
        return 0 if self.allowed else self.quarantined

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "generation": self.generation,
            "lsn": format_lsn(self.lsn) if self.lsn else None,
            "source_documents": self.source_documents,
            "follower_documents": self.follower_documents,
            **{kind: self.counts[kind] for kind in ("missing", "extra", "different")},
            "quarantined": self.quarantined,
            "unproven": self.unproven,
            "uncomparable": self.beyond,
            "repaired": self.repaired,
            "in_sync": self.in_sync,
            "stage": self.stage,
            "samples": self.samples,
            "pause_seconds": 0.0,
            "seconds": round(self.seconds, 1),
            "trouble": self.trouble or None,
        }

    def lines(self) -> list[str]:
        """What to print: one line, and one for each sample."""
        if self.trouble:
            return [f"{self.name}: not compared: {self.trouble}"]
        at = f"at LSN {format_lsn(self.lsn)} ({self.seconds:.1f} s, followers not paused)"
        held = f", {self.quarantined:,} quarantined" if self.quarantined else ""
        if self.in_sync and not self.repaired:
            return [f"{self.name}: in sync {at}: {self.follower_documents:,} documents{held}"]
        if not self.stage:
            return [f"{self.name}: not in sync {at}: {'; '.join(self._open())}", *map(_line, self.samples)]
        counts = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in ("missing", "extra", "different"))
        mended = f"; {self.repaired:,} repaired" if self.repaired else ""
        first = f"{self.name}: DRIFT {at}: {counts} of {self.source_documents:,}; first wrong: {self.stage}{mended}"
        return ["; ".join([first, *self._open()]), *map(_line, self.samples)]

    def _open(self) -> Iterator[str]:
        """What else speaks against it, and what to do."""
        if self._held:
            yield f"{self._held:,} quarantined (`driftless quarantine list {self.name}` names them)"
        if self.beyond:
            yield f"{self.beyond:,} cannot be compared, since Postgres cannot show them as jsonb"
        if self.unproven:
            yield f"{self.unproven:,} documents changed whenever they were looked at; verify again"


def proof_facts(report: Report) -> dict[str, dict[str, object] | None]:
    """The facts for the control topic: what was found of a follower; and, where it was in sync, at which position."""
    found = {name: value for name, value in report.to_json().items() if name in _TOLD}
    facts: dict[str, dict[str, object] | None] = {f"proof/{report.name}": found}
    if report.in_sync:
        facts[f"proven/{report.name}"] = {"lsn": format_lsn(report.lsn), "generation": report.generation}
    return facts


def _line(sample: Mapping[str, Any]) -> str:
    values = "".join(f"\n      {name}: {said or 'nothing'}" for name, said in sample.get("values", {}).items())
    detail = f": {sample['detail']}" if "detail" in sample else ""
    detail += ", repaired" if sample.get("repaired") else ""
    return f"  {sample['key']} ({sample['stage']}): {sample['problem']}{detail}{values}"


def report(
    subject: Subject,
    target: Target,
    verdict: Verdict,
    upstream: Sequence[tuple[Subject, Verdict]],
    samples: int,
    *,
    allowed: bool = False,
) -> Report:
    """A follower's part of what was found. `upstream`: of the tables that its view is built from."""
    found = Report(target.follower, target.generation, subject.name, verdict.lsn, verdict.source_documents)
    found.quarantined, found.allowed = len(target.held), allowed
    if target.trouble or target.follower not in verdict.documents:
        found.trouble = target.trouble or "it could not be read"
        return found
    found.follower_documents = verdict.documents[target.follower]
    found.unproven = len(verdict.unproven)
    for above, said in upstream:
        _take_in(found, above.stage, said, LOG, samples, prefix=f"{above.name} ")
    _take_in(found, subject.stage, verdict, LOG, samples)
    _take_in(
        found,
        "follower",
        verdict,
        target.follower,
        samples,
        known=verdict.wrong.get(LOG, {}) | verdict.mended.get(LOG, {}),
    )
    found.beyond = len(verdict.beyond)
    for key, place in sorted(verdict.beyond.items())[: max(0, samples - len(found.samples))]:
        found.samples.append({"key": key, "problem": "uncomparable", "stage": "source", "detail": place})
    return found


def stream_report(name: str, subject: Subject, verdict: Verdict, samples: int) -> Report:
    """A stream's part: its log against its SQL as a batch."""
    found = Report(name, 1, subject.name, verdict.lsn, verdict.source_documents, verdict.source_documents)
    found.unproven = len(verdict.unproven)
    _take_in(found, subject.stage, verdict, LOG, samples)
    return found


def _take_in(
    found: Report,
    stage: str,
    verdict: Verdict,
    scope: str,
    samples: int,
    *,
    known: Mapping[str, int] | None = None,
    prefix: str = "",
) -> None:
    """Add what is wrong at one stage. `known`: keys that are counted already; `prefix`: a row's, not a document's."""
    mended = verdict.mended.get(scope, {})
    every = verdict.wrong.get(scope, {}) | mended
    wrong = {key: problem for key, problem in every.items() if key not in (known or {})}
    counts = Counter(wrong.values()) + verdict.more.get(scope, Counter())
    if not counts:
        return
    found.stage = found.stage or stage
    found.left += len(wrong.keys() - mended.keys()) + verdict.more.get(scope, Counter()).total()
    if not prefix:
        found.repaired += sum(key in mended for key in wrong)
        for problem, number in counts.items():
            found.counts[KINDS[problem]] += number
    for key, problem in sorted(wrong.items())[: max(0, samples - len(found.samples))]:
        detail: dict[str, Any] = {"detail": DETAILS[problem]} if problem in DETAILS else {}
        if key in mended:
            detail["repaired"] = True
        if key in verdict.values:
            said = verdict.values[key]
            detail["values"] = {"source": said.get("source"), "follower": said.get(found.name)}
        found.samples.append({"key": prefix + key, "problem": KINDS[problem], "stage": stage, **detail})
