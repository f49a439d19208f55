//! Oracle's reports: the same figures from every layout, hostile files refused. The reports here
//! are made up in the documented layouts; nothing in them was measured.

use tiersmith_awr::events::WaitClass;
use tiersmith_awr::import::{Imported, parse, read};
use tiersmith_awr::{Error, Interval, compare, render, report};

/// An AWR report of 19c in HTML, as the server writes it.
const HTML: &str = r#"<html lang="en"><head><title>AWR Report for DB: SHOP, Inst: shop1, Snaps: 100-101</title>
</head><body class="awr">
<h1 class="awr">WORKLOAD REPOSITORY report for</h1><p/>
<table border="0" width="600" class="tdiff"
summary="This table displays database instance information">
<tr><th class="awrbg" scope="col">DB Name</th><th>DB Id</th><th>Unique Name</th><th>Role</th>
<th>Edition</th><th>Release</th><th>RAC</th><th>CDB</th></tr>
<tr><td scope="row" class='awrnc'>SHOP</td><td align="right">1234567890</td><td>SHOP</td>
<td>PRIMARY</td><td>EE</td><td>19.0.0.0.0</td><td>NO</td><td>NO</td></tr></table>
<table border="0" summary="This table displays database instance information">
<tr><th>Instance</th><th>Inst Num</th><th>Startup Time</th><th>User Name</th>
<th>System Data Visible</th></tr>
<tr><td>shop1</td><td>1</td><td>01-Aug-26 08:00</td><td>SYS</td><td>YES</td></tr></table>
<table border="0" summary="This table displays host information">
<tr><th>Host Name</th><th>Platform</th><th>CPUs</th><th>Cores</th><th>Sockets</th>
<th>Memory (GB)</th></tr>
<tr><td>db1</td><td>Linux x86 64-bit</td><td>8</td><td>4</td><td>1</td><td>62.50</td></tr></table>
<table border="0" summary="This table displays snapshot information">
<tr><th></th><th>Snap Id</th><th>Snap Time</th><th>Sessions</th><th>Cursors/Session</th></tr>
<tr><td>Begin Snap:</td><td>100</td><td>24-Aug-26 10:00:00</td><td>50</td><td>1.5</td></tr>
<tr><td>End Snap:</td><td>101</td><td>24-Aug-26 10:10:00</td><td>52</td><td>1.5</td></tr>
<tr><td>Elapsed:</td><td>&#160;</td><td>10.00 (mins)</td><td>&#160;</td><td>&#160;</td></tr>
<tr><td>DB Time:</td><td>&#160;</td><td>33.33 (mins)</td><td>&#160;</td><td>&#160;</td></tr></table>
<h3 class="awr">Load Profile</h3>
<table border="0" summary="This table displays load profile"><tr><th></th><th>Per Second</th></tr>
<tr><td>DB Time(s):</td><td>3.3</td></tr></table>
<h3>Top 10 Foreground Events by Total Wait Time</h3>
<table border="0" summary="This table displays top 10 wait events by total wait time">
<tr><th>Event</th><th>Waits</th><th>Total Wait Time (sec)</th><th>Avg Wait</th><th>% DB time</th>
<th>Wait Class</th></tr>
<tr><td>log file sync</td><td>600,000</td><td>900</td><td>1.50ms</td><td>45.0</td><td>Commit</td>
</tr>
<tr><td>DB CPU</td><td>&#160;</td><td>500</td><td>&#160;</td><td>25.0</td><td>&#160;</td></tr>
</table>
<h3 class="awr">Time Model Statistics</h3>
<table border="0" summary="This table displays different time model statistics. For each statistic, time and % of DB time are displayed">
<tr><th>Statistic Name</th><th>Time (s)</th><th>% of  DB Time</th><th>% of Total CPU Time</th></tr>
<tr><td>DB CPU</td><td>500.00</td><td>25.00</td><td>90</td></tr>
<tr><td>DB time</td><td>2,000.00</td><td>&#160;</td><td>&#160;</td></tr></table>
<h3>Operating System Statistics</h3>
<table border="0" summary="This table displays operating systems statistics."><tr><th>Statistic</th>
<th>Value</th><th>End Value</th></tr>
<tr><td>BUSY_TIME</td><td>120,000</td><td></td></tr>
<tr><td>IDLE_TIME</td><td>360,000</td><td></td></tr>
<tr><td>IOWAIT_TIME</td><td>60,000</td><td></td></tr>
<tr><td>SYS_TIME</td><td>40,000</td><td></td></tr><tr><td>USER_TIME</td><td>80,000</td><td></td>
</tr></table>
<h3>Foreground Wait Events</h3>
<table border="0" summary="This table displays Foreground Wait Events and their wait statistics">
<tr><th>Event</th><th>Waits</th><th>%Time -outs</th><th>Total Wait Time (s)</th><th>Avg wait</th>
<th>Waits /txn</th><th>% DB time</th></tr>
<tr><td>log file sync</td><td>600,000</td><td></td><td>900</td><td>1.50ms</td><td>1.00</td>
<td>45.0</td></tr>
<tr><td>some new idle event</td><td>10</td><td></td><td>90,000</td><td>9.00 s</td><td>1.00</td>
<td></td></tr>
<tr><td>db file sequential read</td><td>1.2M</td><td></td><td>240</td><td>200.00us</td><td>2.00</td>
<td>12.0</td></tr></table>
<h3>Background Wait Events</h3>
<table border="0" summary="This table displays background wait events statistics">
<tr><th>Event</th><th>Waits</th><th>%Time -outs</th><th>Total Wait Time (s)</th><th>Avg wait</th>
<th>Waits /txn</th><th>% bg time</th></tr>
<tr><td>log file parallel write</td><td>300,000</td><td></td><td>270</td><td>900.00us</td>
<td>.5</td><td>60.0</td></tr></table>
<h3>SQL ordered by Elapsed Time</h3>
<table border="0" summary="This table displays top SQL by elapsed time">
<tr><th>Elapsed Time (s)</th><th>Executions</th><th>Elapsed Time per Exec (s)</th><th>%Total</th>
<th>%CPU</th><th>%IO</th><th>SQL Id</th><th>SQL Module</th><th>SQL Text</th></tr>
<tr><td>700.5</td><td>600,000</td><td>0.00</td><td>35</td><td>10</td><td>2</td><td>0abc</td>
<td>app</td><td>update t set a = 'secret' where id = 7</td></tr></table>
<h3>Instance Activity Stats</h3>
<table border="0" summary="This table displays Instance activity statistics."><tr><th>Statistic</th>
<th>Total</th><th>per Second</th><th>per Trans</th></tr>
<tr><td>user commits</td><td>600,000</td><td>1,000.00</td><td>1.00</td></tr>
<tr><td>redo size</td><td>1,200,000,000</td><td>2,000,000.00</td><td>2,000.00</td></tr></table>
<h3>IOStat by Filetype summary</h3>
<table border="0" summary="'Data' columns suffixed with M,G,T,P are in multiples of 1024 other columns suffixed with K,M,G,T,P are in multiples of 1000">
<tr><th>Filetype Name</th><th>Reads: Data</th><th>Reqs per sec</th><th>Data per sec</th>
<th>Writes: Data</th><th>Reqs per sec</th><th>Data per sec</th><th>Small Read</th>
<th>Large Read</th></tr>
<tr><td>Data File</td><td>9.2G</td><td>2000.00</td><td>15.7M</td><td>1.5G</td><td>300.00</td>
<td>2.6M</td><td>200.00us</td><td></td></tr></table>
<h3>Undo Segment Summary <script>alert(1)</script></h3>
<table border="0" summary="This table displays undo segment summary"><tr><th>Undo TS#</th></tr>
<tr><td>2</td></tr></table>
<h3>init.ora Parameters</h3>
<table border="0" summary="This table displays name and value of init.ora parameters">
<tr><th>Parameter Name</th><th>Begin value</th><th>End value (if different)</th></tr>
<tr><td>db_block_size</td><td>8192</td><td></td></tr></table></body></html>"#;

/// The same interval as 11.2 prints it in text.
const TEXT: &str = "
WORKLOAD REPOSITORY report for

DB Name         DB Id    Instance     Inst Num Startup Time    Release     RAC
------------ ----------- ------------ -------- --------------- ----------- ---
SHOP          1234567890 shop1               1 01-Aug-26 08:00 11.2.0.3.0  NO

Host Name        Platform                         CPUs Cores Sockets Memory(GB)
---------------- -------------------------------- ---- ----- ------- ----------
db1              Linux x86 64-bit                    8     4       1      62.50

              Snap Id      Snap Time      Sessions Curs/Sess
            --------- ------------------- -------- ---------
Begin Snap:       100 24-Aug-26 10:00:00        50       1.5
  End Snap:       101 24-Aug-26 10:10:00        52       1.5
   Elapsed:               10.00 (mins)
   DB Time:               33.33 (mins)

Top 5 Timed Foreground Events
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
                                                           Avg
                                                          wait   % DB
Event                                 Waits     Time(s)   (ms)   time Wait Class
------------------------------ ------------ ----------- ------ ------ ----------
log file sync                       600,000         900      2   45.0 Commit
DB CPU                                              500          25.0

Time Model Statistics                  DB/Inst: SHOP/shop1  Snaps: 100-101
-> Total time in database user-calls (DB Time): 2000s

Statistic Name                                       Time (s) % of DB Time
------------------------------------------ ------------------ ------------
DB CPU                                                  500.0         25.0
DB time                                               2,000.0
          -------------------------------------------------------------

Operating System Statistics            DB/Inst: SHOP/shop1  Snaps: 100-101

Statistic                                  Value        End Value
------------------------- ---------------------- ----------------
BUSY_TIME                                120,000
IDLE_TIME                                360,000
IOWAIT_TIME                               60,000
SYS_TIME                                  40,000
USER_TIME                                 80,000
          -------------------------------------------------------------

Foreground Wait Events                 DB/Inst: SHOP/shop1  Snaps: 100-101
-> s  - second, ms - millisecond -    1000th of a second

                                                             Avg
                                        %Time Total Wait    wait    Waits   % DB
Event                             Waits -outs   Time (s)    (ms)     /txn   time
-------------------------- ------------ ----- ---------- ------- -------- ------
log file sync                   600,000     0        900       2      1.0   45.0
db file sequential read       1,200,000     0        240       0      2.0   12.0
          -------------------------------------------------------------

Background Wait Events                 DB/Inst: SHOP/shop1  Snaps: 100-101

                                                             Avg
                                        %Time Total Wait    wait    Waits   % bg
Event                             Waits -outs   Time (s)    (ms)     /txn   time
-------------------------- ------------ ----- ---------- ------- -------- ------
log file parallel write         300,000     0        270       1      0.5   60.0
          -------------------------------------------------------------

Instance Activity Stats                DB/Inst: SHOP/shop1  Snaps: 100-101

Statistic                                     Total     per Second     per Trans
-------------------------------- ------------------ -------------- -------------
redo size                             1,200,000,000    2,000,000.0       2,000.0
user commits                                600,000        1,000.0           1.0
          -------------------------------------------------------------
";

/// And as Statspack prints it.
const STATSPACK: &str = "
STATSPACK report for

Database    DB Id    Instance     Inst Num  Startup Time   Release     RAC
~~~~~~~~ ----------- ------------ -------- --------------- ----------- ---
          1234567890 shop1               1 01-Aug-26 08:00 11.2.0.4.0  NO

Host Name             Platform                CPUs Cores Sockets   Memory (G)
~~~~ ---------------- ---------------------- ----- ----- ------- ------------
     db1              Linux x86 64-bit           8     4       1         62.5

Snapshot       Snap Id     Snap Time      Sessions Curs/Sess Comment
~~~~~~~~    ---------- ------------------ -------- --------- ------------------
Begin Snap:        100 24-Aug-26 10:00:00       50       1.5
  End Snap:        101 24-Aug-26 10:10:00       52       1.5
   Elapsed:      10.00 (mins) Av Act Sess:       3.3
   DB time:      33.33 (mins)      DB CPU:       8.33 (mins)

Time Model System Stats  DB/Inst: SHOP/shop1  Snaps: 100-101
-> Ordered by % of DB time desc, Statistic name

Statistic                                       Time (s) % DB time
----------------------------------- -------------------- ---------
DB CPU                                             500.0      25.0
DB time                                          2,000.0
          -------------------------------------------------------------
Foreground Wait Events  DB/Inst: SHOP/shop1  Snaps: 100-101
-> Only events with Total Wait Time (s) >= .001 are shown

                                                                    Avg          %Total
                                          %Tim Total Wait   wait    Waits   Call
Event                               Waits  out   Time (s)   (ms)     /txn   Time
---------------------------- ------------ ---- ---------- ------ -------- ------
log file sync                     600,000    0        900      2      1.0   45.0
db file sequential read         1,200,000    0        240      0      2.0   12.0
          -------------------------------------------------------------
Background Wait Events  DB/Inst: SHOP/shop1  Snaps: 100-101

                                                                    Avg          %Total
                                          %Tim Total Wait   wait    Waits   Call
Event                               Waits  out   Time (s)   (ms)     /txn   Time
---------------------------- ------------ ---- ---------- ------ -------- ------
log file parallel write           300,000    0        270      1      0.5   60.0
          -------------------------------------------------------------
Instance Activity Stats  DB/Inst: SHOP/shop1  Snaps: 100-101

Statistic                                      Total     per Second    per Trans
--------------------------------- ------------------ -------------- ------------
redo size                              1,200,000,000    2,000,000.0      2,000.0
user commits                                 600,000        1,000.0          1.0
          -------------------------------------------------------------
";

/// A report of a cluster of two.
const RAC: &str = r#"<h1>WORKLOAD REPOSITORY REPORT (RAC)</h1>
<table summary="Database Summary"><tr><th colspan=2>Database</th></tr>
<tr><th>Id</th><th>Name</th></tr><tr><td>99</td><td>SHOP</td></tr></table>
<table summary="Database Instances Included In Report. . Listed in order of instance number, I#">
<tr><th>I#</th><th>Instance</th><th>Host</th><th>Startup</th><th>Begin Snap Time</th>
<th>End Snap Time</th><th>Release</th><th>Elapsed Time(min)</th><th>DB time(min)</th></tr>
<tr><td>1</td><td>shop1</td><td>h1</td><td>01-Aug-26 08:00</td><td>24-Aug-26 10:00:00</td>
<td>24-Aug-26 10:10:00</td><td>19.0.0.0.0</td><td>10.00</td><td>20</td></tr>
<tr><td>2</td><td>shop2</td><td>h2</td><td>01-Aug-26 08:00</td><td>24-Aug-26 10:00:00</td>
<td>24-Aug-26 10:10:00</td><td>19.0.0.0.0</td><td>10.00</td><td>13</td></tr></table>
<h3>Time Model</h3><table summary="Time Model"><tr><th>I#</th><th>DB time (s)</th>
<th>DB CPU (s)</th></tr>
<tr><td>1</td><td>1,200.0</td><td>300.0</td></tr><tr><td>2</td><td>800.0</td><td>200.0</td></tr>
<tr><td>Sum</td><td>2,000.0</td><td>500.0</td></tr></table>
<h3>Foreground Wait Events (Global)</h3><table
summary="This table displays foreground wait event information">
<tr><th colspan=1>Wait</th><th colspan=2>Event</th></tr>
<tr><th>Class</th><th>Event</th><th>Waits</th><th>%Timeouts</th><th>Total(s)</th><th>Avg Wait</th>
<th>%DB time</th></tr>
<tr><td>Commit</td><td>log file sync</td><td>600,000</td><td></td><td>900.0</td><td>1.5ms</td>
<td>45</td></tr></table>
<h3>System Statistics</h3><table summary="System Statistics"><tr><th>I#</th><th>Logical Reads</th>
<th>Physical Reads</th><th>Txns</th></tr>
<tr><td>1</td><td>10</td><td>1</td><td>400,000</td></tr>
<tr><td>2</td><td>10</td><td>1</td><td>200,000</td></tr>
<tr><td>Sum</td><td>20</td><td>2</td><td>600,000</td></tr></table>"#;

fn imported(text: &str) -> Imported {
    parse(text, "here").unwrap()
}

fn interval(of: &Imported) -> Interval {
    Interval::between(&of.begin, &of.end).unwrap()
}

#[test]
fn the_same_interval_has_the_same_figures_in_every_layout() {
    let saved_again = HTML
        .replace("<td", "<TD")
        .replace("</td>", "")
        .replace("<table", "<TABLE")
        .replace("<th", "<TH")
        .replace("class=\"awr\"", "class=awr");
    for (text, kind) in [
        (HTML, "AWR report in HTML"),
        (saved_again.as_str(), "AWR report in HTML"),
        (TEXT, "AWR report in text"),
        (STATSPACK, "Statspack report"),
    ] {
        let imported = imported(text);
        assert_eq!(imported.kind, kind);
        let interval = interval(&imported);
        assert_eq!(interval.elapsed_ns, 600_000_000_000, "{kind}");
        assert_eq!(
            (interval.db_time_ns, interval.db_cpu_ns),
            (Some(2_000_000_000_000), Some(500_000_000_000)),
            "{kind}"
        );
        let wait = |name: &str, background: bool| {
            let found = interval
                .waits
                .iter()
                .find(|wait| wait.name == name && wait.background == background);
            found.map(|wait| (wait.class, wait.count, wait.total_ns))
        };
        assert_eq!(
            wait("log file sync", false),
            Some((WaitClass::Commit, 600_000, 900_000_000_000)),
            "{kind}"
        );
        assert_eq!(
            wait("db file sequential read", false),
            Some((WaitClass::UserIo, 1_200_000, 240_000_000_000)),
            "{kind}"
        );
        assert_eq!(
            wait("log file parallel write", true),
            Some((WaitClass::SystemIo, 300_000, 270_000_000_000)),
            "{kind}"
        );
        assert_eq!(
            (interval.counter("user commits"), interval.counter("redo size")),
            (Some(600_000), Some(1_200_000_000)),
            "{kind}"
        );
        let host = &interval.end.host;
        assert_eq!(
            (host.name.as_deref(), host.cpus.map(|cpus| cpus.threads)),
            (Some("db1"), Some(8)),
            "{kind}"
        );
        assert!(
            interval.end.source.instance.contains("shop1 started 01-Aug-26 08:00"),
            "{}",
            interval.end.source.instance
        );
        assert_eq!(interval.end.sessions, Some(52), "{kind}");
    }
    let both = compare(&interval(&imported(TEXT)), &interval(&imported(HTML)));
    assert!(render::text(&both).contains("log file sync"));
}

#[test]
fn idle_events_of_statspack_are_idle_although_their_names_are_cut_off() {
    let row = "db file sequential read         1,200,000    0        240      0      2.0   12.0\n";
    // As Statspack prints them: 28 characters of the name, no share of the calls' time.
    let idle = "wait for unread message on b       12,578    4        615     49      0.3\n\
                some other wait of nobody's        10,000    4     90,000   9000      0.3\n\
                SQL*Net message from client       466,947    0  5,175,208  11083      9.5\n";
    let report = STATSPACK.replace(row, &format!("{row}{idle}"));
    let row = "log file parallel write           300,000    0        270      1      0.5   60.0\n";
    let slave = "Space Manager: slave idle wa       18,762   99     93,463   4982      0.4\n";
    let interval = interval(&imported(&report.replace(row, &format!("{row}{slave}"))));
    for name in [
        "wait for unread message on b",
        "some other wait of nobody's",
        "SQL*Net message from client",
        "Space Manager: slave idle wa",
    ] {
        let wait = interval.waits.iter().find(|wait| wait.name == name);
        assert_eq!(wait.map(|wait| wait.class), Some(WaitClass::Idle), "{name}");
    }
    assert_eq!(interval.wait("log file sync").unwrap().class, WaitClass::Commit);
}

#[test]
fn what_html_has_besides_is_taken_and_what_is_unknown_is_listed() {
    let imported = imported(HTML);
    let interval = interval(&imported);
    assert_eq!(interval.end.source.settings.get("db_block_size").map(String::as_str), Some("8192"));
    let io = &interval.io[0];
    assert_eq!((io.file_class.as_str(), io.reads, io.writes), ("Data File", 1_200_000, 180_000));
    assert_eq!(io.write_bytes, 3 * 512 * 1024 * 1024);
    assert_eq!(interval.statements.rows[0].text, "update t set a = ? where id = ?");
    assert_eq!((interval.begin.sessions, interval.end.sessions), (Some(50), Some(52)));
    assert!(
        interval
            .host_cpu
            .is_some_and(|cpu| cpu.user_ns == 800_000_000_000 && cpu.iowait_ns == 600_000_000_000)
    );
    assert!(
        imported.unknown.iter().any(|section| section.starts_with("Undo Segment Summary")),
        "{:?}",
        imported.unknown
    );
    assert!(
        !imported.unknown.iter().any(|section| section.contains("Wait Events")),
        "{:?}",
        imported.unknown
    );
    assert_eq!(
        interval.wait("some new idle event").unwrap().class,
        WaitClass::Idle,
        "it has no share of DB time"
    );
    let html = render::html(&report(&interval));
    assert!(!html.contains("<script"));
    let findings = tiersmith_awr::findings::findings(&interval);
    assert!(
        findings.iter().any(|finding| finding.name == "Commits wait for redo"
            && finding.impact_percent == Some(45.0)),
        "{findings:?}"
    );
}

#[test]
fn a_cluster_is_the_sum_of_its_instances() {
    let imported = imported(RAC);
    let interval = interval(&imported);
    assert_eq!(interval.end.source.product, "Oracle RAC");
    assert_eq!(
        (interval.db_time_ns, interval.db_cpu_ns),
        (Some(2_000_000_000_000), Some(500_000_000_000))
    );
    assert_eq!((interval.transactions(), interval.elapsed_ns), (Some(600_000), 600_000_000_000));
    let sync = interval.wait("log file sync").unwrap();
    assert_eq!(
        (sync.count, sync.total_ns, sync.class),
        (600_000, 900_000_000_000, WaitClass::Commit)
    );
}

#[test]
fn what_is_no_report_is_refused_and_says_what_to_give() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.html");
    for text in [
        "",
        "hello",
        "<table><tr><td>1</td></tr></table>",
        "WORKLOAD REPOSITORY COMPARE PERIOD REPORT",
        "STATSPACK report for\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let error = read(&file).unwrap_err();
        assert!(matches!(error, Error::Import { .. }), "{error}");
        assert!(
            error.to_string().contains("x.html")
                && error.to_string().contains("Give an AWR report"),
            "{error}"
        );
    }
    assert!(read(dir.path()).is_err());
    assert!(read(&dir.path().join("missing")).is_err());
}

#[test]
fn damaged_reports_make_an_error_or_a_snapshot_and_no_panic() {
    let mut rng = fastrand::Rng::with_seed(8);
    for source in [HTML, TEXT, STATSPACK, RAC] {
        for _ in 0..150 {
            let mut text: Vec<char> = source.chars().collect();
            for _ in 0..rng.usize(1..30) {
                let at = rng.usize(0..text.len());
                match rng.u8(0..4) {
                    0 => text.truncate(at.max(1)),
                    1 => {
                        text[at] =
                            *rng.choice(&['<', '>', '-', ' ', '9', '\n', 'é', '"', ',']).unwrap()
                    }
                    2 => drop(text.remove(at)),
                    _ => text.insert(
                        at,
                        *rng.choice(&['<', '>', '-', ' ', '9', 'T', '&', ';']).unwrap(),
                    ),
                }
                if text.is_empty() {
                    text.push(' ');
                }
            }
            let text: String = text.into_iter().collect();
            if let Ok(imported) = parse(&text, "here")
                && let Ok(interval) = Interval::between(&imported.begin, &imported.end)
            {
                assert!(!render::text(&report(&interval)).contains("NaN"));
            }
        }
    }
}

/// A page of one report, with these tables in it.
fn page(tables: &str) -> String {
    format!(
        "<h1>WORKLOAD REPOSITORY report for</h1><table><tr><th></th><th>Snap Time</th></tr>\
         <tr><td>Begin Snap:</td><td>24-Aug-26 10:00:00</td>\
         </tr><tr><td>End Snap:</td><td>24-Aug-26 10:10:00</td></tr></table>\
         {tables}<p/>End of Report</body></html>"
    )
}

#[test]
fn a_figure_that_is_hidden_or_no_number_is_listed_and_no_zero() {
    let rows = [
        ("user commits", "1.2E+10"),
        ("redo size", "1,234.5K"),
        ("hidden one", "########"),
        ("blank one", ""),
        ("negative one", "-5"),
        ("european one", "1.234,5"),
        ("too large one", "9.9E+99"),
        ("twice", "1"),
        ("twice", "2"),
    ];
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><td>{name}</td><td>{value}</td></tr>"))
        .collect();
    let text = page(&format!("<table><tr><th>Statistic</th><th>Total</th></tr>{rows}</table>"));
    let imported = imported(&text);
    let of = interval(&imported);
    assert_eq!(
        (of.counter("user commits"), of.counter("redo size")),
        (Some(12_000_000_000), Some(1_234_500))
    );
    let [listed] = &imported.left_out[..] else { panic!("{:?}", imported.left_out) };
    for name in
        ["hidden one", "blank one", "negative one", "european one", "too large one", "twice"]
    {
        assert!(listed.contains(name), "{name} of {listed}");
        assert!(name == "twice" || of.counter(name).is_none(), "{name}");
    }
    assert!(imported.end.missing.contains(listed), "the report says so too");
}

#[test]
fn a_time_below_a_second_is_that_of_the_mean_and_a_cluster_s_redo_is_in_bytes() {
    let events = "<h3>Foreground Wait Events</h3><table><tr><th>Event</th><th>Waits</th>\
                  <th>Total Wait Time (s)</th><th>Avg wait</th></tr>\
                  <tr><td>log file sync</td><td>1,000</td><td>0</td><td>120.00us</td></tr>\
                  <tr><td>latch free</td><td>1,000</td><td>7</td><td>120.00us</td></tr>\
                  <tr><td>enq: CF - contention</td><td>1.2M</td><td>0</td><td>0.20us</td></tr>\
                  </table>";
    let redo = "<table><tr><th>I#</th><th>Logical Reads</th><th>Redo Size (k)</th><th>Txns</th>\
                </tr>\
                <tr><td>1</td><td>5</td><td>1,000.5</td><td>7</td></tr>\
                <tr><td>2</td><td>6</td><td>24</td><td>8</td></tr></table>";
    let of = interval(&imported(&page(&format!("{events}{redo}"))));
    let ns = |name: &str| of.wait(name).map(|wait| (wait.class, wait.total_ns));
    assert_eq!(ns("log file sync"), Some((WaitClass::Commit, 120_000_000)));
    assert_eq!(ns("latch free"), Some((WaitClass::Other, 7_000_000_000)), "the two do not fit");
    assert_eq!(ns("enq: CF - contention"), Some((WaitClass::Other, 0)), "a count that is rounded");
    assert_eq!((of.counter("redo size"), of.transactions()), (Some(1_025 * 1024), Some(15)));
}

#[test]
fn a_sum_of_instances_needs_all_of_them() {
    let hidden =
        RAC.replace("<td>800.0</td>", "<td>#####</td>").replace("<td>200,000</td>", "<td></td>");
    let imported = imported(&hidden);
    let of = interval(&imported);
    assert_eq!((of.db_time_ns, of.transactions()), (None, None));
    let listed = imported.left_out.join("\n");
    assert!(
        listed.contains("DB time (s) of all instances") && listed.contains("user commits"),
        "{listed}"
    );
}

#[test]
fn more_names_than_are_taken_are_counted_and_said() {
    let rows =
        |count: usize, row: &dyn Fn(usize) -> String| (0..count).map(row).collect::<String>();
    let statistics = rows(5001, &|n| format!("<tr><td>statistic {n}</td><td>{n}</td></tr>"));
    let events = rows(5001, &|n| format!("<tr><td>event {n}</td><td>{n}</td><td>1</td></tr>"));
    let parameters = rows(5001, &|n| format!("<tr><td>parameter{n}</td><td>{n}</td></tr>"));
    let text = page(&format!(
        "<table><tr><th>Statistic</th><th>Total</th></tr>{statistics}</table>\
         <h3>Foreground Wait Events</h3><table><tr><th>Event</th>\
         <th>Waits</th><th>Total Wait Time (s)</th></tr>{events}</table>\
         <table><tr><th>Parameter Name</th><th>Begin value</th></tr>\
         {parameters}</table>"
    ));
    let imported = imported(&text);
    assert_eq!((imported.end.counters.len(), imported.end.waits.len()), (5000, 5000));
    assert_eq!(imported.end.source.settings.len(), 5000);
    for what in ["a statistic behind", "an event behind", "a parameter behind"] {
        let line = imported.left_out.iter().find(|line| line.contains(what));
        assert!(
            line.is_some_and(|line| line.ends_with("(times: 1)")),
            "{what} of {:?}",
            imported.left_out
        );
    }
}

#[test]
fn a_value_goes_on_below_and_one_that_is_too_long_is_cut_and_said() {
    let rows = "<tr><td>control_files</td><td>/a/control01.ctl, </td></tr>\
                <tr><td></td><td>/b/control02.ctl</td></tr>";
    let long = "x".repeat(2001);
    let text = page(&format!(
        "<table><tr><th>Statistic</th><th>Total</th></tr><tr><td>user commits</td><td>1</td></tr>\
         </table>\
         <table><tr><th>Parameter Name</th><th>Begin value</th></tr>\
         {rows}<tr><td>long</td><td>{long}</td></tr></table>"
    ));
    let imported = imported(&text);
    let settings = &imported.end.source.settings;
    assert_eq!(settings["control_files"], "/a/control01.ctl,/b/control02.ctl");
    assert_eq!(settings["long"].len(), 2000);
    assert!(
        imported.left_out.iter().any(|line| line.contains("value that is too long")),
        "{:?}",
        imported.left_out
    );
}

#[test]
fn a_file_just_over_the_bound_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.html");
    let file = std::fs::File::create(&path).unwrap();
    // A hole: nothing is written to the disk.
    file.set_len((64 << 20) + 1).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("larger than any report"), "{error}");
}

#[test]
fn a_parameter_is_left_out_for_holding_a_password_and_not_for_its_name() {
    let text = page(
        "<table><tr><th>Statistic</th><th>Total</th></tr><tr><td>user commits</td><td>1</td></tr>\
         </table>\
         <table><tr><th>Parameter Name</th><th>Begin value</th></tr>\
         <tr><td>remote_login_passwordfile</td><td>EXCLUSIVE</td></tr></table>",
    );
    let plain = imported(&text);
    assert_eq!(plain.end.source.settings["remote_login_passwordfile"], "EXCLUSIVE");
    assert_eq!(plain.left_out, [""; 0]);
    let secret = imported(&text.replace("remote_login_passwordfile", "_keystore_password"));
    assert!(!secret.end.source.settings.contains_key("_keystore_password"));
    assert!(secret.left_out[0].contains("holds a password"), "{:?}", secret.left_out);
}

#[test]
fn a_class_is_the_one_that_is_printed_and_its_sum_is_oracle_s() {
    let of_rac = RAC.replace(
        "<td>Commit</td><td>log file sync</td>",
        "<td>Cluster</td><td>some new event</td><td>1,000</td><td></td><td>60.0</td><td>60ms</td>\
         <td>3</td></tr>\
         <tr><td>Scheduler</td><td>resmgr:x</td><td>100</td><td></td><td>5.0</td><td>50ms</td>\
         <td>1</td></tr>\
         <tr><td>Queueing</td><td>queue</td><td>100</td><td></td><td>5.0</td><td>50ms</td>\
         <td>1</td></tr>\
         <tr><td>Commit</td><td>log file sync</td>",
    );
    let of = interval(&imported(&of_rac));
    let class = |name: &str| of.wait(name).map(|wait| wait.class);
    assert_eq!(class("some new event"), Some(WaitClass::Cluster));
    assert_eq!(
        (class("resmgr:x"), class("queue")),
        (Some(WaitClass::Scheduler), Some(WaitClass::Queueing))
    );
    let text = render::text(&report(&of));
    assert!(text.contains("Cluster ") && text.contains("Scheduler "), "{text}");

    // A single instance: the classes have sums, which the listed events do not reach.
    let classes = "<h3>Foreground Wait Class</h3>\
         <table summary=\"This table displays foreground wait class statistics\">\
         <tr><th>Wait Class</th><th>Waits</th><th>%Time -outs</th><th>Total Wait Time (s)</th>\
         <th>Avg wait (ms)</th><th>%DB time</th></tr>\
         <tr><td>Commit</td><td>600,000</td><td></td><td>900</td><td>1.5</td><td>45.0</td></tr>\
         <tr><td>User I/O</td><td>1,500,000</td><td></td><td>300</td><td>0.2</td><td>15.0</td></tr>\
         <tr><td>DB CPU</td><td></td><td></td><td>500</td><td></td><td>25.0</td></tr></table>\
         <h3>Foreground Wait Events</h3>";
    let of = interval(&imported(&HTML.replace("<h3>Foreground Wait Events</h3>", classes)));
    let rest = of
        .wait("other events of class User I/O")
        .map(|wait| (wait.class, wait.count, wait.total_ns));
    assert_eq!(rest, Some((WaitClass::UserIo, 300_000, 60_000_000_000)));
    assert_eq!(of.wait("other events of class Commit"), None, "nothing is left of it");
}

#[test]
fn the_time_model_is_read_and_shares_of_background_waits_are_of_its_time() {
    let lines = "<tr><td>sql execute elapsed time</td><td>1,500.00</td><td>75.00</td><td></td></tr>\
         <tr><td>background elapsed time</td><td>540.00</td><td></td><td></td></tr>\
         <tr><td>DB CPU</td>";
    let single = imported(&HTML.replacen("<tr><td>DB CPU</td>", lines, 2).replacen(
        lines,
        "<tr><td>DB CPU</td>",
        1,
    ));
    let rac = imported(
        &RAC.replace(
            "<th>DB CPU (s)</th>",
            "<th>DB CPU (s)</th><th>SQL Exec Ela (s)</th><th>bg time (s)</th>",
        )
        .replace("<td>300.0</td>", "<td>300.0</td><td>1,000</td><td>500</td>")
        .replace("<td>200.0</td>", "<td>200.0</td><td>500</td><td>40</td>"),
    );
    for imported in [&single, &rac] {
        let of = interval(imported);
        assert_eq!(of.counter("time model: sql execute elapsed time"), Some(1_500_000_000_000));
        assert_eq!(of.counter("time model: background elapsed time"), Some(540_000_000_000));
        let report = report(&of);
        let csv = render::csv(&report);
        assert!(
            csv.contains("Time Model Statistics,sql execute elapsed time,% of DB Time,%,75"),
            "{csv}"
        );
        assert!(!csv.contains("Instance Activity Stats,time model"), "{csv}");
    }
    // 270 s of 540 s; of all background waits it would be the whole.
    let csv = render::csv(&report(&interval(&single)));
    assert!(
        csv.contains("Background Wait Events,log file parallel write,% bg time,%,50\r"),
        "{csv}"
    );
}

#[test]
fn figures_stand_as_oracle_prints_them_and_rules_of_ours_are_not_for_it() {
    let free = "<tr><td>free buffer waits</td><td>1,000</td><td></td><td>100</td><td>100.00ms</td>\
                <td>1.0</td><td>5.0</td></tr>\
                <tr><td>some new idle event</td>";
    let imported_one = imported(&HTML.replace("<tr><td>some new idle event</td>", free));
    let of = interval(&imported_one);
    assert!(!of.wait("free buffer waits").unwrap().is_inside_another());
    let made = report(&of);
    let (text, csv, html) = (render::text(&made), render::csv(&made), render::html(&made));
    assert!(!text.contains("inside other waits") && !text.contains("memory-mapped"), "{text}");
    assert!(csv.contains("Snap Time,as printed,2026-08-24 10:00:00"), "{csv}");
    assert!(
        !html.contains("UTC") && !html.contains("<th>Rows"),
        "no zone is printed, and no rows are"
    );
    // Oracle's own numbers of its snapshots.
    let printed = imported_one.end.printed.iter().find(|of| of.title == "Snapshot Information");
    let number = |row| printed.expect("as it is printed").cell(row, "Snap Id");
    assert_eq!((number("Begin Snap:"), number("End Snap:")), (Some("100"), Some("101")));
    // 360,000 of 480,000 hundredths of a second were idle, those that waited for disks among them.
    assert!(csv.contains("%Idle,%,75\r"), "{csv}");
    // Instants without seconds: the length is the one that is printed.
    let minutes = RAC
        .replace("10:00:00", "10:00")
        .replace("10:10:00", "10:10")
        .replace("<td>10.00</td>", "<td>10.47</td>");
    assert_eq!(interval(&imported(&minutes)).elapsed_ns, 628_000_000_000);
}

#[test]
fn a_report_whose_wait_events_are_not_read_says_so_first_of_all() {
    let none = page(
        "<table><tr><th>Statistic</th><th>Total</th></tr><tr><td>user commits</td><td>1</td></tr>\
         </table>",
    );
    let made = report(&interval(&imported(&none)));
    assert!(made.banners[0].starts_with("NO WAIT EVENTS"), "{:?}", made.banners);
    let with = report(&interval(&imported(HTML)));
    assert!(
        !with.banners.iter().any(|banner| banner.contains("NO WAIT EVENTS")),
        "{:?}",
        with.banners
    );
}

#[test]
fn a_file_that_ends_before_its_report_does_is_said_to() {
    let torn = |imported: &Imported| {
        imported.left_out.iter().any(|line| line.contains("ends before the report"))
    };
    let whole = [
        format!("{HTML}<p/>\nEnd of Report\n</body></html>\n"),
        format!("{TEXT}\nEnd of Report\n"),
        format!("{STATSPACK}\nEnd of Report ( sp_100_101.lst )\n\n"),
    ];
    for text in &whole {
        assert!(!torn(&imported(text)), "{:?}", imported(text).left_out);
        let half = text.split("Instance Activity Stats").next().unwrap();
        let imported = imported(half);
        assert!(torn(&imported), "{:?}", imported.left_out);
        assert!(render::text(&report(&interval(&imported))).contains("ends before the report"));
    }
}

#[test]
fn a_length_has_the_parts_of_a_second_that_rates_tell() {
    let of = |rate: &str| {
        let report = imported(&page(&format!(
            "<h3>Instance Activity Stats</h3><table><tr><th>Statistic</th><th>Total</th>\
             <th>per Second</th></tr><tr><td>redo size</td><td>1,000,000,000</td>\
             <td>{rate}</td></tr><tr><td>user commits</td><td>7</td><td>0.01</td></tr></table>"
        )));
        interval(&report).elapsed_ns as f64 / 1e9
    };
    let whole = of("");
    let rate = |seconds: f64| format!("{:.2}", 1e9 / seconds);
    assert_eq!(of(&rate(whole)), whole, "whole seconds are as good");
    assert!((of(&rate(whole + 0.4)) - whole - 0.4).abs() < 1e-3, "{whole}");
    assert_eq!(of(&rate(whole + 3.0)), whole, "that is no part of a second");
    assert_eq!(of("0.00"), whole);
}
