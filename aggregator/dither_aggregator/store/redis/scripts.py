"""A script of Redis, and the parts that several begin with; `store_scripts.py` and `shard_scripts.py` have them all.

A script either checks first and then writes, or does nothing; scripts that can free memory run without any to spare.
"""

import hashlib
from typing import NamedTuple


class Script(NamedTuple):
    """A script and what Redis calls it."""

    text: str
    sha: str


SCRIPTS: dict[str, Script] = {}
"""Every script that was made, by what Redis calls it."""

NOT_THIS_STORE = "NOTTHISSTORE"
DAMAGED = "DAMAGED"
"""How the errors begin that are ours."""

CHECK = f"""
local at = KEYS[1]
local state = redis.call('HMGET', at, 'token', 'day', 'clock_offset_s', 'cursor', 'written')
if state[1] ~= ARGV[1] then return redis.error_reply('{NOT_THIS_STORE} ' .. (state[1] or 'none')) end
"""

CLOCK = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000 + (state[3] or 0)
local clock_day = math.floor(now / 86400)
"""

ADVANCE = (
    CLOCK
    + """
local day = math.max(clock_day, tonumber(state[2]))
local function advance()
    if day ~= tonumber(state[2]) then redis.call('HSET', at, 'day', day) end
end
"""
)

MOVE = """
local function move(plan, epoch, column, n)
    local key = at .. ':ledger:' .. plan
    if redis.call('HINCRBY', key, epoch .. ':' .. column, n) == tonumber(n) then
        redis.call('SADD', at .. ':ledger', plan)
    end
end
"""

LOG = """
local function wait_from_now()
    redis.call('HSET', at, 'waiting_since', string.format('%.3f', now))
end
local function wait_on()
    local waits = redis.call('LLEN', at .. ':log') > 0
    redis.call('HSET', at, 'waiting_since', string.format('%.3f', waits and now or now - now % 3600))
end
local function log(entries)
    if redis.call('LLEN', at .. ':log') == 0 then wait_from_now() end
    redis.call('RPUSH', at .. ':log', unpack(entries))
    return redis.call('HINCRBY', at, 'written', #entries)
end
"""


def script(*parts: str, flags: str = "") -> Script:
    """Make a script of these parts, with Redis's flags for it."""
    text = f"#!lua{flags and f' flags={flags}'}\n" + "".join(parts)
    made = Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    SCRIPTS[made.sha] = made
    return made


def read(*parts: str) -> Script:
    """Make a script that only reads, after the check."""
    return script(CHECK, *parts, flags="no-writes")
