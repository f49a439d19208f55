//! The page in a real browser: headless Chromium, if there is one.
//!
//! A page is loaded, sorted by its own script and measured; it is drawn light, dark, on a phone and
//! as a printed document. The pictures are kept in the build directory under `check/pages`, and
//! their paths are printed. Nothing here asserts that something is fast.
//!
//! What is tested runs inside the page: the policy of the page lets no other script run, so the
//! test adds its own script to a copy of the page and the hash of it to the policy of that copy.
//! Everything else of the policy stays as it is.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::day::{Day, snapshots};
use crate::oracle_layouts;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};
use tiersmith_awr::{Interval, Timeline, compare, render, report};

/// A browser that hangs is ended after so long.
const HANG: Duration = Duration::from_secs(180);

/// The browser and its directory. Whatever it started ends with it.
struct Browser {
    program: &'static str,
    dir: tempfile::TempDir,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It leads a process group of its own: its helpers go with it.
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Browser {
    fn find() -> Option<Browser> {
        let works = |program: &&'static str| {
            let mut command = Command::new(program);
            command
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let Some(program) =
            ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)
        else {
            eprintln!(
                "skipped: the page in a browser, because neither chromium nor google-chrome is \
                 installed"
            );
            return None;
        };
        Some(Browser { program, dir: tempfile::tempdir().unwrap() })
    }

    /// Runs it on a page; what it wrote to its output and what to its log.
    fn run(&self, page: &Path, options: &[&str]) -> (String, String) {
        use std::os::unix::process::CommandExt as _;
        let (out, log) = (self.dir.path().join("out"), self.dir.path().join("log"));
        let mut command = Command::new(self.program);
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--disable-sync",
                "--no-default-browser-check",
                "--enable-logging=stderr",
                "--proxy-server=127.0.0.1:9",
            ])
            .arg(format!("--user-data-dir={}", self.dir.path().join("profile").display()))
            .args(options)
            .arg(format!("file://{}", page.display()))
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&log).unwrap())
            .process_group(0);
        let mut running = Running(command.spawn().unwrap());
        let began = Instant::now();
        let status = loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                break status;
            }
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(began.elapsed() < HANG, "the browser does not end: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        };
        drop(running);
        let read =
            |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let (out, log) = (read(&out), read(&log));
        assert!(status.success(), "{status}: {log}");
        (out, log)
    }

    fn page(&self, name: &str, html: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, html).unwrap();
        path
    }
}

/// Where pictures are kept: beside what was built, so that they can be looked at after the test.
fn pictures() -> PathBuf {
    let built = std::env::current_exe().unwrap();
    let target = built.ancestors().nth(3).unwrap();
    let dir = target.join("check/pages");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn interval(day: Day) -> Interval {
    let all = snapshots(day);
    Interval::between(&all[0], all.last().unwrap())
        .unwrap()
        .with_timeline(Timeline::of_snapshots(&all))
}

/// Presses the title of a column and writes down what the page then shows.
const PROBE: &str = r#"
(function () {
  var table = null;
  Array.prototype.forEach.call(document.querySelectorAll("table.sortable"), function (each) {
    if (each.caption.textContent === "SQL ordered by Elapsed Time") { table = each; }
  });
  var head = Array.prototype.filter.call(table.tHead.rows[0].cells, function (cell) {
    return cell.textContent.indexOf("Rows") === 0;
  })[0];
  function values() {
    return Array.prototype.map.call(table.tBodies[0].rows, function (row) {
      return row.cells[head.cellIndex].getAttribute("data-v");
    }).join(" ");
  }
  var said = { before: values(), tags: document.querySelectorAll("img,iframe,object,link,b").length };
  head.querySelector("button").click();
  said.once = values(); said.sort = head.getAttribute("aria-sort");
  head.querySelector("button").click();
  said.twice = values(); said.sort_twice = head.getAttribute("aria-sort");
  head.querySelector("button").click();
  said.thrice = values();
  head.querySelector("button").focus();
  said.focus = document.activeElement.tagName;
  said.ready_ms = Number(document.documentElement.getAttribute("data-ready"));
  said.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  said.alive = document.title.indexOf("dead") === -1;
  window.addEventListener("load", function () {
    var loaded = performance.getEntriesByType("navigation")[0];
    said.interactive_ms = Math.round(loaded.domInteractive);
    said.height = document.body.offsetHeight;
    said.laid_out_ms = Math.round(performance.now());
    said.resources = performance.getEntriesByType("resource").filter(function (entry) {
      return entry.name !== "https://127.0.0.1:9/x.png";
    }).length;
    document.documentElement.setAttribute("data-said", JSON.stringify(said));
  });
}());
"#;

/// A copy of the page with a script, allowed by its hash.
fn with_script(html: &str, before: &str, script: &str) -> String {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script.as_bytes()));
    let html = html.replacen("script-src ", &format!("script-src 'sha256-{hash}' "), 1);
    html.replacen("</body>", &format!("{before}<script>{script}</script></body>"), 1)
}

/// A copy of the page with another style, allowed by its hash.
fn with_style(html: &str, from: &str, to: &str) -> String {
    let style = html.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    assert!(style.contains(from), "the style has no {from}");
    let hash = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text));
    let changed = style.replacen(from, to, 1);
    html.replacen(style, &changed, 1).replacen(&hash(style), &hash(&changed), 1)
}

/// A copy of the page with the probe, and with a script that no policy allows.
fn with_probe(html: &str) -> String {
    let own = "<script>document.title = 'dead';</script>";
    with_script(html, &format!("{own}<img src=\"https://127.0.0.1:9/x.png\">"), PROBE)
}

/// What the page's script wrote down.
fn said(dom: &str, log: &str) -> serde_json::Value {
    let said = dom.split("data-said=\"").nth(1);
    let said = said.unwrap_or_else(|| panic!("the page's script did not run: {log}"));
    serde_json::from_str(&said.split('"').next().unwrap().replace("&quot;", "\"")).unwrap()
}

/// How wide a phone is.
const PHONE: u32 = 390;

/// Measures the page in its frame: what stands out of the window, and how many cells of the column
/// that a comparison is read for cannot be seen.
const MEASURE: &str = r#"
window.addEventListener("load", function () {
  var width = document.documentElement.clientWidth;
  var said = { width: width, page: document.documentElement.scrollWidth, out: [], hidden: [], seen: 0 };
  Array.prototype.forEach.call(document.querySelectorAll("body *"), function (each) {
    var box = each.getBoundingClientRect();
    if (box.width > 0 && box.right > width + 0.5 && !each.closest(".scroll, nav, pre, svg")) {
      said.out.push(each.tagName + "." + each.className + " " + each.textContent.slice(0, 40));
    }
  });
  Array.prototype.forEach.call(document.querySelectorAll("table"), function (table) {
    var cell = table.querySelector("tbody td.diff");
    if (!cell || table.getBoundingClientRect().width === 0) { return; }
    table.scrollIntoView();
    var box = cell.getBoundingClientRect();
    if (box.left >= 0 && box.right <= width + 0.5) { said.seen += 1; }
    else { said.hidden.push(table.caption.textContent); }
  });
  window.scrollTo(0, 0);
  parent.postMessage(JSON.stringify(said), "*");
});
"#;

/// A page with this one in a frame as wide as a phone: a window of a browser is never so narrow.
fn framed(page: &Path) -> String {
    format!(
        "<!DOCTYPE html><html><body style=\"margin:0\"><script>addEventListener('message', e => \
         document.documentElement.setAttribute('data-said', e.data));</script><iframe \
         style=\"border:0\" width=\"{PHONE}\" height=\"2400\" \
         src=\"file://{}\"></iframe></body></html>",
        page.display()
    )
}

#[test]
fn the_page_sorts_its_tables_and_lets_nothing_else_run_or_load() {
    let Some(browser) = Browser::find() else { return };
    let large = Day { minutes: 1_440, statements: 5_000, files: 10_000, ..Day::default() };
    let html = render::html(&report(&interval(large)));
    let page = browser.page("probe.html", &with_probe(&html));
    let (dom, log) = browser.run(&page, &["--dump-dom"]);
    let said = said(&dom, &log);
    let numbers = |key: &str| {
        said[key]
            .as_str()
            .unwrap()
            .split(' ')
            .map(|v| v.parse::<f64>().unwrap())
            .collect::<Vec<_>>()
    };
    let before = numbers("before");
    assert!(before.len() == 20, "{said}");
    let mut sorted = before.clone();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(numbers("twice"), sorted, "ascending");
    sorted.reverse();
    assert_eq!(numbers("once"), sorted, "descending first: figures");
    assert_eq!(numbers("thrice"), before, "as it was");
    assert_eq!(
        (said["sort"].as_str(), said["sort_twice"].as_str()),
        (Some("descending"), Some("ascending"))
    );
    assert_eq!(said["focus"], "BUTTON", "a key can press it");
    assert_eq!(said["alive"], true, "a script without its hash in the policy ran");
    assert_eq!(said["resources"], 0, "something else was asked for: {said}");
    assert_eq!(said["tags"], 1, "the test's own picture: {said}");
    assert!(said["wide"].as_f64().unwrap() <= 0.0, "wider than the window: {said}");
    // The browser says which two things the policy refused, and nothing else is wrong with the
    // page.
    let errors: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors.iter().all(|line| line.contains("Content Security Policy")), "{errors:#?}");
    eprintln!(
        "{} bytes; interactive after {} ms, sortable after {} ms, laid out and free for input \
         after {} ms in {}",
        html.len(),
        said["interactive_ms"],
        said["ready_ms"],
        said["laid_out_ms"],
        browser.program
    );
}

#[test]
fn the_page_has_no_error_of_its_own() {
    let Some(browser) = Browser::find() else { return };
    let first = interval(Day { minutes: 30, ..Day::default() });
    for (name, html) in [
        ("one.html", render::html(&report(&first))),
        ("two.html", render::html(&compare(&first, &first))),
    ] {
        let (dom, log) = browser.run(&browser.page(name, &html), &["--dump-dom"]);
        assert!(dom.contains("data-ready=\"") && dom.contains("aria-sort=\"none\""), "{log}");
        let errors: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

/// Pages of all kinds: of a database that is recorded, and of what is imported from Oracle, each
/// alone and compared.
fn kinds() -> Vec<(&'static str, String)> {
    let day = interval(Day { minutes: 60, ..Day::default() });
    let next = interval(Day { minutes: 90, ..Day::default() });
    let imported = |text: &str| {
        let read = tiersmith_awr::import::parse(text, "here").unwrap();
        Interval::between(&read.begin, &read.end).unwrap()
    };
    let text = imported(include_str!("../oracle_layouts/11.2-text.lst"));
    let [single, global] = [3, 4].map(|at: usize| {
        imported(&oracle_layouts::html(&oracle_layouts::made(oracle_layouts::LAYOUTS[at].1)))
    });
    vec![
        ("recorded", render::html(&report(&day))),
        ("recorded-compared", render::html(&compare(&day, &next))),
        ("oracle", render::html(&report(&single))),
        ("oracle-global", render::html(&report(&global))),
        ("oracle-text", render::html(&report(&text))),
        ("oracle-compared", render::html(&compare(&single, &text))),
    ]
}

#[test]
fn a_page_is_no_wider_than_a_phone_and_a_comparison_shows_its_differences_there() {
    let Some(browser) = Browser::find() else { return };
    let measured = |name: &str, html: &str| {
        let page = browser.page(&format!("{name}.html"), &with_script(html, "", MEASURE));
        let frame = browser.page(&format!("{name}-frame.html"), &framed(&page));
        let (dom, log) = browser.run(&frame, &["--virtual-time-budget=20000", "--dump-dom"]);
        said(&dom, &log)
    };
    for (name, html) in kinds() {
        let said = measured(name, &html);
        assert_eq!(said["width"], PHONE, "{name}: {said}");
        assert_eq!(said["out"], serde_json::json!([]), "{name}: out of the window: {said}");
        assert_eq!(said["page"], PHONE, "{name}: the page can be scrolled to the side: {said}");
        assert_eq!(said["hidden"], serde_json::json!([]), "{name}: %Diff is not seen: {said}");
        if name.ends_with("compared") {
            assert!(said["seen"].as_u64() > Some(5), "{name}: {said}");
            // A table that cannot be scrolled by itself is found to be too wide.
            let cells = "<td>wwwwwwwwwwwwwwwwwwww</td>".repeat(9);
            let wide = format!(
                "<table><caption>wide</caption><tbody><tr>{cells}<td \
                 class=\"figure\">1</td></tr></tbody></table></main>"
            );
            let said = measured(name, &html.replacen("</main>", &wide, 1));
            assert!(said["page"].as_u64() > Some(u64::from(PHONE)), "{name}: {said}");
            assert_ne!(said["out"], serde_json::json!([]), "{name}: {said}");
            // A column that does not stay in view is found to be hidden.
            let said = measured(name, &with_style(&html, "position: sticky; right: 0;", ""));
            assert_ne!(said["hidden"], serde_json::json!([]), "{name}: {said}");
        }
    }
}

#[test]
fn the_page_is_drawn_light_dark_narrow_and_on_paper() {
    let Some(browser) = Browser::find() else { return };
    let dir = pictures();
    for (kind, html) in kinds() {
        let page = browser.page(&format!("{kind}.html"), &html);
        let frame = browser.page(&format!("{kind}-frame.html"), &framed(&page));
        let dark = "--blink-settings=preferredColorScheme=0";
        let pictures: [(&str, &Path, &[&str]); 4] = [
            ("light", &page, &["--window-size=1200,2400"]),
            ("dark", &page, &["--window-size=1200,2400", dark]),
            ("phone", &frame, &["--window-size=500,2400"]),
            ("phone-dark", &frame, &["--window-size=500,2400", dark]),
        ];
        for (name, page, options) in pictures {
            let path = dir.join(format!("{kind}-{name}.png"));
            let shot = format!("--screenshot={}", path.display());
            browser.run(page, &[options, &[shot.as_str()]].concat());
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{}", path.display());
            eprintln!("picture: {}", path.display());
        }
        let paper = dir.join(format!("{kind}-paper.pdf"));
        let print = format!("--print-to-pdf={}", paper.display());
        browser.run(&page, &["--no-pdf-header-footer", &print]);
        assert!(std::fs::read(&paper).unwrap().starts_with(b"%PDF"));
        eprintln!("paper: {}", paper.display());
    }
}
