"""What clients of servers have in common, whatever the server is."""
