"""Workers fold, estimate and maintain a store when one machine is not enough.

    API process --ringer--> bell --broker--> worker --bell_answering--> store
                       beat --watchdog--> bell

A bell says where to look: a shard's number or a metric's name, nothing else. Every answer to it is a compare-and-set in
the store, so bells may be lost, doubled, late or in any order: the counts are the same. Celery carries them.
"""
