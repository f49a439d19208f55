//! Which settings and libraries of a PostgreSQL its copy takes over, and how they are written.
//!
//! Both are lists of what is known to be harmless: what shapes the work of the server, and nothing
//! that names another system, another place, a command or a secret. What is on neither is left out
//! and named, so that nothing unknown acts and no secret is kept.
//!
//! Deliberately absent: asking the database (`mod.rs`).

/// A row for each setting that somebody has set: its name and its value.
pub(super) const QUESTION: &str = "SELECT name || '=' || setting FROM pg_settings WHERE source IN \
     ('configuration file', 'command line', 'environment variable', 'global') AND context <> \
     'internal' ORDER BY name";

/// Libraries that count, log or plan, and reach nobody else.
const LIBRARIES: [&str; 12] = [
    "auth_delay",
    "auto_explain",
    "passwordcheck",
    "pg_hint_plan",
    "pg_prewarm",
    "pg_qualstats",
    "pg_stat_kcache",
    "pg_stat_statements",
    "pg_trgm",
    "pg_wait_sampling",
    "pgaudit",
    "plpgsql",
];

/// What the copy does not do, whatever the database does. It goes before every file.
pub(super) const OFF: [&str; 20] = [
    "listen_addresses=",
    "port=5432",
    "bonjour=off",
    "ssl=off",
    "archive_mode=off",
    "archive_command=",
    "restore_command=",
    "primary_conninfo=",
    "primary_slot_name=",
    "synchronous_standby_names=",
    "max_wal_senders=0",
    "max_replication_slots=0",
    "max_logical_replication_workers=0",
    "session_preload_libraries=",
    "local_preload_libraries=",
    "logging_collector=off",
    "log_destination=stderr",
    // Memory was judged without them, and the database may need them at its next start.
    "huge_pages=off",
    "external_pid_file=",
    "cluster_name=tiersmith-trial-copy",
];

/// Settings that are taken over.
const NAMES: [&str; 74] = [
    "backend_flush_after",
    "backslash_quote",
    "bytea_output",
    "check_function_bodies",
    "client_encoding",
    "compute_query_id",
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "datestyle",
    "deadlock_timeout",
    "default_statistics_target",
    "default_text_search_config",
    "default_toast_compression",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "dynamic_shared_memory_type",
    "escape_string_warning",
    "extra_float_digits",
    "from_collapse_limit",
    "fsync",
    "full_page_writes",
    "geqo",
    "gin_fuzzy_search_limit",
    "gin_pending_list_limit",
    "hash_mem_multiplier",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "io_combine_limit",
    "io_max_combine_limit",
    "io_max_concurrency",
    "io_method",
    "io_workers",
    "jit",
    "join_collapse_limit",
    "lock_timeout",
    "logical_decoding_work_mem",
    "maintenance_io_concurrency",
    "maintenance_work_mem",
    "max_connections",
    "max_files_per_process",
    "max_locks_per_transaction",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "max_pred_locks_per_page",
    "max_pred_locks_per_relation",
    "max_pred_locks_per_transaction",
    "max_prepared_transactions",
    "max_stack_depth",
    "max_wal_size",
    "max_worker_processes",
    "min_dynamic_shared_memory",
    "min_wal_size",
    "old_snapshot_threshold",
    "parallel_leader_participation",
    "plan_cache_mode",
    "random_page_cost",
    "recursive_worktable_factor",
    "reserved_connections",
    "row_security",
    "search_path",
    "seq_page_cost",
    "shared_buffers",
    "standard_conforming_strings",
    "statement_timeout",
    "superuser_reserved_connections",
    "synchronize_seqscans",
    "synchronous_commit",
    "temp_buffers",
    "temp_file_limit",
    "timezone",
    "work_mem",
];

/// Beginnings of others.
const FAMILIES: [&str; 15] = [
    "autovacuum",
    "bgwriter_",
    "checkpoint_",
    "commit_",
    "cpu_",
    "effective_",
    "enable_",
    "geqo_",
    "jit_above_",
    "jit_inline_",
    "jit_optimize_",
    "lc_",
    "min_parallel_",
    "parallel_",
    "vacuum_",
];

/// Of the redo, of which some are about those who follow it.
const REDO: [&str; 13] = [
    "wal_buffers",
    "wal_compression",
    "wal_decode_buffer_size",
    "wal_init_zero",
    "wal_level",
    "wal_log_hints",
    "wal_recycle",
    "wal_skip_threshold",
    "wal_sync_method",
    "wal_writer_delay",
    "wal_writer_flush_after",
    "track_counts",
    "track_io_timing",
];

/// What a copy takes over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakenOver {
    /// Lines of a configuration.
    pub lines: Vec<String>,
    /// Names of settings that are left out.
    pub without: Vec<String>,
    /// Libraries that are left out.
    pub libraries_without: Vec<String>,
}

/// What a copy takes over of these settings (`name=value`) and these libraries.
pub(super) fn taken_over(settings: &[String], libraries: &[String]) -> TakenOver {
    let bare = libraries.iter().map(|name| name.trim().trim_matches('"'));
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        bare.filter(|name| !name.is_empty()).partition(|name| LIBRARIES.contains(name));
    let mut taken = TakenOver {
        libraries_without: unknown.into_iter().map(str::to_owned).collect(),
        ..TakenOver::default()
    };
    for setting in settings {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let name = name.to_lowercase();
        if is_known(&name, &known) {
            taken.lines.push(line(&name, value));
        } else if !is_replaced(&name) {
            taken.without.push(name);
        }
    }
    taken.lines.push(line("shared_preload_libraries", &known.join(",")));
    taken
}

/// Whether a setting is taken over: also those of a library that is, which hold no secret.
fn is_known(name: &str, libraries: &[&str]) -> bool {
    if let Some((library, _)) = name.split_once('.') {
        return libraries.contains(&library);
    }
    NAMES.contains(&name)
        || REDO.contains(&name)
        || FAMILIES.iter().any(|beginning| name.starts_with(beginning))
}

/// Whether the copy has one of its own in its place.
fn is_replaced(name: &str) -> bool {
    let own = [
        "config_file",
        "data_directory",
        "hba_file",
        "ident_file",
        "shared_preload_libraries",
        "unix_socket_directories",
        "unix_socket_permissions",
    ];
    own.contains(&name) || OFF.iter().any(|off| off.split('=').next() == Some(name))
}

/// A line of a configuration, whatever the value holds: a quote, a backslash, the end of a line.
fn line(name: &str, value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        match c {
            '\'' => text.push_str("''"),
            '\\' => text.push_str("\\\\"),
            c if c.is_ascii_control() => text.push_str(&format!("\\{:03o}", u32::from(c))),
            c => text.push(c),
        }
    }
    format!("{name} = '{text}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn quotes_backslashes_and_line_ends_are_written_so_that_they_are_read_back() {
        let written = line("search_path", "a\\b, \"it's\"\n\u{fc}");
        assert_eq!(written, "search_path = 'a\\\\b, \"it''s\"\\012\u{fc}'");
        assert_eq!(line("wal_level", ""), "wal_level = ''");
        // A value that ends the line, and begins another.
        assert!(!line("search_path", "x'\narchive_command = 'rm").contains('\n'));
    }

    #[test]
    fn only_libraries_that_are_known_to_be_harmless_are_loaded() {
        let libraries =
            strings(&["pg_stat_statements", " auto_explain", "pg_cron", "$libdir/x", "\"Y\"", ""]);
        let settings = strings(&["pg_stat_statements.max=10000", "cron.host=db7", "my.key=k"]);
        let taken = taken_over(&settings, &libraries);
        let expected = [
            "pg_stat_statements.max = '10000'",
            "shared_preload_libraries = 'pg_stat_statements,auto_explain'",
        ];
        assert_eq!(taken.lines, expected);
        assert_eq!(taken.libraries_without, ["pg_cron", "$libdir/x", "Y"]);
        assert_eq!(taken.without, ["cron.host", "my.key"]);
    }

    #[test]
    fn no_setting_with_a_secret_a_command_or_another_system_is_taken_over() {
        for secret in [
            "primary_conninfo",
            "archive_command",
            "restore_command",
            "archive_cleanup_command",
            "recovery_end_command",
            "ssl_passphrase_command",
            "ssl_key_file",
            "krb_server_keyfile",
            "primary_slot_name",
            "synchronous_standby_names",
            "listen_addresses",
            "recovery_target_name",
            "session_preload_libraries",
            "local_preload_libraries",
            "archive_library",
            "jit_provider",
            "dynamic_library_path",
            "oauth_validator_libraries",
            "log_directory",
            "syslog_ident",
            "temp_tablespaces",
            "stats_temp_directory",
            "wal_keep_size",
            "wal_receiver_status_interval",
            "vendor.licence_key",
            "a_setting_of_tomorrow",
        ] {
            let taken = taken_over(&strings(&[&format!("{secret}=Secr3t")]), &[]);
            assert_eq!(taken.lines, ["shared_preload_libraries = ''"], "{secret}");
            assert!(!format!("{taken:?}").contains("Secr3t"));
        }
        for off in OFF {
            let name = off.split('=').next().unwrap();
            assert!(!is_known(name, &[]) && is_replaced(name), "{off}");
        }
    }

    #[test]
    fn what_shapes_the_work_of_the_server_is_taken_over() {
        let settings = strings(&["shared_buffers=16384", "TimeZone=UTC", "wal_level=logical"]);
        let taken = taken_over(&settings, &[]);
        let expected = ["shared_buffers = '16384'", "timezone = 'UTC'", "wal_level = 'logical'"];
        assert_eq!(taken.lines[..3], expected);
        assert_eq!(taken.without, Vec::<String>::new());
    }
}
