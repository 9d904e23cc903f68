"""The control topic, and what programs do through it: leases, requests, status."""
