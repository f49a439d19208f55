//! What a PostgreSQL is asked for at each snapshot: the queries, and what is lost without an
//! answer.
//!
//! Each answers rows of JSON, so that a column that a version does not have is an absent field.
//! Names are of the system's catalogue; no table of a user is locked or read.
//!
//! Deliberately absent: statements and plans, whose extensions may lie in any schema (`mod.rs`,
//! `plans.rs`), sessions (`mod.rs`).

/// A view, what it needs, and what to say if it does not answer.
pub(super) struct View {
    pub(super) name: &'static str,
    /// The first version that has it.
    pub(super) since: u64,
    pub(super) query: &'static str,
    /// What is lost without it, and what would give it.
    pub(super) without: &'static str,
}

pub(super) const VIEWS: [View; 16] = [
    View {
        name: "identity",
        since: 0,
        query: "SELECT jsonb_build_object('started', pg_postmaster_start_time(), 'database', \
                current_database(), \
                'version', current_setting('server_version'), 'redo', CASE WHEN \
                pg_is_in_recovery() THEN NULL ELSE \
                pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') END, 'sessions', (SELECT \
                count(*) FROM pg_stat_activity \
                WHERE backend_type = 'client backend'), 'superuser', pg_has_role(current_user, \
                'pg_read_all_stats', 'USAGE'))::text",
        without: "the start time of the server",
    },
    View {
        name: "system",
        since: 0,
        query: "SELECT jsonb_build_object('id', system_identifier)::text FROM pg_control_system()",
        without: "the system identifier; GRANT EXECUTE ON FUNCTION pg_control_system() gives it",
    },
    View {
        name: "database",
        since: 0,
        query: "SELECT to_jsonb(s)::text FROM pg_stat_database s",
        without: "pg_stat_database",
    },
    View {
        name: "bgwriter",
        since: 0,
        query: "SELECT to_jsonb(s)::text FROM pg_stat_bgwriter s",
        without: "pg_stat_bgwriter",
    },
    View {
        name: "checkpointer",
        since: 170_000,
        query: "SELECT to_jsonb(s)::text FROM pg_stat_checkpointer s",
        without: "pg_stat_checkpointer",
    },
    View {
        name: "wal",
        since: 140_000,
        query: "SELECT to_jsonb(s)::text FROM pg_stat_wal s",
        without: "pg_stat_wal",
    },
    View {
        name: "io",
        since: 160_000,
        query: "SELECT to_jsonb(s)::text FROM pg_stat_io s",
        without: "pg_stat_io",
    },
    View {
        name: "settings",
        since: 0,
        // What is set for this session alone says nothing of the sessions that are recorded.
        query: "SELECT jsonb_build_object('name', name, 'value', CASE WHEN source = 'session' THEN \
                reset_val \
                WHEN source IN ('database', 'user', 'database user', 'client') \
                THEN current_setting(name) || ' (for this session alone)' ELSE \
                current_setting(name) END)::text \
                FROM pg_settings WHERE name IN \
                ('shared_buffers','effective_cache_size','work_mem','maintenance_work_mem', \
                'wal_buffers','max_wal_size','min_wal_size','checkpoint_timeout', \
                'checkpoint_completion_target','full_page_writes','wal_compression', \
                'synchronous_commit','fsync','wal_sync_method','commit_delay','commit_siblings', \
                'track_io_timing','track_wal_io_timing','max_connections','random_page_cost', \
                'effective_io_concurrency','io_method','huge_pages','block_size','wal_block_size', \
                'data_checksums','autovacuum','wal_level','jit','shared_preload_libraries')",
        without: "pg_settings",
    },
    // Counts from the catalogue's rows, sizes as the last VACUUM or ANALYZE saw them: no table is
    // locked or opened for it.
    View {
        name: "relations",
        since: 0,
        query: "SELECT jsonb_build_object('oid', c.oid, 'name', n.nspname || '.' || c.relname, \
                'pages', greatest(c.relpages, 0), \
                'read', c.pages_read)::text FROM (SELECT oid, relname, relnamespace, relpages, \
                pg_stat_get_blocks_fetched(oid) - pg_stat_get_blocks_hit(oid) AS pages_read FROM \
                pg_class \
                WHERE relkind IN ('r', 'i', 't', 'm') ORDER BY 5 DESC, 1 LIMIT 100) c \
                JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.pages_read > 0",
        without: "reads by table",
    },
    // Those that were scanned most and those with most dead rows, as many of each. The catalogue's
    // tables are left out before they are ranked, or they would take the places of the users'.
    View {
        name: "tables",
        since: 0,
        query: "SELECT jsonb_build_object('oid', t.oid, 'name', n.nspname || '.' || t.relname, \
                'pages', greatest(t.relpages, 0), 'scans', pg_stat_get_numscans(t.oid), 'scanned', \
                t.scanned, \
                'live', pg_stat_get_live_tuples(t.oid), 'dead', t.dead, \
                'by_index', (SELECT sum(pg_stat_get_numscans(i.indexrelid)) FROM pg_index i WHERE \
                i.indrelid = t.oid), \
                'changed', pg_stat_get_tuples_inserted(t.oid) + pg_stat_get_tuples_updated(t.oid) \
                + pg_stat_get_tuples_deleted(t.oid), \
                'vacuums', pg_stat_get_vacuum_count(t.oid) + pg_stat_get_autovacuum_count(t.oid), \
                'autovacuums', pg_stat_get_autovacuum_count(t.oid), \
                'analyzes', pg_stat_get_analyze_count(t.oid) + \
                pg_stat_get_autoanalyze_count(t.oid), \
                'updated', pg_stat_get_tuples_updated(t.oid), 'hot', \
                pg_stat_get_tuples_hot_updated(t.oid), \
                'vacuumed', floor(extract(epoch FROM greatest(pg_stat_get_last_vacuum_time(t.oid), \
                pg_stat_get_last_autovacuum_time(t.oid)))))::text \
                FROM (SELECT *, row_number() OVER (ORDER BY scanned DESC, oid) AS by_scans, \
                row_number() OVER (ORDER BY dead DESC, oid) AS by_dead FROM (SELECT oid, relname, \
                relnamespace, relpages, \
                pg_stat_get_tuples_returned(oid) AS scanned, pg_stat_get_dead_tuples(oid) AS dead \
                FROM pg_class WHERE relkind IN ('r', 'm') AND relnamespace NOT IN (SELECT oid FROM \
                pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))) c) t \
                JOIN pg_namespace n ON n.oid = t.relnamespace \
                WHERE t.by_scans <= 50 OR t.by_dead <= 50",
        without: "scans and dead rows by table",
    },
    // Used most, and the largest of those that nobody used.
    View {
        name: "indexes",
        since: 0,
        query: "SELECT jsonb_build_object('oid', i.oid, 'name', n.nspname || '.' || i.relname, \
                'table', t.relname, \
                'pages', greatest(i.relpages, 0), 'scans', i.scans, 'rows', \
                pg_stat_get_tuples_returned(i.oid), \
                'valid', x.indisvalid, 'needed', x.indisunique OR x.indisexclusion OR \
                x.indisreplident)::text \
                FROM (SELECT *, row_number() OVER (ORDER BY scans DESC, oid) AS by_scans, \
                row_number() OVER (ORDER BY scans > 0, relpages DESC, oid) AS by_size FROM \
                (SELECT oid, relname, relnamespace, relpages, pg_stat_get_numscans(oid) AS scans \
                FROM pg_class \
                WHERE relkind = 'i' AND relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE \
                nspname IN \
                ('pg_catalog', 'pg_toast', 'information_schema'))) c) i \
                JOIN pg_index x ON x.indexrelid = i.oid JOIN pg_class t ON t.oid = x.indrelid \
                JOIN pg_namespace n ON n.oid = i.relnamespace WHERE i.by_scans <= 50 OR i.by_size \
                <= 50",
        without: "use of indexes",
    },
    View {
        name: "roles",
        since: 0,
        query: "SELECT jsonb_build_object('oid', oid, 'name', rolname)::text FROM \
                (SELECT oid, rolname FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY oid LIMIT 500) \
                r",
        without: "names of users",
    },
    View {
        name: "freezing",
        since: 0,
        query: "SELECT jsonb_build_object('oid', oid, 'age', age(datfrozenxid))::text FROM \
                pg_database",
        without: "how many transactions ago databases were frozen",
    },
    View {
        name: "horizon",
        since: 0,
        query: "SELECT jsonb_build_object('vacuums', (SELECT count(*) FROM \
                pg_stat_progress_vacuum), \
                'transaction_s', (SELECT max(extract(epoch FROM now() - xact_start)) FROM \
                pg_stat_activity \
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()), \
                'prepared_s', (SELECT max(extract(epoch FROM now() - prepared)) FROM \
                pg_prepared_xacts), \
                'standby_s', CASE WHEN pg_is_in_recovery() THEN CASE WHEN \
                pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() \
                THEN 0 ELSE extract(epoch FROM now() - pg_last_xact_replay_timestamp()) END \
                END)::text",
        without: "how old the oldest transaction is",
    },
    View {
        name: "standbys",
        since: 0,
        query: "SELECT jsonb_build_object('id', s.pid || ' since ' || s.backend_start, 'name', \
                s.application_name, \
                'address', host(s.client_addr), 'state', s.state, 'sync', s.sync_state, \
                'sent', pg_wal_lsn_diff(l.at, s.sent_lsn), 'behind', pg_wal_lsn_diff(l.at, \
                s.replay_lsn), \
                'write', extract(epoch FROM s.write_lag) * 1000, 'flush', extract(epoch FROM \
                s.flush_lag) * 1000, \
                'replay', extract(epoch FROM s.replay_lag) * 1000)::text FROM pg_stat_replication \
                s, \
                (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE \
                pg_current_wal_lsn() END AS at) l",
        without: "how far standbys are behind",
    },
    View {
        name: "slots",
        since: 0,
        query: "SELECT jsonb_build_object('name', s.slot_name, 'type', s.slot_type, 'active', \
                s.active, \
                'status', s.wal_status, 'kept', pg_wal_lsn_diff(l.at, s.restart_lsn))::text FROM \
                pg_replication_slots s, \
                (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE \
                pg_current_wal_lsn() END AS at) l",
        without: "redo that is kept for replication slots",
    },
];
