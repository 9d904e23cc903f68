"""Where the demo keeps its pipeline: the servers' addresses, sync.yaml, and the command itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from psycopg.conninfo import make_conninfo

from bench.demo.shop import DATABASE
from driftless.errors import SourceError
from stack import Endpoints

PIPELINE = "demo"
COMMAND = Path(sys.executable).with_name("driftless")
FIRST, LATER = ("product-search", "product-cache"), "order-search"
STREAMS, COUNTED = ("sold", "rush"), ("sold-cache", "rush-cache")
"""What is computed of sales, and who follows it."""
VIEW = "order"
"""What the later one follows; it is built of four tables."""
SEARCH_INDEX, ORDER_INDEX, CACHE_KEY = "shop-products", "shop-orders", "shop:product:{id}"
SOLD_KEY, RUSH_KEY = "shop:sold:{product_id}:{minute}", "shop:rush:{category}:{began}"
SERVE_PORT = 8480
_STOP_SECONDS = 30.0
_SERVE_SECONDS = 30.0

_SYNC = """\
# Written by the demo. All commands take it with -f.
name: {pipeline}                          # prefix of every topic, slot and publication of this pipeline
source:
  dsn: ${{file:{secret}}}
  tables:                             # what Debezium captures, one compacted topic a table
    public.customers: {{exclude: [password_hash]}}    # never leaves the database
    public.products: {{}}
    public.orders: {{}}
    public.order_lines: {{}}
    public.sales: {{}}
kafka: {{bootstrap: "{kafka}"}}
connect: {{url: "{connect}"}}
views:
  product: {{root: public.products}}    # a document a row
  order:                              # a document of several tables, built from their logs
    root: public.orders
    columns: [id, status, placed_on, total, note]
    one:
      customer: {{table: public.customers, by: customer_id, columns: [id, name, city]}}
    many:
      lines:
        table: public.order_lines
        by: order_id
        columns: [line, quantity, price]
        one:
          product: {{table: public.products, by: product_id, columns: [id, title, category]}}
events:
  sales:                              # each row that is added to the table is one
    table: public.sales
    time: {{event: sold_at}}
    lateness: 2s                      # a window is final so long after its end
    late: {{correct: 1h}}               # what comes later, as after a pause of the machine, corrects it
streams:
  sold:                               # what each product sells in each minute, with every change
    sql: >
      SELECT date_format(window.start, 'yyyyMMdd-HHmm') AS minute, product_id, count(*) AS orders, sum(quantity) AS sold
      FROM sales GROUP BY window(sold_at, '1 minute'), product_id
    key: [product_id, minute]
    emit: changes
  rush:                               # sales of one category with less than a second between them; once it is over
    sql: >
      SELECT category, session_window.start AS began, count(*) AS sales
      FROM sales GROUP BY category, session_window(sold_at, '1 second')
    key: [category, began]
followers:
  sold-cache:
    view: sold
    redis: {{url: "{redis}", key: "{sold_key}"}}
  rush-cache:
    view: rush
    redis: {{url: "{redis}", key: "{rush_key}"}}
  product-search:
    view: product
    opensearch:
      url: {opensearch}
      index: {search_index}
      mapping:
        dynamic: strict
        properties:
          id: {{type: long}}
          sku: {{type: keyword}}
          title: {{type: text, analyzer: english}}
          description: {{type: text, analyzer: english}}
          category: {{type: keyword}}
          tags: {{type: keyword}}
          price: {{type: scaled_float, scaling_factor: 100}}
          stock: {{type: integer}}
          details: {{type: object, enabled: false}}
          changed_at: {{type: date}}
  product-cache:
    view: product
    redis: {{url: "{redis}", key: "{cache_key}"}}
"""
_SYNC_LATER = """\
  order-search:                       # added while the others ran
    view: order
    opensearch:
      url: {opensearch}
      index: {order_index}
      mapping:
        dynamic: strict
        properties:
          id: {{type: long}}
          status: {{type: keyword}}
          placed_on: {{type: date}}
          customer:
            properties: {{id: {{type: long}}, name: {{type: text}}, city: {{type: keyword}}}}
          lines:
            properties:
              line: {{type: integer}}
              quantity: {{type: integer}}
              price: {{type: scaled_float, scaling_factor: 100}}
              product:
                properties:
                  id: {{type: long}}
                  title: {{type: text, analyzer: english}}
                  category: {{type: keyword}}
          total: {{type: scaled_float, scaling_factor: 100}}
          note: {{type: text, analyzer: english}}
"""


@dataclass(frozen=True)
class Place:
    """A folder with the demo's sync.yaml, on the servers of one stack."""

    folder: Path
    endpoints: Endpoints

    @property
    def sync(self) -> Path:
        return self.folder / "sync.yaml"

    @property
    def secret(self) -> Path:
        """The file that holds the DSN; sync.yaml only names it."""
        return self.folder / "dsn"

    @property
    def dsn(self) -> str:
        return make_conninfo(self.endpoints.postgres, dbname=DATABASE)

    def write_sync(self, *, later: bool) -> None:
        """Write sync.yaml, with the follower that comes later or without it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as secret:
            secret.write(f"{self.dsn}\n")
        text = (_SYNC + (_SYNC_LATER if later else "")).format(
            pipeline=PIPELINE,
            secret=self.secret.absolute(),
            search_index=SEARCH_INDEX,
            order_index=ORDER_INDEX,
            cache_key=CACHE_KEY,
            sold_key=SOLD_KEY,
            rush_key=RUSH_KEY,
            **vars(self.endpoints),
        )
        self.sync.write_text(text)

    def command(self, *arguments: str, may_say_no: bool = False) -> str:
        """Run the command to its end and return what it printed. Raises SourceError with its words when it fails."""
        done = subprocess.run(
            [COMMAND, *arguments, "-f", self.sync],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode > (1 if may_say_no else 0):
            said = (done.stderr or done.stdout).strip()
            raise SourceError(f"`driftless {' '.join(arguments)}` ended with {done.returncode}: {said}")
        return done.stdout

    def status(self) -> dict[str, dict[str, Any]]:
        """Follower -> what `driftless status --json` says of it; and of the view of several tables, once it is run."""
        facts = json.loads(self.command("status", "--json", may_say_no=True))
        shown = {follower["name"]: follower for follower in facts["followers"]}
        for view in facts["views"]:
            if view["name"] == VIEW and view["state"] != "stopped":
                left = (view["lag_records"] or 0) + view["dirty"]
                shown[f"view {VIEW}"] = {**view, "lag_seconds": None, "lag_records": left, "documents": None}
        return shown

    def run(self, *names: str) -> Runner:
        """Start `driftless run NAME...`."""
        return Runner(self, "run", *names, log=f"run-{names[0]}")

    def serve(self) -> tuple[Runner, str]:
        """Start `driftless serve`, and return it with its address; on another port where its own is taken."""
        with socket.socket() as port:
            taken = port.connect_ex(("127.0.0.1", SERVE_PORT)) == 0
        runner = Runner(self, "serve", "--port", "0" if taken else str(SERVE_PORT), log="serve")
        deadline = time.monotonic() + _SERVE_SECONDS
        while (found := re.search(r"serving \S+ on (\S+)", runner.log.read_text(errors="replace"))) is None:
            runner.check()
            if time.monotonic() > deadline:
                raise SourceError(f"`driftless serve` has not started after {_SERVE_SECONDS:.0f} s; see {runner.log}")
            time.sleep(0.1)
        return runner, found[1]

    def end_strays(self) -> None:
        """End the runs of a demo that was killed before it could end them itself."""
        for path in self.folder.glob("*.pid"):
            number, born = path.read_text().split()
            try:
                process = psutil.Process(int(number))
                if process.create_time() == float(born):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(_STOP_SECONDS)
            except (psutil.NoSuchProcess, ProcessLookupError):
                pass
            path.unlink()


class Runner:
    """A `driftless run` or `serve` in a process of its own. Ctrl-C does not reach it: the demo ends it."""

    def __init__(self, place: Place, verb: str, *arguments: str, log: str) -> None:
        self._verb = verb
        self.log = place.folder / f"{log}.log"
        self._pid_file = self.log.with_suffix(".pid")
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [COMMAND, verb, *arguments, "-f", place.sync],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pid_file.write_text(f"{self._process.pid} {psutil.Process(self._process.pid).create_time()}")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Raise SourceError when it has ended."""
        if not self.running:
            last = "\n  ".join(self.log.read_text(errors="replace").strip().splitlines()[-5:])
            raise SourceError(
                f"`driftless {self._verb}` ended with {self._process.returncode}; its last lines:\n  {last}",
                hint=f"the whole log is {self.log}",
            )

    def ask_to_stop(self) -> None:
        """SIGTERM: it finishes what is under way and gives its leases back."""
        if self.running:
            self._process.terminate()

    def stop(self) -> None:
        """Return when it has ended, by force if need be."""
        self.ask_to_stop()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._pid_file.unlink(missing_ok=True)
