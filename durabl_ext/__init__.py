"""Retries, leases, deduplication, priorities and delays on the jobs of ``simplequeue``. Under construction."""
