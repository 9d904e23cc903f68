"""An application at work: about a hundred changes a second, each a transaction of its own."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import psycopg
from psycopg import sql

from bench.demo.shop import LINE_COLUMNS, ORDER_COLUMNS, PRODUCT_COLUMNS, Size, Words

CHANGES_A_SECOND = 100
FAVOURITE = 42
"""A product that is changed and sold again and again, and never deleted."""
_FAVOURITE_SECONDS = 3.0


class Writer(threading.Thread):
    """Updates, inserts and deletes rows until told to stop. An error ends it and is kept in `error`.

    `watched`: products that somebody looks at just now; they change more often than others.
    """

    def __init__(self, dsn: str, size: Size) -> None:
        super().__init__(name="writer", daemon=True)
        self._dsn = dsn
        self._size = size
        self._pick = random.Random(2)
        self._words = Words(seed=3)
        self._last_product = size.products
        self._last_order = size.orders
        self._ended = threading.Event()
        self.watched: list[int] = []
        self.done: Counter[str] = Counter()
        self.error: psycopg.Error | None = None

    def check(self) -> None:
        """Raise what ended it."""
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Return when its last change is committed."""
        self._ended.set()
        if self.is_alive():
            self.join(10)

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True, application_name="demo writer") as connection:
                self._write(connection)
        except psycopg.Error as exc:
            self.error = exc

    def _write(self, connection: psycopg.Connection) -> None:
        due = favourite_due = time.monotonic()
        while not self._ended.is_set():
            now = time.monotonic()
            if now >= favourite_due:
                favourite_due = now + _FAVOURITE_SECONDS
                self._change(connection, "updates", _REPRICE, (self._words.price(), self._stock(), FAVOURITE))
            else:
                self._one(connection)
            # After a stall it goes on at its pace, and does not make up for lost time.
            due = max(due + 1 / CHANGES_A_SECOND, now - 1)
            self._ended.wait(max(0.0, due - time.monotonic()))

    def _one(self, connection: psycopg.Connection) -> None:
        dice = self._pick.random()
        product = self._product()
        if dice < 0.60:
            self._change(connection, "updates", _REPRICE, (self._words.price(), self._stock(), product))
        elif dice < 0.70:
            title = self._words.product(self._last_product)[1]
            self._change(connection, "updates", _RENAME, (title, product))
        elif dice < 0.80:
            self._last_product += 1
            _, title, *rest = self._words.product(self._last_product)
            if dice < 0.705:
                title = self._words.waterproof_jacket()
            sku = f"NEW-{self._last_product:07}"
            self._change(connection, "inserts", _INSERT_PRODUCT, (sku, title, *rest))
        elif dice < 0.86:
            self._change(connection, "deletes", _DELETE, (product, FAVOURITE))
        elif dice < 0.92:
            self._order(connection)
        else:
            order_number = self._pick.randint(1, self._last_order)
            self._change(connection, "updates", _SHIP, (order_number,))

    def _order(self, connection: psycopg.Connection) -> None:
        """An order with its lines, in one transaction: no document may ever show a part of it."""
        self._last_order += 1
        order, lines = self._words.order(self._last_order, self._size.customers, self._last_product)
        if self._last_order % 3 == 0:
            lines[0] = (*lines[0][:2], FAVOURITE, *lines[0][3:])
        with connection.transaction():
            self._change(connection, "inserts", _INSERT_ORDER, order)
            for line in lines:
                self._change(connection, "inserts", _INSERT_LINE, line)
                number, _, product, quantity, _ = line
                self._change(connection, "inserts", _INSERT_SALE, (number, quantity, product))

    def _change(
        self, connection: psycopg.Connection, kind: str, statement: sql.SQL | sql.Composed, values: tuple[object, ...]
    ) -> None:
        self.done[kind] += connection.execute(statement, values).rowcount

    def _product(self) -> int:
        watched = self.watched
        if watched and self._pick.random() < 0.05:
            return self._pick.choice(watched)
        return self._pick.randint(1, self._last_product)

    def _stock(self) -> int:
        return self._pick.randint(0, 400)


def _insert(table: str, columns: tuple[str, ...]) -> sql.Composed:
    names, marks = map(sql.Identifier, columns), [sql.Placeholder()] * len(columns)
    joined = sql.SQL(", ").join
    return sql.SQL("insert into {} ({}) values ({})").format(sql.Identifier(table), joined(names), joined(marks))


_REPRICE = sql.SQL("update products set price = %s, stock = %s, changed_at = now() where id = %s")
_RENAME = sql.SQL("update products set title = %s, changed_at = now() where id = %s")
_DELETE = sql.SQL("delete from products where id = %s and id <> %s")
_SHIP = sql.SQL("update orders set status = 'shipped' where id = %s")
_INSERT_PRODUCT = _insert("products", PRODUCT_COLUMNS)
_INSERT_ORDER = _insert("orders", ORDER_COLUMNS)
_INSERT_LINE = _insert("order_lines", LINE_COLUMNS)
_INSERT_SALE = sql.SQL("""
insert into sales (order_id, product_id, category, quantity) select %s, id, category, %s from products where id = %s
""")
