-- What scripts see. It runs once when the interpreter is made, before any script: it takes away
-- what a script must not have, bounds what could run for ever or overflow the stack of the server,
-- and makes the rest read only, because all scripts of all clients share it.
--
-- `native` has what is written in Rust. What it raises is no value of Lua: `native.shown` makes it
-- one.

local native, pattern_max = ...

local error, pairs, rawget, rawset = error, pairs, rawget, rawset
local select, tostring, type = select, tostring, type
local raw_pcall, raw_xpcall, setmetatable, getmetatable = pcall, xpcall, setmetatable, getmetatable
local raw_collectgarbage = collectgarbage
local READ_ONLY = "Attempt to modify a readonly table"

-- Tables that nobody changes are empty ones in front of the real ones.
local protected = setmetatable({}, { __mode = "k" })

-- What such a table has as its metatable: nobody changes that either.
local sealed = setmetatable({}, {
    __newindex = function() error(READ_ONLY, 2) end,
    __metatable = false,
})
protected[sealed] = {}

local function read_only(real)
    local shown = setmetatable({}, {
        __index = real,
        __newindex = function() error(READ_ONLY, 2) end,
        __metatable = sealed,
    })
    protected[shown] = real
    return shown
end

-- After SCRIPT KILL nothing that a script does keeps it alive.
local function settle(ok, ...)
    if not ok then native.go_on() end
    return ok, ...
end

local function as_text(ok, ...)
    if ok then return true, ... end
    local err = native.shown((...))
    if type(err) == "table" then
        local text = rawget(err, "err")
        if type(text) == "string" or type(text) == "number" then err = text end
    end
    return false, err
end

local function as_table(ok, ...)
    if ok then return true, ... end
    return false, native.shown((...))
end

local function protected_call(f, ...)
    return as_text(settle(raw_pcall(f, ...)))
end

-- Patterns are matched by recursion, once for each of their parts.
for _, name in pairs({ "find", "match", "gmatch", "gfind", "gsub" }) do
    local f = string[name]
    string[name] = function(text, pattern, ...)
        local plain = name == "find" and select(2, ...)
        if type(pattern) == "string" and #pattern > pattern_max and not plain then
            error("the pattern is too long", 2)
        end
        return f(text, pattern, ...)
    end
end

-- These write past `__newindex`.
for _, name in pairs({ "insert", "remove", "sort", "setn" }) do
    local f = table[name]
    table[name] = function(...)
        if protected[(...) or 0] then native.read_only() end
        return f(...)
    end
end

-- What Lua counts overflows, and then it writes behind its stack.
local unpack_all = unpack
local function unpack_some(list, from, to)
    local first = tonumber(from or 1)
    local last = tonumber(to or type(list) == "table" and #list)
    if first and last and not (last - first < 8000) then
        error("too many results to unpack", 2)
    end
    return unpack_all(list, from, to)
end

math.random = native.libraries.random.random
math.randomseed = native.libraries.random.randomseed
native.libraries.random = nil

local G = {}
for _, name in pairs({
    "_VERSION", "assert", "error", "gcinfo", "ipairs", "next", "pairs", "rawequal", "rawget",
    "select", "tonumber", "tostring", "type",
}) do
    G[name] = _G[name]
end
G.unpack = unpack_some

G.pcall = protected_call
function G.xpcall(f, handler)
    return settle(raw_xpcall(f, function(err) return handler(native.shown(err)) end))
end

function G.rawset(t, key, value)
    if protected[t] then native.read_only() end
    return rawset(t, key, value)
end

function G.setmetatable(t, meta)
    if protected[t] then native.read_only() end
    return setmetatable(t, meta)
end

function G.collectgarbage(what, ...)
    if what == nil or what == "collect" or what == "count" then return raw_collectgarbage(what) end
    return 0
end

-- Text only: what the compiler makes is not checked when it is loaded.
local function compile(text, name)
    local f, message = native.compile(text, name)
    if f then return f end
    return nil, message
end

function G.loadstring(text, name)
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" then error("bad argument #1 to 'loadstring' (string expected)", 2) end
    return compile(text, name or text)
end

function G.load(reader, name)
    local parts = {}
    while true do
        local part = reader()
        if part == nil or part == "" then break end
        if type(part) ~= "string" then error("reader function must return a string", 2) end
        parts[#parts + 1] = part
    end
    return compile(table.concat(parts), name or "=(load)")
end

local resume = coroutine.resume
function coroutine.resume(...) return as_table(settle(resume(...))) end

local strings = read_only(string)
local string_meta = read_only({ __index = strings })
function G.getmetatable(value)
    if type(value) == "string" then return string_meta end
    if type(value) == "userdata" then return nil end
    return getmetatable(value) or nil
end

G.string, G.math = strings, read_only(math)
G.table, G.coroutine = read_only(table), read_only(coroutine)
for name, library in pairs(native.libraries) do
    G[name] = read_only(library)
end

local redis = native.redis
function redis.error_reply(text, ...)
    if type(text) ~= "string" or select("#", ...) > 0 then
        return { err = "ERR wrong number or type of arguments" }
    end
    if text:sub(1, 1) == "-" then text = text:sub(2) end
    if not text:find(" ", 1, true) then text = "ERR " .. text end
    return { err = text }
end
function redis.status_reply(text, ...)
    if type(text) ~= "string" or select("#", ...) > 0 then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
end
function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end
G.redis = read_only(redis)

setmetatable(G, {
    __index = function(_, name)
        local text = "Script attempted to access nonexistent global variable '"
        error(text .. tostring(name) .. "'", 2)
    end,
})
local globals = read_only(G)
G._G = globals

-- Runs a script; what redis.call and redis.pcall are this time comes with it.
local function run(f, call, protected_call, may, handler, keys, argv)
    redis.call, redis.pcall, redis.acl_check_cmd = call, protected_call, may
    rawset(G, "KEYS", keys)
    rawset(G, "ARGV", argv)
    local ok, value = raw_xpcall(f, handler)
    redis.call, redis.pcall, redis.acl_check_cmd = nil, nil, nil
    rawset(G, "KEYS", nil)
    rawset(G, "ARGV", nil)
    return ok, value
end

-- Runs a function of a library, which gets keys and arguments as its own.
local function run_function(f, call, protected_call, may, handler, keys, argv)
    redis.call, redis.pcall, redis.acl_check_cmd = call, protected_call, may
    local ok, value = raw_xpcall(function() return f(keys, argv) end, handler)
    redis.call, redis.pcall, redis.acl_check_cmd = nil, nil, nil
    return ok, value
end

-- What a library sees: while it is loaded, how to register functions and nothing else; while one of
-- them runs, what scripts see.
local loading = false
local absent = { __index = getmetatable(G).__index }
local while_loading = {}
for _, name in pairs({
    "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION",
    "REDIS_VERSION_NUM",
}) do
    while_loading[name] = redis[name]
end
while_loading.register_function = native.register_function
setmetatable(while_loading, absent)
local of_loading = { redis = read_only(while_loading) }
local library_globals = setmetatable({}, {
    __index = function(_, name)
        local value = rawget(loading and of_loading or G, name)
        if value == nil then
            local text = "Script attempted to access nonexistent global variable '"
            error(text .. tostring(name) .. "'", 2)
        end
        return value
    end,
    __newindex = function() error(READ_ONLY, 2) end,
    __metatable = false,
})
protected[library_globals] = G

-- Runs the text of a library, which registers its functions.
local function load_library(f)
    loading = true
    local ok, value = raw_pcall(f)
    loading = false
    return ok, not ok and native.shown(value) or nil
end

return globals, run, { globals = library_globals, run = run_function, load = load_library }
