"""What is asked of the brokers while logs are followed, once for all followers of a process."""
