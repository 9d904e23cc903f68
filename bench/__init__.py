"""Measurements, each against a reference taken in the same run: `python -m bench`, or `make bench`."""
