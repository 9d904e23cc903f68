"""The `where` of a view: its syntax tree, its reader, and what it means in SQL."""
