"""Rows of tables beside events: each event has the row as it was when it happened."""
