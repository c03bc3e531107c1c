"""Every script on a shard's keys."""

from dither_aggregator.store.packing import BODY_BYTES, NO_RECEIPT
from dither_aggregator.store.redis.packing import MARK_BYTES, QUARANTINED, SEGMENT
from dither_aggregator.store.redis.scripts import ADVANCE, CHECK, CLOCK, DAMAGED, LOG, MOVE, read, script

# A shard's log.

APPEND = script(
    CHECK,
    ADVANCE,
    MOVE,
    LOG,
    """
local mark = ARGV[2]
local digests, known = {}, {}
for i = 3, #ARGV, 4 do digests[#digests + 1] = ARGV[i] end
for _, before in ipairs(redis.call('ZRANGE', at .. ':seen', 0, -1)) do
    for i, answer in ipairs(redis.call('HMGET', at .. ':seen:' .. before, unpack(digests))) do
        if answer then known[digests[i]] = answer end
    end
end
local head = mark .. struct.pack('<I4', day)
local answers, seen, entries, counts, refused = {0}, {}, {}, {}, {}
for i = 3, #ARGV, 4 do
    local digest, answer, groups, refusals = unpack(ARGV, i, i + 3)
    answers[#answers + 1] = known[digest] or false
    for why, number, n in string.gmatch(known[digest] and '' or refusals, '(%S+) (%d+) (%d+)') do
        refused['g:' .. why] = (refused['g:' .. why] or 0) + number
        refused['n:' .. why] = (refused['n:' .. why] or 0) + n
    end
    if not known[digest] and #groups > 0 then
        known[digest] = answer
        seen[#seen + 1] = digest
        seen[#seen + 1] = answer
        entries[#entries + 1] = head .. groups
        local place, plan, cell, n, length = 1
        while place <= #groups do
            plan, cell, n, length, place = struct.unpack('<I4I4I4I4', groups, place)
            counts[plan] = (counts[plan] or 0) + n
            place = place + length
        end
    end
end
answers[1] = tonumber(state[5])
if #entries > 0 or next(refused) then advance() end
if #entries > 0 then
    answers[1] = log(entries)
    redis.call('HSET', at .. ':seen:' .. day, unpack(seen))
    redis.call('ZADD', at .. ':seen', day, day)
    for plan, n in pairs(counts) do move(plan, day, 'a', n) end
end
if next(refused) then
    for field, n in pairs(refused) do redis.call('HINCRBY', at .. ':refused:' .. day, field, n) end
    redis.call('ZADD', at .. ':refused', day, day)
end
return answers
""",
)
"""Take uploads (digest, answer, groups, counts of refused groups); return how many were ever written, and each one's
answer from before."""

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

ANSWERED = read(
    """
local days = redis.call('HMGET', at, 'sealed', 'bare')
return {days[1], redis.call('ZRANGEBYSCORE', at .. ':seen', days[2] and '(' .. days[2] or '-inf', days[1])}
"""
)
"""Return the last sealed day, and the sealed days with uploads whose answers are not forgotten."""

FORGET_ANSWERS = script(
    CHECK,
    f"""
local key = at .. ':seen:' .. ARGV[2]
local cursor, found = unpack(redis.call('HSCAN', key, ARGV[3], 'COUNT', ARGV[4]))
for i = 1, #found, 2 do
    local bare = string.sub(found[i + 1], 1, {BODY_BYTES}) .. string.rep('\\0', {len(NO_RECEIPT)})
    if found[i + 1] ~= bare then redis.call('HSET', key, found[i], bare) end
end
return cursor
""",
    flags="allow-oom",
)
"""Keep of some of a day's uploads that they were taken; return where to go on."""

FORGET_DAYS = script(
    CHECK,
    ADVANCE,
    """
local days, first = redis.call('ZRANGE', at .. ':seen', 0, -1), day - ARGV[2]
advance()
for i = 1, #days - ARGV[3] do
    if tonumber(days[i]) < first then
        redis.call('UNLINK', at .. ':seen:' .. days[i])
        redis.call('ZREM', at .. ':seen', days[i])
    end
end
for _, before in ipairs(redis.call('ZRANGEBYSCORE', at .. ':refused', '-inf', day - ARGV[4])) do
    redis.call('UNLINK', at .. ':refused:' .. before)
    redis.call('ZREM', at .. ':refused', before)
end
return day
""",
    flags="allow-oom",
)

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
    tonumber(state[2]), tonumber(redis.call('HGET', at, 'sealed')), taken(), redis.call('ZRANGE', at .. ':seen', 0, -1),
    redis.call('ZCARD', at .. ':tallies'), redis.call('SMEMBERS', at .. ':ledger'),
}
""",
)
"""Return a shard's day, the last it sealed, how often something was taken out of its quarantine, the days whose uploads
it remembers, how many tallies it has, and the plans in its ledger."""

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
    """
local seen_day = tonumber(ARGV[2])
redis.call('HSET', at, 'day', math.max(tonumber(state[2]), seen_day))
redis.call('ZADD', at .. ':seen', seen_day, seen_day)
for i = 3, #ARGV, 2 do redis.call('HSETNX', at .. ':seen:' .. seen_day, ARGV[i], ARGV[i + 1]) end
""",
)
