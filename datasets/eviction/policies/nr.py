"""Non-replacing: only items that were not used for a day are evicted, least recently used first.

A set that is read repeatedly, in any order, and does not fit keeps the part that fits, and hits exactly that part; yet
no item stays for ever.
"""

from datasets.eviction.policy import Policy

#: Seconds without a use after which an item may be evicted.
IDLE = 86400.0

POLICY = Policy(key=lambda item, floor: item.used, kept_from=lambda now: now - IDLE)
