//! Processors: frequency governors, and the priority of who writes the log.
//!
//! PostgreSQL and MariaDB have no log writer to prefer: each session writes the log when it
//! commits. Who does have one is MySQL 8 (threads `ib_log_*`), and every home that is attached: its
//! daemon.

use super::{Check, Host};

/// Of a minute, the share in which somebody waited for a processor, from which priorities matter.
const WAITED_PCT: f64 = 10.0;
/// Threads that write a log for others. The kernel keeps 15 bytes of a name.
const LOG_WRITERS: [&str; 2] = ["ib_log_", "tiersmith-fuse"];
/// Servers whose sessions write the log themselves.
const SERVERS: [&str; 5] = ["postgres", "mariadbd", "mysqld", "redis-server", "valkey-server"];

pub(super) fn checks(host: &Host<'_>) -> Vec<Check> {
    vec![governor(host), log_writer(host)]
}

fn governor(host: &Host<'_>) -> Check {
    let check = Check::new(
        "cpu-governor",
        "performance",
        "A processor that clocks down while it waits for a commit needs time to clock up again: \
         latencies \
         then tell more about the governor than about the storage.",
    );
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    let cpus = host.names("sys/devices/system/cpu").into_iter().filter(is_cpu);
    let governor =
        |cpu: String| host.text(&format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"));
    let all: Vec<String> = cpus.filter_map(governor).collect();
    let others: Vec<&String> = all.iter().filter(|word| *word != "performance").collect();
    match (all.len(), others.first()) {
        (0, _) => check
            .unknown("the kernel does not choose the frequency here, as in most virtual machines"),
        (cpus, None) => check.good(format!("performance, on {cpus} processors")),
        (cpus, Some(word)) => check.mend(
            format!("{word}, on {} of {cpus} processors", others.len()),
            "cpupower frequency-set -g performance",
        ),
    }
}

/// A thread that a commit waits for.
struct Writer {
    /// Process or thread, as renice takes it.
    id: String,
    name: String,
    nice: i64,
    /// It has a real-time policy.
    real_time: bool,
    /// Others wait for it, and it is not the session itself.
    writes_for_others: bool,
}

fn log_writer(host: &Host<'_>) -> Check {
    let check = Check::new(
        "log-writer-priority",
        "not below that of others; above it when processors are short",
        "Every commit waits for the thread that writes the log. On processors near saturation it \
         waits \
         for its turn first, and the fast storage idles.",
    );
    let writers = writers(host);
    let Some(first) = writers.first() else {
        return check.unknown("no database and no attached home that runs is visible");
    };
    let behind: Vec<&Writer> = writers.iter().filter(|writer| writer.nice > 0).collect();
    if let Some(worst) = behind.first() {
        let is = match behind.len() {
            1 => format!("{} has nice {}", worst.name, worst.nice),
            all => format!("{}, the first of {all}, has nice {}", worst.name, worst.nice),
        };
        return check.mend(is, renice(0, &behind));
    }
    let waited = waited_pct(host);
    let short = waited.is_some_and(|pct| pct >= WAITED_PCT);
    let wait_their_turn: Vec<&Writer> =
        writers.iter().filter(|w| w.writes_for_others && w.nice == 0 && !w.real_time).collect();
    let found = waited.map_or_else(
        || "the kernel does not say how long they wait for processors".to_owned(),
        |pct| format!("somebody waited for a processor in {pct:.0} % of the last minute"),
    );
    match wait_their_turn.first() {
        Some(one) if short => {
            let is = format!("{} has nice 0 and {found}", one.name);
            check.mend(is, renice(-5, &wait_their_turn))
        }
        _ => check.good(format!("{} has nice {}; {found}", first.name, first.nice)),
    }
}

/// The command; of many processes it names the first twenty.
fn renice(nice: i64, writers: &[&Writer]) -> String {
    let ids: Vec<&str> = writers.iter().take(20).map(|writer| writer.id.as_str()).collect();
    format!("renice -n {nice} -p {}", ids.join(" "))
}

fn writers(host: &Host<'_>) -> Vec<Writer> {
    let numbers = |dir: &str| -> Vec<String> {
        host.names(dir).into_iter().filter(|name| name.parse::<u32>().is_ok()).collect()
    };
    let mut found = Vec::new();
    for pid in numbers("proc") {
        let name = host.text(&format!("proc/{pid}/comm")).unwrap_or_default();
        let is_server = SERVERS.contains(&name.as_str());
        if is_server {
            found.extend(writer(host, &format!("proc/{pid}"), &pid, name.clone(), false));
        }
        // Only these have threads that write for others.
        if !is_server && !name.starts_with("tiersmith") {
            continue;
        }
        for thread in numbers(&format!("proc/{pid}/task")) {
            let dir = format!("proc/{pid}/task/{thread}");
            let name = host.text(&format!("{dir}/comm")).unwrap_or_default();
            if LOG_WRITERS.iter().any(|writer| name.starts_with(writer)) {
                found.extend(writer(host, &dir, &thread, name, true));
            }
        }
    }
    found
}

fn writer(
    host: &Host<'_>,
    dir: &str,
    id: &str,
    name: String,
    writes_for_others: bool,
) -> Option<Writer> {
    let stat = host.text(&format!("{dir}/stat"))?;
    // The name in parentheses may hold anything. Fields are counted from 1 in proc(5); the state is
    // 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    let real_time = field(41).is_some_and(|policy| policy == 1 || policy == 2);
    Some(Writer { id: id.into(), name, nice: field(19)?, real_time, writes_for_others })
}

/// `some avg60` of /proc/pressure/cpu.
fn waited_pct(host: &Host<'_>) -> Option<f64> {
    let text = host.text("proc/pressure/cpu")?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::recorded::Recorded;

    const BUSY: &str = "some avg10=40.00 avg60=35.12 avg300=20.00 total=1\nfull avg10=0.00 \
                        avg60=0.00 \
                        avg300=0.00 total=0\n";

    #[test]
    fn a_governor_that_saves_power_is_to_be_mended() {
        let machine = Recorded::sound();
        machine.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        let ill = machine.only_ill("cpu-governor");
        assert_eq!(ill.is, "powersave, on 1 of 2 processors");
        assert_eq!(ill.mend.as_deref(), Some("cpupower frequency-set -g performance"));
        machine.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn a_server_that_gives_way_to_others_is_to_be_mended() {
        let machine = Recorded::sound();
        machine.process(201, "postgres", 10);
        machine.process(202, "postgres", 10);
        let ill = machine.only_ill("log-writer-priority");
        assert_eq!(ill.is, "postgres, the first of 2, has nice 10");
        assert_eq!(ill.mend.as_deref(), Some("renice -n 0 -p 201 202"));
    }

    #[test]
    fn the_daemon_of_a_home_is_to_come_first_when_processors_are_short() {
        let machine = Recorded::sound();
        machine.process(400, "tiersmith", 0);
        machine.thread(400, 402, "tiersmith-fuse-", 0);
        machine.thread(400, 403, "control", 0);
        assert_eq!(machine.examine().to_mend, 0);
        machine.put("proc/pressure/cpu", BUSY);
        let ill = machine.only_ill("log-writer-priority");
        assert!(ill.is.contains("nice 0") && ill.is.contains("35 %"), "{ill:#?}");
        assert_eq!(ill.mend.as_deref(), Some("renice -n -5 -p 402"));
        machine.thread(400, 402, "tiersmith-fuse-", -5);
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn log_writers_of_mysql_are_found_by_their_threads() {
        let machine = Recorded::sound();
        machine.process(500, "mysqld", 0);
        machine.thread(500, 501, "ib_log_writer", 0);
        machine.thread(500, 502, "ib_log_flush", 0);
        machine.put("proc/pressure/cpu", BUSY);
        let ill = machine.only_ill("log-writer-priority");
        assert_eq!(ill.mend.as_deref(), Some("renice -n -5 -p 501 502"));
    }

    /// Each session writes the log itself: to prefer all of them would prefer none.
    #[test]
    fn sessions_that_write_the_log_themselves_are_left_alone_on_a_busy_machine() {
        let machine = Recorded::sound();
        machine.process(201, "postgres", 0);
        machine.put("proc/pressure/cpu", BUSY);
        assert_eq!(machine.examine().to_mend, 0);
    }
}
