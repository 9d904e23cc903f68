"""Arithmetic of Postgres' numeric: exact, with Postgres' own number of digits behind the point.

The rules of scale are those of src/backend/utils/adt/numeric.c; there is no negative zero.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

EXACT = Context(prec=300_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""More digits than a product of two numerics has; NaN is a value here."""
_GROUP = 4
"""Decimal digits in one digit of a numeric."""
_SIGNIFICANT, _MOST = 16, 1000
"""NUMERIC_MIN_SIG_DIGITS and NUMERIC_MAX_DISPLAY_SCALE."""


def read(text: str) -> Decimal:
    """Of its JSON text, where NaN and infinity stand in quotes."""
    if '"' in text or "e" in text or "E" in text:
        return _plain(Decimal(text.strip('"')))
    return Decimal(text)


def write(value: Decimal) -> str:
    """As Postgres spells it."""
    return f"{value:f}" if value.is_finite() else {"N": "NaN", "-": "-Infinity"}.get(str(value)[0], "Infinity")


def as_json(value: Decimal) -> str:
    return write(value) if value.is_finite() else f'"{write(value)}"'


def scale(value: Decimal) -> int:
    """Digits behind the point."""
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def add(left: Decimal, right: Decimal) -> Decimal:
    return _unsigned_zero(EXACT.add(left, right))


def subtract(left: Decimal, right: Decimal) -> Decimal:
    return _unsigned_zero(EXACT.subtract(left, right))


def multiply(left: Decimal, right: Decimal) -> Decimal:
    return _unsigned_zero(EXACT.multiply(left, right))


def negate(value: Decimal) -> Decimal:
    return _plain(value.copy_negate())


def remainder(left: Decimal, right: Decimal) -> Decimal:
    """Has the sign of `left`. `right` is not 0."""
    return _plain(EXACT.remainder(left, right))


def divide(left: Decimal, right: Decimal) -> Decimal:
    """`right` is not 0."""
    if not (left.is_finite() and right.is_finite()):
        return Decimal(0) if left.is_finite() and right.is_infinite() else EXACT.divide(left, right)
    return _quotient(left, right, _quotient_scale(left, right), half=True)


def divide_whole(left: Decimal, right: Decimal) -> Decimal:
    """Of whole numbers, cut off towards 0. `right` is not 0."""
    return _quotient(left, right, 0, half=False)


def _quotient(left: Decimal, right: Decimal, digits: int, *, half: bool) -> Decimal:
    """`half`: rounded, halves away from 0."""
    above, below = int(left.scaleb(scale(left), EXACT)), int(right.scaleb(scale(right), EXACT))
    shift = digits + scale(right) - scale(left)
    above, below = (above * 10**shift, below) if shift >= 0 else (above, below * 10**-shift)
    found, rest = divmod(abs(above), abs(below))
    found += half and 2 * rest >= abs(below)
    return _plain(Decimal(-found if (above < 0) != (below < 0) else found).scaleb(-digits, EXACT))


def _quotient_scale(left: Decimal, right: Decimal) -> int:
    """select_div_scale() of numeric.c."""
    (weight, first), (other_weight, other_first) = _first_group(left), _first_group(right)
    weight = weight - other_weight - (first <= other_first)
    return min(max(_SIGNIFICANT - weight * _GROUP, scale(left), scale(right), 0), _MOST)


def _first_group(value: Decimal) -> tuple[int, int]:
    """The weight and the value of the first digit to the base 10000 that is not 0."""
    if not value:
        return 0, 0
    power = value.adjusted()
    weight = power // _GROUP
    return weight, int(abs(value).scaleb(-weight * _GROUP, EXACT))


def _unsigned_zero(value: Decimal) -> Decimal:
    return value if value else value.copy_abs()


def _plain(value: Decimal) -> Decimal:
    """Without an exponent above 0, and without a negative zero."""
    if not value.is_finite():
        return value.copy_abs() if value.is_nan() else value
    if scale(value) < 0:
        value = value.quantize(Decimal(1), context=EXACT)
    return _unsigned_zero(value)
