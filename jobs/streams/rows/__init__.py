"""From records of topics to rows: of events, and of versions of a table's rows."""
