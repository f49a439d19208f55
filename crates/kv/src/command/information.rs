//! What the server says of itself.

use std::fmt::Write;

use super::help::help;
use super::{Arguments, Context, Done, Refusal, SYNTAX, Shared, subcommands, word};
use crate::format::DATABASE_COUNT;
use crate::keyspace::Keyspace;

/// The Redis whose behaviour this server follows, which clients ask for.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(crate) fn info(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let asked: Vec<String> = args[1..].iter().map(|name| word(name)).collect();
    let named = |names: &[&str]| asked.iter().any(|name| names.contains(&name.as_str()));
    let (all, usual) = (named(&["all", "everything"]), asked.is_empty() || named(&["default"]));
    let mut text = String::new();
    for (name, lines) in sections(context) {
        let usual = usual && !matches!(name, "Commandstats" | "Latencystats");
        if all || usual || asked.contains(&name.to_ascii_lowercase()) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}# {name}\r\n");
            for (key, value) in lines {
                let _ = write!(text, "{key}:{value}\r\n");
            }
        }
    }
    context.reply.text(&text);
    Ok(())
}

type Lines = Vec<(String, String)>;

fn line(name: &str, value: &dyn std::fmt::Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn configured(shared: &Shared, name: &str) -> (String, String) {
    line(name, &shared.configuration.text(name))
}

fn sections(context: &Context<'_>) -> Vec<(&'static str, Lines)> {
    let (shared, keys) = (&*context.shared, &*context.keys);
    vec![
        ("Server", of_server(shared)),
        ("Clients", of_clients(shared)),
        ("Memory", of_memory(shared, keys)),
        ("Persistence", of_persistence()),
        ("Tier", of_tier(shared, keys)),
        ("Stats", of_stats(shared, keys)),
        ("Replication", super::replication::lines(shared, keys)),
        ("CPU", processor_times()),
        ("Waits", of_waits(shared)),
        ("Commandstats", shared.statistics.command_lines(&shared.ticks)),
        ("Errorstats", shared.statistics.error_lines()),
        (
            "Latencystats",
            shared.statistics.latency_lines(
                shared.configuration.text("latency-tracking-info-percentiles"),
                &shared.ticks,
            ),
        ),
        ("Cluster", vec![line("cluster_enabled", &0)]),
        ("Keyspace", of_keyspace(keys)),
    ]
}

fn of_server(shared: &Shared) -> Lines {
    let up = shared.started.elapsed().as_secs();
    vec![
        line("redis_version", &REDIS_VERSION),
        line("server_name", &"tiersmith"),
        line("tiersmith_version", &env!("CARGO_PKG_VERSION")),
        line("redis_mode", &"standalone"),
        line("os", &"Linux"),
        line("arch_bits", &"64"),
        line("process_id", &std::process::id()),
        line("run_id", &shared.run_id),
        line("tcp_port", &shared.configuration.text("port")),
        line("uptime_in_seconds", &up),
        line("uptime_in_days", &(up / 86400)),
        line("io_threads_active", &u8::from(shared.configuration.number("io-threads") > 1)),
    ]
}

fn of_clients(shared: &Shared) -> Lines {
    vec![
        line("connected_clients", &shared.clients),
        configured(shared, "maxclients"),
        line("blocked_clients", &(shared.blocked + shared.held_back)),
        line("tracking_clients", &shared.tracking.counts()[0]),
    ]
}

fn of_memory(shared: &Shared, keys: &Keyspace) -> Lines {
    vec![
        line("used_memory", &keys.in_use()),
        line("used_memory_lua", &shared.scripts.as_ref().map_or(0, |scripts| scripts.memory())),
        line("used_memory_functions", &shared.libraries.as_ref().map_or(0, |all| all.memory())),
        line("number_of_functions", &shared.libraries.as_ref().map_or(0, |l| l.counts()[1])),
        line("number_of_libraries", &keys.library_count()),
        line("number_of_cached_scripts", &shared.scripts.as_ref().map_or(0, |s| s.count())),
        line("total_system_memory", &keys.heap().size()),
        line("mem_not_counted_for_evict", &0),
        line("lazyfree_pending_objects", &keys.trash_buckets()),
        configured(shared, "maxmemory"),
        line("maxmemory_policy", &shared.configuration.text("maxmemory-policy")),
    ]
}

fn of_persistence() -> Lines {
    vec![
        line("loading", &0),
        line("aof_enabled", &1),
        line("rdb_bgsave_in_progress", &0),
        line("aof_rewrite_in_progress", &0),
        line("aof_last_write_status", &"ok"),
        line("rdb_last_bgsave_status", &"ok"),
    ]
}

fn of_tier(shared: &Shared, keys: &Keyspace) -> Lines {
    let heap = keys.heap();
    let medium = heap.medium();
    let label = if medium.emulated { "EMULATED" } else { medium.access.name() };
    vec![
        line("tier_path", &medium.path.display()),
        line("tier_access", &medium.access.name()),
        line("tier_label", &label),
        line("tier_persistent", &u8::from(medium.persistent)),
        line("tier_bytes", &medium.len),
        line("tier_used_bytes", &heap.used()),
        line("tier_unused_unit_bytes", &heap.unused_units()),
        line("tier_commits", &heap.commits()),
        line("tier_damage", &heap.broken().unwrap_or("none")),
        line("tier_trash_buckets", &keys.trash_buckets()),
        line("tier_recovery_us", &shared.recovery_us),
    ]
}

fn of_stats(shared: &Shared, keys: &Keyspace) -> Lines {
    let tracked = shared.tracking.counts();
    vec![
        line("total_connections_received", &shared.connections),
        line("rejected_connections", &shared.rejected),
        line("total_commands_processed", &shared.commands),
        line("total_error_replies", &shared.refused),
        line("sync_full", &shared.syncs.full),
        line("sync_partial_ok", &shared.syncs.partial_ok),
        line("sync_partial_err", &shared.syncs.partial_err),
        line("total_net_input_bytes", &shared.bytes_in),
        line("total_net_output_bytes", &shared.bytes_out),
        line("expired_keys", &keys.expired()),
        line("migrate_cached_sockets", &0),
        line("evicted_keys", &keys.evicted()),
        line("evicted_clients", &shared.evicted_clients),
        line("io_threaded_reads_processed", &shared.shared_reads),
        line("io_threaded_writes_processed", &shared.shared_writes),
        line("pubsub_channels", &shared.channels.len()),
        line("pubsub_patterns", &shared.patterns.len()),
        line("pubsubshard_channels", &shared.shards.len()),
        line("tracking_total_keys", &tracked[1]),
        line("tracking_total_items", &tracked[2]),
        line("tracking_total_prefixes", &tracked[3]),
    ]
}

fn of_waits(shared: &Shared) -> Lines {
    let waits = shared.events.read();
    let lines = waits.events().map(|(event, totals)| {
        let name = format!("wait_{}", event.name.replace(' ', "_"));
        let (class, count, us) = (event.class.name(), totals.count(), totals.total_ns() / 1000);
        let (most_us, background) = (totals.max_ns() / 1000, u8::from(event.background));
        let text = format!(
            "class={class},waits={count},total_us={us},max_us={most_us},background={background}"
        );
        (name, text)
    });
    lines.collect()
}

fn of_keyspace(keys: &Keyspace) -> Lines {
    let lines = (0..DATABASE_COUNT).filter(|db| !keys.is_empty(*db)).map(|db| {
        let (count, expires) = (keys.len(db), keys.expiring(db));
        (format!("db{db}"), format!("keys={count},expires={expires},avg_ttl=0"))
    });
    lines.collect()
}

/// In which the kernel counts processor time for programs, on every machine that this runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Seconds of processor time: of the server, and of processes that it started, of which there are
/// none.
fn processor_times() -> Lines {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before the last bracket may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(4).filter_map(|one| one.parse().ok()).collect();
    let names =
        ["used_cpu_user", "used_cpu_sys", "used_cpu_user_children", "used_cpu_sys_children"];
    let line = |(name, ticks): (&&str, &u64)| {
        let micros = ticks * 1_000_000 / TICKS_PER_SECOND;
        ((*name).to_owned(), format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000))
    };
    names.iter().zip(&ticks).map(line).collect()
}

pub(crate) fn time(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    context.reply.list(2);
    context.reply.bulk(now.as_secs().to_string().as_bytes());
    context.reply.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

pub(crate) fn memory(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("usage", [key]) | ("usage", [key, _, _]) => {
            let found = context.keys.get(context.session.db, key);
            match found {
                Some(found) => context.reply.count(context.keys.usage(&found)),
                None => context.reply.null(),
            }
        }
        ("purge", []) => context.reply.ok(),
        ("stats", []) => stats(context),
        ("doctor", []) => {
            let what = match context.keys.heap().broken() {
                Some(what) => format!("The tier is damaged: {what}. See `tiersmith kv check`.\n"),
                None => "Nothing is wrong with the tier. INFO memory and INFO tier have figures.\n"
                    .to_owned(),
            };
            context.reply.text(&what);
        }
        ("malloc-stats", []) => {
            let heap = context.keys.heap();
            let text = format!(
                "bytes of the tier: {}\nin use: {}\nof units that are not full: {}\n",
                heap.size(),
                heap.used(),
                heap.unused_units()
            );
            context.reply.text(&text);
        }
        ("help", []) => help(context, "memory"),
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try MEMORY HELP."
            )));
        }
    }
    Ok(())
}

/// MEMORY STATS: what Redis says of its memory, of the tier.
fn stats(context: &mut Context<'_>) {
    let (keys, shared) = (&*context.keys, &*context.shared);
    let (in_use, empty) = (keys.in_use(), keys.in_use_when_empty());
    let count: u64 = (0..DATABASE_COUNT).map(|db| keys.len(db)).sum();
    let data = in_use.saturating_sub(empty);
    let scripts = shared.scripts.as_ref().map_or(0, |scripts| scripts.memory() as u64);
    let functions = shared.libraries.as_ref().map_or(0, |all| all.memory() as u64);
    let numbers = [
        ("total.allocated", in_use),
        ("startup.allocated", empty),
        ("replication.backlog", shared.backlog_bytes),
        ("lua.caches", scripts),
        ("functions.caches", functions),
        ("keys.count", count),
        ("keys.bytes-per-key", data.checked_div(count).unwrap_or(0)),
        ("dataset.bytes", data),
    ];
    context.reply.map(numbers.len() + 1);
    for (name, number) in numbers {
        context.reply.bulk(name.as_bytes());
        context.reply.count(number);
    }
    context.reply.bulk(b"dataset.percentage");
    // Of what is in use beyond an empty tier, as Redis counts it.
    context.reply.double(if data > 0 { 100.0 } else { 0.0 });
}

/// LOLWUT: the version, without a picture.
pub(crate) fn lolwut(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    context.reply.text(&format!("Redis ver. {REDIS_VERSION}, as tiersmith kv {version} has it\n"));
    Ok(())
}

/// MODULE: there are none.
pub(crate) fn module(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("list", []) => context.reply.list(0),
        ("help", []) => help(context, "module"),
        ("load" | "loadex", [_, ..]) => {
            return Err(Refusal::Said("ERR modules are not there: a module is a program of Redis"));
        }
        ("unload", [_]) => {
            return Err(Refusal::Said("ERR Error unloading module: no such module with that name"));
        }
        _ => return Err(subcommands::syntax("module", args)),
    }
    Ok(())
}

pub(crate) fn shutdown(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let known = |name: &&[u8]| matches!(word(name).as_str(), "save" | "nosave" | "now" | "force");
    if !args[1..].iter().all(known) {
        return Err(SYNTAX);
    }
    context.shared.shutdown = true;
    context.session.closing = true;
    Ok(())
}

/// DEBUG can stop the server or change what it must not, so it answers as a Redis does where nobody
/// allowed it.
pub(crate) fn debug(_context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    Err(Refusal::Said(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it \
         from a local connection, otherwise you need to set this option in the configuration file, \
         and then \
         restart the server.",
    ))
}

/// As a Redis answers that is no part of a cluster.
/// CLUSTER, and what clients of a cluster say of their connection.
pub(crate) fn cluster(_context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    Err(Refusal::Said("ERR This instance has cluster support disabled"))
}

/// SAVE and its like: every write is durable already.
pub(crate) fn save(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.reply.ok();
    Ok(())
}

pub(crate) fn lastsave(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.reply.count(context.keys.now_ms() / 1000);
    Ok(())
}
