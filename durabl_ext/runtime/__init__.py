"""What runs, waits and stops: claimed jobs, their handlers, leases and ends. Decisions are ``core``'s."""
