//! What the server says of itself.

use std::fmt::Write;

use super::arguments::glob;
use super::{Arguments, Context, Done, Refusal, Row, SYNTAX, TABLE, lookup, word};
use crate::format::DATABASE_COUNT;

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

fn sections(context: &Context<'_>) -> Vec<(&'static str, Lines)> {
    let (shared, keys) = (&*context.shared, &*context.keys);
    let heap = keys.heap();
    let medium = heap.medium();
    let line = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    let configured = |name: &str| line(name, &shared.configuration.text(name));
    let tracked = shared.tracking.counts();
    let up = shared.started.elapsed().as_secs();
    let label = if medium.emulated { "EMULATED" } else { medium.access.name() };
    let keyspace = (0..DATABASE_COUNT).filter(|db| !keys.is_empty(*db)).map(|db| {
        let (count, expires) = (keys.len(db), keys.expiring(db));
        (format!("db{db}"), format!("keys={count},expires={expires},avg_ttl=0"))
    });
    let waits = shared.events.read();
    let waits = waits.events().map(|(event, totals)| {
        let name = format!("wait_{}", event.name.replace(' ', "_"));
        let (class, count, us) = (event.class.name(), totals.count(), totals.total_ns() / 1000);
        let (most_us, background) = (totals.max_ns() / 1000, u8::from(event.background));
        let text = format!(
            "class={class},waits={count},total_us={us},max_us={most_us},background={background}"
        );
        (name, text)
    });
    vec![
        (
            "Server",
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
            ],
        ),
        (
            "Clients",
            vec![
                line("connected_clients", &shared.clients),
                configured("maxclients"),
                line("blocked_clients", &(shared.blocked + shared.held_back)),
                line("tracking_clients", &tracked[0]),
            ],
        ),
        (
            "Memory",
            vec![
                line("used_memory", &keys.in_use()),
                line(
                    "used_memory_lua",
                    &shared.scripts.as_ref().map_or(0, |scripts| scripts.memory()),
                ),
                line(
                    "used_memory_functions",
                    &shared.libraries.as_ref().map_or(0, |all| all.memory()),
                ),
                line(
                    "number_of_functions",
                    &shared.libraries.as_ref().map_or(0, |l| l.counts()[1]),
                ),
                line("number_of_libraries", &keys.library_count()),
                line("number_of_cached_scripts", &shared.scripts.as_ref().map_or(0, |s| s.count())),
                line("total_system_memory", &heap.size()),
                line("mem_not_counted_for_evict", &0),
                line("lazyfree_pending_objects", &keys.trash_buckets()),
                configured("maxmemory"),
                line("maxmemory_policy", &shared.configuration.text("maxmemory-policy")),
            ],
        ),
        (
            "Persistence",
            vec![
                line("loading", &0),
                line("aof_enabled", &1),
                line("rdb_bgsave_in_progress", &0),
                line("aof_rewrite_in_progress", &0),
                line("aof_last_write_status", &"ok"),
                line("rdb_last_bgsave_status", &"ok"),
            ],
        ),
        (
            "Tier",
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
            ],
        ),
        (
            "Stats",
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
                line("pubsub_channels", &shared.channels.len()),
                line("pubsub_patterns", &shared.patterns.len()),
                line("tracking_total_keys", &tracked[1]),
                line("tracking_total_items", &tracked[2]),
                line("tracking_total_prefixes", &tracked[3]),
            ],
        ),
        ("Replication", super::replication::lines(shared, keys)),
        ("CPU", processor_times()),
        ("Waits", waits.collect()),
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
        ("Keyspace", keyspace.collect()),
    ]
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

fn describe(context: &mut Context<'_>, row: &Row) {
    let reply = &mut context.reply;
    reply.list(10);
    reply.bulk(row.name.as_bytes());
    reply.integer(row.arity.into());
    let flags = row.flag_names();
    reply.list(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    let [first, last, step] = row.keys;
    [first, last, step].iter().for_each(|number| reply.integer((*number).into()));
    reply.list(1);
    reply.simple(&format!("@{}", row.group));
    (0..3).for_each(|_| reply.list(0));
}

pub(crate) fn command(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match args.get(1).map(|name| word(name)).as_deref() {
        None => {
            context.reply.list(TABLE.len());
            TABLE.iter().for_each(|row| describe(context, row));
        }
        Some("count") => context.reply.count(TABLE.len() as u64),
        Some("info") => {
            let names: Vec<_> = match &args[2..] {
                [] => TABLE.iter().map(Some).collect(),
                names => names.iter().map(|name| lookup(name)).collect(),
            };
            context.reply.list(names.len());
            for row in names {
                match row {
                    Some(row) => describe(context, row),
                    None => context.reply.null_list(),
                }
            }
        }
        Some("list") => {
            let names = list(&args[2..])?;
            context.reply.list(names.len());
            names.iter().for_each(|name| context.reply.bulk(name.as_bytes()));
        }
        Some("docs") => {
            let rows: Vec<&Row> = match &args[2..] {
                [] => TABLE.iter().collect(),
                names => names.iter().filter_map(|name| lookup(name)).collect(),
            };
            context.reply.map(rows.len());
            for row in rows {
                context.reply.bulk(row.name.as_bytes());
                context.reply.map(2);
                context.reply.bulk(b"summary");
                context.reply.bulk(row.summary.as_bytes());
                context.reply.bulk(b"group");
                context.reply.bulk(row.group.as_bytes());
            }
        }
        Some("getkeys") if args.len() > 2 => {
            let row = lookup(args[2]).ok_or(Refusal::Said("ERR Invalid command specified"))?;
            let inner = &args[2..];
            let keys = super::acl::keys_of(row, inner)
                .ok_or(Refusal::Said("ERR The command has no key arguments"))?;
            if !row.takes(inner.len()) {
                return Err(Refusal::Said("ERR Invalid number of arguments specified for command"));
            }
            // A script or function may have none.
            if keys.is_empty() && row.group != "scripting" {
                return Err(Refusal::Said("ERR Invalid arguments specified for command"));
            }
            context.reply.list(keys.len());
            keys.iter().for_each(|key| context.reply.bulk(key));
        }
        Some(name) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try COMMAND \
                 HELP."
            )));
        }
    }
    Ok(())
}

/// What COMMAND LIST says, with a filter or without.
fn list(filter: &Arguments<'_>) -> Result<Vec<&'static str>, Refusal> {
    let all = || super::acl::names_in(None).unwrap_or_default();
    match filter {
        [] => Ok(all()),
        [by, kind, what] if word(by) == "filterby" => match word(kind).as_str() {
            // There are no modules.
            "module" => Ok(Vec::new()),
            "aclcat" => Ok(super::acl::names_in(Some(&word(what))).unwrap_or_default()),
            "pattern" => {
                let fits = |name: &&str| glob(what, name.as_bytes(), true);
                Ok(all().into_iter().filter(fits).collect())
            }
            _ => Err(SYNTAX),
        },
        _ => Err(SYNTAX),
    }
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
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try MEMORY HELP."
            )));
        }
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
