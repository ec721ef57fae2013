"""What tests of orchestrations need: the real step machine over a journal that a test can interrupt at each write.

Nothing of the product imports this. It needs the extra ``testing``, or a database of a replica set.
"""

from durabl_ext.testing.crash_safe import assert_crash_safe
from durabl_ext.testing.errors import CrashNotReached, CrashUnsafe
from durabl_ext.testing.harness import OrchestrationHarness

__all__ = ["CrashNotReached", "CrashUnsafe", "OrchestrationHarness", "assert_crash_safe"]
