"""What the command prints, and how."""
