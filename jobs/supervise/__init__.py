"""Leases of a process, the workers under them, and what they report."""
