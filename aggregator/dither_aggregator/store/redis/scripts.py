"""Every script of the Redis store: on the keys that all shards share, then on a shard's.

A script either checks first and then writes, or does nothing; scripts that can free memory run without any to spare.
"""

import hashlib
from typing import NamedTuple

from dither_aggregator.store.records import ID_BYTES
from dither_aggregator.store.redis.layout import BUCKET_IDS, BUCKETS_MIN, MARK_BYTES, QUARANTINED, SEGMENT


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

SEEN = f"""
local seen, days, buckets, fullest = at .. ':seen', {{}}, {{}}, 0
local listed = redis.call('HGETALL', seen)
for i = 1, #listed, 2 do
    local of_day, what = string.match(listed[i], '^(.*):(.*)$')
    if what == 'buckets' then
        days[#days + 1] = tonumber(of_day)
        buckets[tonumber(of_day)] = tonumber(listed[i + 1])
    else
        fullest = math.max(fullest, tonumber(listed[i + 1]))
    end
end
table.sort(days)
local function bucket(of_day, id)
    local place = struct.unpack('>I4', id, {ID_BYTES - 3}) * buckets[of_day] / 4294967296
    return seen .. ':' .. of_day .. ':' .. math.floor(place)
end
local function make_room(of_day, ids)
    if not buckets[of_day] then
        buckets[of_day] = math.max(1, math.ceil(ids / {BUCKET_IDS * BUCKETS_MIN})) * {BUCKETS_MIN}
        redis.call('HSET', seen, of_day .. ':buckets', buckets[of_day])
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


# Scripts on the keys that all shards share.

BEGIN = script(
    """
if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.call('HGET', KEYS[1], 'token') or ''
end
if redis.call('DBSIZE') > 0 then return 'other keys' end
redis.call('HSET', KEYS[1], unpack(ARGV))
return false
"""
)
"""Begin a store in an empty database; else return the token of the one that is there, or what is."""

FINISH = script(
    f"""
local token = redis.call('HGET', KEYS[1], 'token')
if token == ARGV[2] then return end
if token ~= ARGV[1] then return redis.error_reply('{NOT_THIS_STORE} ' .. (token or 'none')) end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
"""
)
"""Put a finished store's token in the place of an unfinished one's, if that was not done before."""

HOLD = script(
    f"""
local token = redis.call('HGET', KEYS[1], 'token') or 'none'
if string.sub(token, 1, #ARGV[1]) ~= ARGV[1] then return redis.error_reply('{NOT_THIS_STORE} ' .. token) end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
"""
)
"""Put the token of one who resets the day in the place of a store's, or of one's who did not finish that."""

APPLY = script(
    CHECK,
    """
local place = 2
while place < #ARGV do
    redis.call(unpack(ARGV, place + 1, place + ARGV[place]))
    place = place + 1 + ARGV[place]
end
""",
)
"""Run commands, each behind the number of its words."""

CHANGES = read(
    CLOCK,
    """
local reply = {string.format('%.6f', now)}
for i = 2, #ARGV, 2 do
    local version = redis.call('HGET', at, ARGV[i] .. '_version') or '0'
    reply[#reply + 1] = version
    reply[#reply + 1] = version ~= ARGV[i + 1] and redis.call('HVALS', at .. ':' .. ARGV[i])
end
return reply
""",
)
"""Return the time; of each kind of documents, given with a version, the one there is, and all documents where that is
another."""

_SAVE = """
local version, key, last = ARGV[2] .. '_version', at .. ':' .. ARGV[2], 4 + 2 * ARGV[4]
if (redis.call('HGET', at, version) or '0') ~= ARGV[3] then return 0 end
redis.call('HINCRBY', at, version, 1)
for i = 5, last, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
for i = last + 1, #ARGV do redis.call('HDEL', key, ARGV[i]) end
return 1
"""
SAVE, SAVE_ANYWAY = script(CHECK, _SAVE), script(CHECK, _SAVE, flags="allow-oom")
"""Store so many documents of a kind, and take others away, if the version is still the caller's; return whether it was.
"""

LAST = read("return redis.call('LRANGE', at .. ':' .. ARGV[2], ARGV[3], ARGV[4])")
ADD = script(
    CHECK,
    """
redis.call('RPUSH', at .. ':' .. ARGV[2], unpack(ARGV, 4))
redis.call('LTRIM', at .. ':' .. ARGV[2], -ARGV[3], -1)
""",
)
"""Add documents of a numbered kind, and let go of the oldest beyond so many."""

GET = read("return redis.call('HMGET', at, unpack(ARGV, 2))")
SET = script(
    CHECK,
    """
for i = 2, #ARGV, 2 do
    if ARGV[i + 1] == '' then redis.call('HDEL', at, ARGV[i]) else redis.call('HSET', at, ARGV[i], ARGV[i + 1]) end
end
""",
    flags="allow-oom",
)
"""Set fields of the hash; an empty value takes one away."""

BATCHES = read("return {redis.call('HGET', at, 'batches_hour'), redis.call('HGETALL', at .. ':batches')}")
BATCH_NAMES = read("return {redis.call('HGET', at, 'batches_hour'), redis.call('HKEYS', at .. ':batches')}")
BATCH = read("return redis.call('HGET', at .. ':batches', ARGV[2])")
KEEP_BATCHES = script(
    CHECK,
    """
if (redis.call('HGET', at, 'batches_hour') or '') ~= ARGV[2] then return 0 end
redis.call('HSET', at, 'batches_hour', ARGV[3])
redis.call('UNLINK', at .. ':batches')
for i = 4, #ARGV, 2 do redis.call('HSET', at .. ':batches', ARGV[i], ARGV[i + 1]) end
return 1
""",
)
"""Put batches in the place of all others, if the last cut is still that of the caller's hour."""

READING = read(
    "return {redis.call('HGET', at .. ':readings', ARGV[2]), redis.call('SISMEMBER', at .. ':readings:open', ARGV[2])}"
)
OPEN_READINGS = read(
    """
local found = {}
for _, key in ipairs(redis.call('SMEMBERS', at .. ':readings:open')) do
    found[#found + 1] = key
    found[#found + 1] = redis.call('HGET', at .. ':readings', key)
end
return found
"""
)
_DROP_READING = """
local function drop(key)
    local size = redis.call('HSTRLEN', at .. ':readings', key)
    if size > 0 then redis.call('HINCRBY', at, 'readings_bytes', -size) end
    redis.call('HDEL', at .. ':readings', key)
    redis.call('ZREM', at .. ':readings:made', key)
    redis.call('ZREM', at .. ':readings:first', key)
    redis.call('SREM', at .. ':readings:open', key)
end
"""
KEEP_READINGS = script(
    CHECK,
    _DROP_READING,
    """
local kept_from = tonumber(redis.call('HGET', at, 'tallies_from'))
for i = 3, #ARGV, 4 do
    local key, first, open, content = unpack(ARGV, i, i + 3)
    drop(key)
    if tonumber(first) >= kept_from then
        redis.call('HSET', at .. ':readings', key, content)
        redis.call('ZADD', at .. ':readings:made', redis.call('HINCRBY', at, 'readings_made', 1), key)
        redis.call('ZADD', at .. ':readings:first', first, key)
        if open == '1' then redis.call('SADD', at .. ':readings:open', key) end
        redis.call('HINCRBY', at, 'readings_bytes', #content)
    end
end
while tonumber(redis.call('HGET', at, 'readings_bytes') or 0) > tonumber(ARGV[2]) do
    drop(redis.call('ZRANGE', at .. ':readings:made', 0, 0)[1])
end
""",
)
"""Keep readings of days whose tallies are kept; let go of those that were made first beyond so many bytes."""

FORGET_READINGS = script(
    CHECK,
    _DROP_READING,
    """
local keys = redis.call('ZRANGEBYSCORE', at .. ':readings:first', '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, key in ipairs(keys) do drop(key) end
return #keys
""",
    flags="allow-oom",
)
"""Forget so many of the readings of days before one, at most; return how many it were."""

FINALS = read("return redis.call('HGETALL', at .. ':finals:' .. ARGV[2])")

FINAL_EPOCHS = read(
    """
local names = {}
for i = 2, #ARGV do
    for _, day in ipairs(redis.call('HKEYS', at .. ':finals:' .. ARGV[i])) do
        names[#names + 1] = ARGV[i] .. ':' .. day
    end
end
return names
"""
)
"""Return PLAN:DAY for what is finalized of some plans."""

FINALIZE = script(
    CHECK,
    """
local plan, day, final, id, content = unpack(ARGV, 2)
local before = redis.call('HGET', at .. ':finals:' .. plan, day)
if before then return before end
redis.call('HSET', at .. ':finals:' .. plan, day, final)
if content and redis.call('ZADD', at .. ':snapshots', 'NX', day, id) == 1 then
    redis.call('SET', at .. ':snapshot:' .. id, content)
end
return final
""",
)

SNAPSHOT = read("return redis.call('GET', at .. ':snapshot:' .. ARGV[2])")

FORGET_SNAPSHOTS = script(
    CHECK,
    """
local ids = redis.call('ZRANGEBYSCORE', at .. ':snapshots', '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do
    redis.call('UNLINK', at .. ':snapshot:' .. id)
    redis.call('ZREM', at .. ':snapshots', id)
end
return #ids
""",
    flags="allow-oom",
)
"""Forget so many of the snapshots of days before one, at most; return how many it were."""

TALLIES_FROM = script(
    CHECK,
    """
local kept = tonumber(redis.call('HGET', at, 'tallies_from'))
local first = math.max(kept, tonumber(ARGV[2]))
if first > kept then redis.call('HSET', at, 'tallies_from', first) end
return first
""",
    flags="allow-oom",
)
"""Move the day from which tallies are kept on to another, and return it; it never goes back."""

ARE_FINAL = read(
    """
local places = {}
for i = 2, #ARGV do
    local plan, day = string.match(ARGV[i], '^(%d+):(%-?%d+)$')
    if redis.call('HEXISTS', at .. ':finals:' .. plan, day) == 1 then places[#places + 1] = ARGV[i] end
end
return places
"""
)

# A shard's log.

APPEND = script(
    CHECK,
    ADVANCE,
    MOVE,
    SEEN,
    LOG,
    """
local known = {}
for i = 3, #ARGV, 4 do
    for place = #days, 1, -1 do
        local body = redis.call('HGET', bucket(days[place], ARGV[i]), ARGV[i])
        if body then
            known[ARGV[i]] = body
            break
        end
    end
end
local head = ARGV[2] .. struct.pack('<I4', day)
local bodies, new, entries, counts, refused = {0}, {}, {}, {}, {}
for i = 3, #ARGV, 4 do
    local id, body, groups, refusals = unpack(ARGV, i, i + 3)
    bodies[#bodies + 1] = known[id] or false
    for why, number, n in string.gmatch(known[id] and '' or refusals, '(%S+) (%d+) (%d+)') do
        refused['g:' .. why] = (refused['g:' .. why] or 0) + number
        refused['n:' .. why] = (refused['n:' .. why] or 0) + n
    end
    if not known[id] and #groups > 0 then
        known[id] = body
        new[#new + 1] = id
        entries[#entries + 1] = head .. groups
        local place, plan, cell, n, length = 1
        while place <= #groups do
            plan, cell, n, length, place = struct.unpack('<I4I4I4I4', groups, place)
            counts[plan] = (counts[plan] or 0) + n
            place = place + length
        end
    end
end
bodies[1] = tonumber(state[5])
if #entries > 0 or next(refused) then advance() end
if #entries > 0 then
    bodies[1] = log(entries)
    make_room(day, fullest)
    for _, id in ipairs(new) do redis.call('HSET', bucket(day, id), id, known[id]) end
    redis.call('HINCRBY', seen, day .. ':ids', #new)
    for plan, n in pairs(counts) do move(plan, day, 'a', n) end
end
if next(refused) then
    for field, n in pairs(refused) do redis.call('HINCRBY', at .. ':refused:' .. day, field, n) end
    redis.call('ZADD', at .. ':refused', day, day)
end
return bodies
""",
)
"""Take uploads (digests of id and body, groups, counts of refused groups); return how many were ever written, and the
body that each id came with before."""

READ = read(
    """
local cursor, length = tonumber(state[4]), redis.call('LLEN', at .. ':log')
local place, uploads_max, bytes_max = ARGV[2] == '' and 0 or ARGV[2] - cursor, tonumber(ARGV[3]), tonumber(ARGV[4])
local read, bytes = {cursor, tonumber(state[5]), length}, 0
while place >= 0 and place < length and uploads_max > 0 and bytes < bytes_max do
    local entries = redis.call('LRANGE', at .. ':log', place, place + math.min(uploads_max, 50) - 1)
    for _, entry in ipairs(entries) do
        if bytes < bytes_max then
            read[#read + 1] = entry
            bytes = bytes + #entry
        end
    end
    place = place + #entries
    uploads_max = uploads_max - #entries
end
return read
"""
)
"""Return cursor, written, the length of the log, and what of it lies above the cursor or another place, in bounds."""

COMMIT = script(
    CHECK,
    CLOCK,
    MOVE,
    LOG,
    """
local low, high, last, segments = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if tonumber(state[4]) ~= low then return 0 end
if high > low then
    local entry = redis.call('LINDEX', at .. ':log', high - low - 1)
    if not entry or string.sub(entry, 1, #last) ~= last then return 0 end
end
redis.call('HSET', at, 'cursor', high)
for i = 6, #ARGV, 4 do
    local plan, epoch, n, packed = unpack(ARGV, i, i + 3)
    if i < 6 + 4 * segments then
        local length = redis.call('RPUSH', at .. ':tally:' .. plan .. ':' .. epoch, packed)
        redis.call('ZADD', at .. ':tallies', length, plan .. ':' .. epoch)
        move(plan, epoch, 'f', n)
    else
        redis.call('HSET', at .. ':quarantine', redis.call('HINCRBY', at, 'quarantine_last', 1), packed)
        move(plan, epoch, 'q', n)
    end
end
if high > low then redis.call('LTRIM', at .. ':log', high - low, -1) end
wait_on()
return 1
""",
    flags="allow-oom",
)
"""Store segments and quarantine, if the cursor is `low` and the log's entry `high` the one that was read."""

SET_ASIDE = script(
    CHECK,
    CLOCK,
    MOVE,
    LOG,
    """
local low, entries = tonumber(ARGV[2]), tonumber(ARGV[3])
if tonumber(state[4]) ~= low then return 0 end
for i = 4, 3 + 3 * entries, 3 do
    local entry = redis.call('LINDEX', at .. ':log', ARGV[i] - low - 1)
    if not entry or redis.sha1hex(entry) ~= ARGV[i + 1] then return 0 end
end
for i = 4, 3 + 3 * entries, 3 do redis.call('LSET', at .. ':log', ARGV[i] - low - 1, ARGV[i + 2]) end
redis.call('LTRIM', at .. ':log', 1, -1)
redis.call('HSET', at, 'cursor', low + 1)
wait_on()
for i = 4 + 3 * entries, #ARGV, 4 do
    local plan, epoch, n, packed = unpack(ARGV, i, i + 3)
    redis.call('HSET', at .. ':quarantine', redis.call('HINCRBY', at, 'quarantine_last', 1), packed)
    move(plan, epoch, 'q', n)
end
-- As if a group had been taken out: a damaged day may have let its epoch be sealed.
redis.call('HINCRBY', at, 'quarantine_last', 1)
return 1
""",
    flags="allow-oom",
)
"""Take the oldest entry away, put others in the place of the rest, and store quarantine: if the cursor is `low` and
each entry (place, SHA-1, entry in its place) the one that was read."""

# A shard's tallies and days.

CROWDED = read("return redis.call('ZRANGEBYSCORE', at .. ':tallies', ARGV[2], '+inf')")

SEGMENTS = read("return redis.call('LRANGE', at .. ':tally:' .. ARGV[2], 0, -1)")

REPLACE = script(
    CHECK,
    """
local name, number, first, last, packed = unpack(ARGV, 2)
local key = at .. ':tally:' .. name
local function head(place) return string.sub(redis.call('LINDEX', key, place) or '', 1, #first) end
if head(0) ~= first or head(number - 1) ~= last then return 0 end
redis.call('LTRIM', key, number, -1)
redis.call('ZADD', at .. ':tallies', redis.call('LPUSH', key, packed), name)
return 1
""",
    flags="allow-oom",
)

SEAL = script(
    CHECK,
    ADVANCE,
    f"""
local open_from, sealed = day, tonumber(redis.call('HGET', at, 'sealed'))
local oldest = redis.call('LINDEX', at .. ':log', 0)
if oldest then
    if #oldest < {MARK_BYTES + 4} then return redis.error_reply('{DAMAGED} an entry of the log is cut off') end
    open_from = math.min(day, (struct.unpack('<I4', oldest, {MARK_BYTES + 1})))
end
advance()
if open_from - 1 <= sealed then return sealed end
redis.call('HSET', at, 'sealed', open_from - 1)
return open_from - 1
""",
    flags="allow-oom",
)

NOTE_MERGED = script(
    CHECK,
    f"""
local days = redis.call('HMGET', at, 'sealed', 'merged')
if days[1] == days[2] then return {{}} end
local sealed, merged = tonumber(days[1]), tonumber(days[2] or -math.huge)
local tallies, lows, highs, unmerged = {{}}, {{}}, {{}}, {{}}
for _, name in ipairs(redis.call('ZRANGE', at .. ':tallies', 0, -1)) do
    local epoch, key = tonumber(string.match(name, ':(%-?%d+)$')), at .. ':tally:' .. name
    if epoch > merged and epoch <= sealed then
        local first, last = redis.call('LINDEX', key, 0) or '', redis.call('LINDEX', key, -1) or ''
        if math.min(#first, #last) < {SEGMENT.size} then
            return redis.error_reply('{DAMAGED} a segment is cut off')
        end
        local low, high = struct.unpack('<I8', first, {MARK_BYTES + 1}), struct.unpack('<I8', last, {MARK_BYTES + 9})
        lows[epoch], highs[epoch] = math.min(low, lows[epoch] or low), math.max(high, highs[epoch] or high)
        tallies[#tallies + 1] = {{name, epoch, low, high, redis.call('LLEN', key)}}
    end
end
for _, tally in ipairs(tallies) do
    local name, epoch, low, high, segments = unpack(tally)
    if segments > 1 or low > lows[epoch] or high < highs[epoch] then
        unmerged[#unmerged + 1] = {{name, lows[epoch], highs[epoch]}}
    end
end
if #unmerged == 0 then redis.call('HSET', at, 'merged', days[1]) end
return unmerged
""",
    flags="allow-oom",
)
"""Note that what is sealed is merged, if it is; else return the tallies that are not, with the ranges of their days."""

UNSORTED = read(
    SEEN,
    """
local last = redis.call('HMGET', at, 'sealed', 'in_order')
local reply = {last[1]}
for _, of_day in ipairs(days) do
    if of_day > tonumber(last[2] or -math.huge) and of_day <= tonumber(last[1]) then
        reply[#reply + 1] = of_day
        reply[#reply + 1] = buckets[of_day]
    end
end
return reply
""",
)
"""Return the last sealed day, and each whose ids may be in the order in which they came, with its buckets."""

SORT_IDS = script(
    CHECK,
    """
for place = ARGV[3], ARGV[4] do
    local key = at .. ':seen:' .. ARGV[2] .. ':' .. place
    local found, ids, bodies = redis.call('HGETALL', key), {}, {}
    for i = 1, #found, 2 do
        ids[#ids + 1] = found[i]
        bodies[found[i]] = found[i + 1]
    end
    table.sort(ids)
    redis.call('UNLINK', key)
    for _, id in ipairs(ids) do redis.call('HSET', key, id, bodies[id]) end
end
""",
    flags="allow-oom",
)

FORGET_DAYS = script(
    CHECK,
    ADVANCE,
    SEEN,
    """
local forgotten = {}
advance()
for i = 1, #days - ARGV[3] do
    if days[i] < day - ARGV[2] then forgotten[#forgotten + 1] = days[i] end
end
for _, before in ipairs(redis.call('ZRANGEBYSCORE', at .. ':refused', '-inf', day - ARGV[4])) do
    redis.call('UNLINK', at .. ':refused:' .. before)
    redis.call('ZREM', at .. ':refused', before)
end
return {day, forgotten}
""",
    flags="allow-oom",
)
"""Forget old counts of refused groups; return the day, and the days whose ids are to be forgotten."""

FORGET_IDS = script(
    CHECK,
    SEEN,
    """
local of_day, first = tonumber(ARGV[2]), tonumber(ARGV[3])
local last = math.min(first + ARGV[4], buckets[of_day] or 0)
for place = first, last - 1 do redis.call('UNLINK', seen .. ':' .. of_day .. ':' .. place) end
if last < (buckets[of_day] or 0) then return last end
redis.call('HDEL', seen, of_day .. ':buckets', of_day .. ':ids')
return 0
""",
    flags="allow-oom",
)
"""Forget some of a day's buckets, and at last the day; return where to go on, or 0."""

TALLIES_BEFORE = read(
    """
local names = {}
for _, name in ipairs(redis.call('ZRANGE', at .. ':tallies', 0, -1)) do
    if tonumber(string.match(name, ':(%-?%d+)$')) < tonumber(ARGV[2]) then names[#names + 1] = name end
end
return names
"""
)

FORGET_TALLIES = script(
    CHECK,
    """
for i = 2, #ARGV do
    redis.call('UNLINK', at .. ':tally:' .. ARGV[i])
    redis.call('ZREM', at .. ':tallies', ARGV[i])
end
""",
    flags="allow-oom",
)

EPOCHS = read(
    """
local names = {}
for i = 2, #ARGV do
    local rows = redis.call('HGETALL', at .. ':ledger:' .. ARGV[i])
    for j = 1, #rows, 2 do
        local day = string.match(rows[j], '^(.*):a$')
        if day and tonumber(rows[j + 1]) > 0 then names[#names + 1] = ARGV[i] .. ':' .. day end
    end
end
return names
"""
)
"""Return PLAN:DAY for the days on which reports of some plans were accepted."""

_TAKEN = """
local function taken()
    return redis.call('HGET', at, 'quarantine_last') - redis.call('HLEN', at .. ':quarantine')
end
"""
"""How often something was taken out of the quarantine: nothing else changes the ledger of a day that is sealed."""

LEDGER = read("return redis.call('HSCAN', at .. ':ledger:' .. ARGV[2], ARGV[3], 'COUNT', ARGV[4])")
"""Return some of a plan's part of the ledger, and where to go on."""

LEDGER_NOW = read(
    _TAKEN,
    """
local rows = {}
for _, plan in ipairs(redis.call('SMEMBERS', at .. ':ledger')) do
    local key = at .. ':ledger:' .. plan
    for i = 2, #ARGV do
        local fields = {ARGV[i] .. ':a', ARGV[i] .. ':f', ARGV[i] .. ':q', ARGV[i] .. ':d'}
        local row = redis.call('HMGET', key, unpack(fields))
        for j, n in ipairs(row) do
            if n then
                rows[#rows + 1] = plan
                rows[#rows + 1] = {fields[j], n}
            end
        end
    end
end
return {tonumber(state[2]), taken(), tonumber(state[4]), redis.call('LLEN', at .. ':log'), rows}
""",
)
"""Return the day, how often something was taken out of the quarantine, the cursor, the length of the log, and the
ledger of some days: each plan with a field and its value."""

STATUS = read(
    CLOCK,
    """
local more = redis.call('HMGET', at, 'sealed', 'waiting_since', 'merged')
return {
    tonumber(state[5]), tonumber(state[4]), redis.call('LLEN', at .. ':log'), tonumber(state[2]), clock_day,
    tonumber(more[1]), more[3], string.format('%.3f', now - more[2]),
}
""",
)

OUTLINE = read(
    _TAKEN,
    """
return {
    tonumber(state[2]), tonumber(redis.call('HGET', at, 'sealed')), taken(), redis.call('HGETALL', at .. ':seen'),
    redis.call('ZCARD', at .. ':tallies'), redis.call('SMEMBERS', at .. ':ledger'),
}
""",
)
"""Return a shard's day, the last it sealed, how often something was taken out of its quarantine, the buckets and ids of
the days whose uploads it remembers, how many tallies it has, and the plans in its ledger."""

NAMES = read(
    """
local cursor, found = unpack(redis.call('ZSCAN', at .. ':tallies', ARGV[2], 'COUNT', ARGV[3]))
local names = {}
for i = 1, #found, 2 do names[#names + 1] = found[i] end
return {cursor, names}
"""
)
"""Return some of the tallies' names, and where to go on."""

LENGTHS = read(
    """
local cursor, found = unpack(redis.call('ZSCAN', at .. ':tallies', ARGV[2], 'COUNT', ARGV[3]))
local names = {}
for i = 1, #found, 2 do
    local length = redis.call('LLEN', at .. ':tally:' .. found[i])
    if length == 0 or length ~= tonumber(found[i + 1]) then names[#names + 1] = found[i] end
end
return {cursor, names}
"""
)
"""Return, of some tallies, the names of those that do not have as many segments as is written of them, and where to go
on."""

# A shard's refused groups.

REFUSED = read("return redis.call('HGETALL', at .. ':refused:' .. ARGV[2])")

# A shard's quarantine.

QUARANTINE = read("return redis.call('HGETALL', at .. ':quarantine')")

_TAKE = f"""
local held = redis.call('HGET', at .. ':quarantine', ARGV[2])
if not held then return 0 end
if #held < {QUARANTINED.size} then return redis.error_reply('{DAMAGED} a quarantined group is cut off') end
local plan, cell, epoch, n, length = struct.unpack('<I4I4I4I4I4', held)
"""

REPLAY = script(
    CHECK,
    ADVANCE,
    MOVE,
    LOG,
    _TAKE,
    f"""
local reports = string.sub(held, {QUARANTINED.size + 1} + length)
advance()
log({{ARGV[3] .. struct.pack('<I4I4I4I4I4', day, plan, cell, n, #reports) .. reports}})
redis.call('HDEL', at .. ':quarantine', ARGV[2])
move(plan, epoch, 'q', -n)
move(plan, epoch, 'a', -n)
move(plan, day, 'a', n)
return 1
""",
)

DROP = script(
    CHECK,
    MOVE,
    _TAKE,
    """
redis.call('HDEL', at .. ':quarantine', ARGV[2])
move(plan, epoch, 'd', n)
return 1
""",
    flags="allow-oom",
)

# Filling a store that is unfinished.

FILL_SHARD = script(
    CHECK,
    CLOCK,
    """
local day, sealed, cursor, length, quarantined = unpack(ARGV, 2)
redis.call('HSET', at, 'day', math.max(tonumber(state[2]), day), 'sealed', sealed, 'cursor', cursor,
    'written', cursor + length, 'quarantine_last', quarantined, 'waiting_since', string.format('%.3f', now))
""",
)

FILL_SEEN = script(
    CHECK,
    SEEN,
    """
local of_day, new = tonumber(ARGV[2]), 0
redis.call('HSET', at, 'day', math.max(tonumber(state[2]), of_day))
make_room(of_day, tonumber(ARGV[3]))
for i = 4, #ARGV, 2 do new = new + redis.call('HSETNX', bucket(of_day, ARGV[i]), ARGV[i], ARGV[i + 1]) end
redis.call('HINCRBY', seen, of_day .. ':ids', new)
""",
)
