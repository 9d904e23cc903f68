"""The local servers as plain processes: coordinates, versions, start and stop."""
