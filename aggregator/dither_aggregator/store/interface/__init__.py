"""The contract of a store, a file a role: SQLite and Redis keep what the docstrings say, and one suite tries both.

    opened       what the store is, its plans, its clock, and how far each shard is
    ledger       where the accepted reports of each plan and day are
    log          uploads are appended, read and folded
    tallies      the segments whose sum is a tally, their compaction, and the merging of a sealed day
    batches      the counts of open days, cut at full hours
    epochs       days are sealed, finalized, and given up
    erasing      the bytes of merged days leave the store's files
    quarantine   reports that could not be counted
    readings     what was read of sealed days
    marks        releases and other events that the operator named
    keyring      who may upload, read and administer
    journal      who asked for which change
    refused      how many groups were not taken, and why
    moving       dump and restore
    resetting    the day is moved back, where it leapt ahead with the machine's clock

A store is a number of shards. A shard has a log of accepted uploads, a cursor up to which they are folded, the
segments that came of it, the ids of the uploads of the last seven days, a ledger and a quarantine. Every effect is
atomic within its shard:

    append   ids, log, `accepted` and the counts of refused groups move together: an acknowledged upload is in the log,
             and a copy of it is known
    commit   *if the cursor is still where it was read*: segments, ledger, quarantine, cursor and the trimmed log move
             together, else nothing does
    aside    *if they are still those that were read*, and so is the cursor: damaged entries move from the log into the
             quarantine
    seal     what is over and has nothing pending is closed for ever
    merge    *if they are still those that were read*: the segments of a sealed tally become one, tally by tally

A process that was killed, late or doubled changes nothing, and at every instant, for each plan and epoch,

    accepted = folded + pending + quarantined

where `pending` is counted from the log itself, not kept: the equation can fail, and the ledger shows it if it does.

Time is the store's own, and within a shard the day never goes back, but by a reset. Any number of processes may use a
store at once, each with a `Store` of its own; one `Store` may be used by any number of threads.

Roles are mixins and not objects of their own, because one effect moves what several of them own in one transaction.
"""

from dither_aggregator.store.interface.batches import Batches
from dither_aggregator.store.interface.epochs import Epochs
from dither_aggregator.store.interface.erasing import Erasing
from dither_aggregator.store.interface.journal import Journal
from dither_aggregator.store.interface.keyring import Keyring
from dither_aggregator.store.interface.ledger import Ledger
from dither_aggregator.store.interface.log import Log
from dither_aggregator.store.interface.marks import Marks
from dither_aggregator.store.interface.moving import Moving
from dither_aggregator.store.interface.opened import SHARDS
from dither_aggregator.store.interface.quarantine import Quarantine
from dither_aggregator.store.interface.readings import Readings
from dither_aggregator.store.interface.refused import Refusing
from dither_aggregator.store.interface.resetting import Resetting
from dither_aggregator.store.interface.tallies import Tallies

__all__ = ["SHARDS", "Store"]


class Store(
    Batches,
    Resetting,
    Ledger,
    Log,
    Tallies,
    Epochs,
    Erasing,
    Quarantine,
    Readings,
    Marks,
    Refusing,
    Moving,
    Keyring,
    Journal,
):
    """The state of one aggregator. Open one with `dither_aggregator.store.open_store`; close it when done.

    Every method raises StoreUnavailable while the store cannot be reached or written, and StoreError when it is not,
    or no longer, the store that it was opened as.
    """
