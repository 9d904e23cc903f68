"""Reading logs: their records, their epochs, and how far followers may claim them."""
