"""A seeded campaign of faults against the real chain: `make chaos`."""
