"""Views of several tables: how they are declared, what they resolve to, and the SQL that gives their documents."""
