"""Views of several tables: what their declarations resolve to, and the SQL that gives their documents."""
