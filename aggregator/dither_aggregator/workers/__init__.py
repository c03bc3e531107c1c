"""Workers fold, estimate and maintain a store when one machine is not enough.

    API process --publisher--> task --broker--> worker --handlers--> store
                       beat --watchdog--> task

A task says where to look: a shard's number or a metric's name, nothing else. Every answer to it is a compare-and-set in
the store, so tasks may be lost, doubled, late or in any order: the counts are the same. Celery carries them.
"""
