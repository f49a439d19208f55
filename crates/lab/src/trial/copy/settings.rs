//! What the server on a copy of PostgreSQL is told: what the original is told, as far as it is
//! about the work, and nothing that would let the copy act on anything but itself.
//!
//! A copy has everything that the original has, also what it does by itself: it would archive its
//! WAL over the original's, take a subscription's changes from the original, wait for standbys that
//! do not follow it, and run scheduled jobs a second time. None of the settings behind that are
//! taken over, and those that could come from elsewhere are told on the command line. Only what a
//! role or a database sets for its sessions overrides that: libraries among it are refused.
//!
//! Invariant: a library that is not known to keep to its own database is not loaded.
//! Deliberately absent: what the load itself calls.

use std::path::Path;

/// Settings of places, of archives, of replication, of logs and of encryption: the original's own.
/// One that ends in `_` stands for all that begin so.
const LEFT_OUT: [&str; 48] = [
    "archive_",
    "bonjour",
    "bonjour_name",
    "cluster_name",
    "config_file",
    "data_directory",
    "db_user_namespace",
    "event_source",
    "external_pid_file",
    "gss_",
    "hba_file",
    "hot_standby_feedback",
    "huge_pages",
    "ident_file",
    "krb_",
    "listen_addresses",
    "local_preload_libraries",
    "log_destination",
    "log_directory",
    "log_file_mode",
    "log_filename",
    "log_rotation_age",
    "log_rotation_size",
    "logging_collector",
    "max_logical_replication_workers",
    "max_wal_senders",
    "min_wal_size",
    "oauth_validator_libraries",
    "port",
    "primary_",
    "promote_trigger_file",
    "recovery_",
    "restore_command",
    "session_preload_libraries",
    "shared_preload_libraries",
    "ssl",
    "ssl_",
    "standby_slot_names",
    "stats_temp_directory",
    "sync_replication_slots",
    "synchronized_standby_slots",
    "synchronous_standby_names",
    "syslog_",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
    "wal_keep_segments",
    "wal_keep_size",
];
/// What the copy is told whatever the original is told: it listens to nobody but on its socket,
/// sends its changes nowhere, takes none from elsewhere, and waits for no standby.
const ALWAYS: [(&str, &str); 11] = [
    ("listen_addresses", ""),
    ("port", "5432"),
    ("unix_socket_permissions", "0700"),
    ("archive_mode", "off"),
    ("max_wal_senders", "0"),
    ("max_logical_replication_workers", "0"),
    ("synchronous_standby_names", ""),
    ("ssl", "off"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("cluster_name", "tiersmith trial copy"),
];
/// Libraries that do nothing but in the server that loads them. Others may run jobs by a schedule,
/// replicate, or call home.
const HARMLESS: [&str; 14] = [
    "auth_delay",
    "auto_explain",
    "passwordcheck",
    "pg_hint_plan",
    "pg_prewarm",
    "pg_qualstats",
    "pg_stat_kcache",
    "pg_stat_monitor",
    "pg_stat_statements",
    "pg_trgm",
    "pg_wait_sampling",
    "pgaudit",
    "plpgsql",
    "vector",
];
/// The setting of the libraries that a server loads when it starts.
const LIBRARIES: &str = "shared_preload_libraries";

/// What a server is told, one `name=value` a row. Its secrets may be among it (an archive command
/// has them at times), so it is kept nowhere but in the copy, and there without those.
pub(super) const QUESTION: &str = "SELECT name || '=' || setting FROM pg_settings \
     WHERE source IN ('configuration file', 'command line', 'environment variable', 'global') \
     AND context <> 'internal'";

/// Who may connect to the copy: whoever reaches its socket, whose directory only the server's
/// account may enter, and nobody to replicate.
pub(super) const HBA: &str = "local all all trust\n";

/// The configuration of the copy, from what the original answered.
pub(super) fn configuration(rows: &[String]) -> String {
    let mut text = "# Written by `tiersmith trial --on-copy`: what the original is told, without \
                    places,\n# archives, replication, logs and encryption.\n"
        .to_owned();
    for (name, value) in rows.iter().filter_map(|row| row.split_once('=')) {
        if !is_left_out(name) {
            text.push_str(&line(name, value));
        }
    }
    let (kept, _) = libraries(rows);
    text.push_str(&line(LIBRARIES, &kept.join(",")));
    // Pages that are reserved for the original would be missing.
    text.push_str(&line("huge_pages", "try"));
    text
}

/// The libraries that the original loads: those that the copy loads too, and those it does not.
pub(super) fn libraries(rows: &[String]) -> (Vec<String>, Vec<String>) {
    let given = rows.iter().find_map(|row| row.strip_prefix("shared_preload_libraries="));
    let names = given.unwrap_or_default().split(',').map(|name| name.trim().trim_matches('"'));
    let is_harmless = |name: &String| {
        let stem = Path::new(name.as_str()).file_stem().and_then(|stem| stem.to_str());
        stem.is_some_and(|stem| HARMLESS.contains(&stem))
    };
    names.filter(|name| !name.is_empty()).map(str::to_owned).partition(is_harmless)
}

/// The arguments of the server on the copy, whose socket is in `sockets`.
pub(super) fn arguments(sockets: &Path) -> Vec<String> {
    let sockets = ("unix_socket_directories", sockets.display().to_string());
    let all = ALWAYS.map(|(name, value)| (name, value.to_owned())).into_iter().chain([sockets]);
    all.flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}

fn is_left_out(name: &str) -> bool {
    LEFT_OUT
        .iter()
        .any(|left| if left.ends_with('_') { name.starts_with(left) } else { name == *left })
}

/// One line of a configuration file, whatever is in the value.
fn line(name: &str, value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return String::new();
    }
    let mut quoted = String::new();
    for letter in value.chars() {
        match letter {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            other => quoted.push(other),
        }
    }
    format!("{name} = '{quoted}'\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(all: &[&str]) -> Vec<String> {
        all.iter().map(|row| (*row).to_owned()).collect()
    }

    #[test]
    fn what_would_let_a_copy_act_on_anything_else_is_not_taken_over() {
        let told = configuration(&rows(&[
            "archive_command=cp %p /archive/%f",
            "archive_library=basic_archive",
            "primary_conninfo=host=primary password=hunter2",
            "restore_command=cp /archive/%f %p",
            "recovery_target_time=now",
            "synchronous_standby_names=*",
            "ssl=on",
            "ssl_key_file=/etc/key",
            "ssl_passphrase_command=echo hunter2",
            "data_directory=/var/lib/postgresql/15/main",
            "hba_file=/etc/postgresql/pg_hba.conf",
            "external_pid_file=/run/postgresql/15.pid",
            "stats_temp_directory=/run/postgresql/stats",
            "log_directory=/var/log/postgresql",
            "listen_addresses=*",
            "unix_socket_directories=/run/postgresql",
            "sync_replication_slots=on",
            "shared_preload_libraries=pg_stat_statements, pg_cron,citus",
            "max_logical_replication_workers=4",
            "shared_buffers=16384",
            "full_page_writes=on",
            "log_min_duration_statement=100",
        ]));
        for line in told.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(' ').next().unwrap();
            let own = [
                "shared_buffers",
                "full_page_writes",
                "log_min_duration_statement",
                "shared_preload_libraries",
                "huge_pages",
            ];
            assert!(own.contains(&name), "{line}");
        }
        assert!(told.contains("shared_buffers = '16384'\n") && !told.contains("hunter2"), "{told}");
        assert!(told.contains("shared_preload_libraries = 'pg_stat_statements'\n"), "{told}");
        assert!(told.contains("full_page_writes = 'on'\n"), "{told}");
        let arguments = arguments(Path::new("/srv/copy/run"));
        for never in [
            "listen_addresses=",
            "archive_mode=off",
            "max_wal_senders=0",
            "max_logical_replication_workers=0",
            "synchronous_standby_names=",
            "unix_socket_directories=/srv/copy/run",
        ] {
            assert!(arguments.iter().any(|word| word == never), "{never}");
        }
    }

    #[test]
    fn a_library_that_is_not_known_to_keep_to_itself_is_not_loaded() {
        let (kept, dropped) = libraries(&rows(&[
            "shared_preload_libraries=\"$libdir/auto_explain\", pg_cron , repmgr,,pgaudit.so",
        ]));
        assert_eq!(kept, ["$libdir/auto_explain", "pgaudit.so"]);
        assert_eq!(dropped, ["pg_cron", "repmgr"]);
        assert_eq!(libraries(&[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn no_value_ends_its_line() {
        assert_eq!(
            line("a.b", "it's \\ x\narchive_mode = on"),
            "a.b = 'it''s \\\\ x\\narchive_mode = on'\n"
        );
        assert_eq!(line("a\nb", "x"), "");
        assert_eq!(line("", "x"), "");
    }
}
