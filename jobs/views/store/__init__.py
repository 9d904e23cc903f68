"""The rows that a view is built from, and which documents they change."""
