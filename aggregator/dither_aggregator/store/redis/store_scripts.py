"""Every script on the hash that all shards share, and on the keys that are named after it."""

from dither_aggregator.store.redis.scripts import CHECK, CLOCK, NOT_THIS_STORE, read, script

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

REFRESH = read(
    CLOCK,
    """
local reply = {string.format('%.6f', now)}
for i, what in ipairs({'plans', 'keys'}) do
    local version = redis.call('HGET', at, what .. '_version')
    reply[#reply + 1] = version
    reply[#reply + 1] = version ~= ARGV[i + 1] and redis.call('HVALS', at .. ':' .. what)
end
return reply
""",
)
"""Return the time; of plans, then of keys, the version, and their documents where the caller's version is another."""

SAVE = script(
    CHECK,
    """
local version, key = ARGV[2] .. '_version', at .. ':' .. ARGV[2]
if redis.call('HGET', at, version) ~= ARGV[3] then return 0 end
redis.call('HINCRBY', at, version, 1)
for i = 4, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
return 1
""",
)
"""Store documents of `plans` or `keys` if their version is still the caller's; return whether it was."""

JOURNAL = read("return redis.call('LRANGE', at .. ':journal', ARGV[2], ARGV[3])")
NOTE = script(
    CHECK,
    """
redis.call('RPUSH', at .. ':journal', unpack(ARGV, 3))
redis.call('LTRIM', at .. ':journal', -ARGV[2], -1)
""",
)
"""Add entries to the journal, and let go of the oldest beyond so many."""

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

MARKS = read("return redis.call('SMEMBERS', at .. ':marks')")
ADD_MARK = script(
    CHECK,
    """
local key = at .. ':marks'
if redis.call('SISMEMBER', key, ARGV[2]) == 1 then return 0 end
if redis.call('SCARD', key) >= tonumber(ARGV[3]) then return false end
return redis.call('SADD', key, ARGV[2])
""",
)
"""Keep a mark; return 1 if it is new, 0 if it is not, and nothing where a new one would be one too many."""

REMOVE_MARK = script(CHECK, "return redis.call('SREM', at .. ':marks', ARGV[2])", flags="allow-oom")

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
local days = redis.call('HGET', at, 'tallies_days')
if not days then return false end
local first = math.max(kept, ARGV[2] - days)
if first > kept then redis.call('HSET', at, 'tallies_from', first) end
return first
""",
    flags="allow-oom",
)
"""Move the day from which tallies are kept to where a shard's day allows it; return it where any are given up."""

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
