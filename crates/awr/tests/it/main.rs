//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod archive;
mod archive_postgres;
mod dashboards;
mod day;
mod findings;
mod fixture;
#[path = "../../../../fuzz/fuzz_targets/foreign/mod.rs"]
mod foreign;
mod hostile;
mod import;
mod joined;
mod live;
mod memory;
mod metrics;
mod metrics_endpoint;
mod openmetrics;
mod oracle_findings;
mod oracle_layouts;
mod oracle_text;
mod over_time;
mod page_chromium;
mod reports;
mod repository;
mod schema;
mod series;
mod servers;
mod servers_hostile;
mod servers_mariadb;
mod servers_pg_profile;
mod servers_postgres;
mod servers_redis;
mod servers_tls;
mod servers_versions;
mod situations;
mod snapshots;
mod tls_hostile;
