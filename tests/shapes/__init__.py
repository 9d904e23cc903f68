"""Schemas in the shape of public databases, made here: what is asked of a real database is asked of these first."""
