"""The decisions of the extension: each once, as coroutines over ``simplequeue.jobs.Jobs``."""
