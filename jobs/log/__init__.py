"""Reading logs: their records, their ends, their epochs, and whether they are still the same."""
