//! Looks at a tier at rest: does every invariant of the format hold?
//!
//! A second reader: it shares no decoder with the server, only the page in [`crate::format`]. It
//! never writes. What the log says is applied in memory.
//!
//! | number | invariant |
//! |---|---|
//! | 1 | one superblock at least is whole, and both say the same if both are |
//! | 2 | the unit table covers the heap: every unit is free, in one slab, or in one run |
//! | 3 | every slot and run that something refers to is in use, and by nothing else |
//! | 4 | every slot and run that is in use is referred to |
//! | 5 | the bytes in use are the sum of the slots and runs in use |
//! | 6 | every index word leads to an entry whose key belongs into its bucket, once |
//! | 7 | keys, expiring keys and elements are as many as their database or node says |
//! | 8 | every entry has its checksum |
//! | 9 | every node of a sequence is one level below its parent, and has the elements that it says |
//! | 10 | the sequence of a sorted set has the entries of its index, each once, in order |
//! | 11 | the former name of the stream ends at its position or before |
//! | 12 | a stream's IDs ascend; its length, its first ID and its last block's rows are as it says |
//! | 13 | groups and consumers are in order; what is pending for a group is so for one of its consumers |
//! | 14 | a library of functions is a string that does not expire |

mod stream;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use tiersmith_pmem::{Access, Mapping, OpenOptions, hash_bytes};

use crate::error::Error;

/// At most so many findings are kept.
const FINDINGS_MAX: usize = 100;
const UNIT: u64 = 65536;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sentences, each with the number of the invariant that does not hold.
    pub findings: Vec<String>,
    /// Findings beyond those that are kept.
    pub more: u64,
    /// Keys by database.
    pub keys: Vec<u64>,
    /// Libraries of functions.
    pub libraries: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes of the heap.
    pub size: u64,
    /// Whether a record of the log was still to be applied.
    pub commits: u64,
    /// The data are a copy, of a primary's or a dump, of which a part is missing.
    pub incomplete: bool,
}

impl Report {
    /// Whether every invariant holds.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, invariant: u8, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(format!("{invariant}: {what}"));
        } else {
            self.more += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: u64 = self.keys.iter().sum();
        writeln!(
            f,
            "{keys} keys, {} of {} bytes in use, {} commits",
            self.used, self.size, self.commits
        )?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        if self.more > 0 {
            writeln!(f, "  and {} more", self.more)?;
        }
        if self.incomplete {
            writeln!(
                f,
                "the data are a copy of which a part is missing, and a server does not show them: \
                 let it \
                 follow its primary again, import the dump again, or say FLUSHALL to begin with \
                 nothing"
            )?;
        }
        match self.is_sound() {
            true => write!(f, "every invariant holds"),
            false => write!(
                f,
                "the tier is damaged; copy the file before anything else, and read from it what \
                 can be read"
            ),
        }
    }
}

/// Checks a file or device that nobody uses.
///
/// # Errors
/// It cannot be mapped, or holds no key-value tier.
pub fn check_file(path: &Path) -> Result<Report, Error> {
    // As any file: a check writes nothing, so what a write would survive does not matter.
    let mut options = OpenOptions::new(Access::Emulated, 0);
    options.preallocate = false;
    check(&Mapping::open(path, &options)?)
}

/// Checks a mapping.
///
/// # Errors
/// It holds no key-value tier.
pub fn check(map: &Mapping) -> Result<Report, Error> {
    let mut report = Report::default();
    let Some(plan) = read_plan(map, &mut report)? else { return Ok(report) };
    let mut reader = Reader { map, changed: HashMap::new(), plan };
    report.commits = reader.apply_log();
    report.size = plan.units * UNIT;
    // 0 the server's own, 2 a whole copy.
    report.incomplete = !matches!(reader.word(8192 + 16), 0 | 2);
    let (position, second, counted) =
        (reader.word(8192 + 24), reader.word(8192 + 120), reader.word(8192 + 128));
    if counted > 1 {
        report.find(11, format!("the word that says whether commands are counted is {counted}"));
    }
    if second > position.saturating_add(1) {
        report.find(
            11,
            format!("the stream's former name ends at {second}, behind its end at {position}"),
        );
    }
    let mut heap = reader.heap(&mut report);
    for db in 0..16_u64 {
        let base = 12032 + db * 256;
        let keys = reader.walk(base, false, &mut heap, &mut report);
        report.keys.push(keys);
    }
    let others = heap.others;
    report.libraries = reader.walk(12032 + 16 * 256, false, &mut heap, &mut report);
    if heap.others != others {
        report.find(14, format!("{} libraries are no strings, or expire", heap.others - others));
    }
    let mut node = reader.word(8192 + 8);
    let mut nodes = HashSet::new();
    while node != 0 && nodes.insert(node) {
        if !heap.refer(node, 256, &mut report) {
            break;
        }
        reader.walk(node, true, &mut heap, &mut report);
        let mut elements = Vec::new();
        reader.sequence(reader.word(node + 32), None, &mut elements, &mut heap, &mut report);
        // Of a sorted set they are those of the index.
        if reader.word(node) == 0 {
            reader.trashed_elements(node, elements, &mut heap, &mut report);
        }
        node = reader.word(node + 24);
    }
    for (node, kind) in std::mem::take(&mut heap.nodes) {
        if heap.refer(node, 256, &mut report) {
            reader.node(node, kind, &mut heap, &mut report);
        }
    }
    if !heap.nodes.is_empty() {
        report.find(6, "a value with a node is within another one".into());
    }
    heap.compare(&reader, &mut report);
    Ok(report)
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Plan {
    len: u64,
    log_bytes: u64,
    table_at: u64,
    units: u64,
    heap_at: u64,
    seed: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .map_or(0, |word| word.iter().rev().fold(0, |all, byte| all * 256 + u64::from(*byte)))
}

fn read_plan(map: &Mapping, report: &mut Report) -> Result<Option<Plan>, Error> {
    let path = || map.report().path.clone();
    let mut plans = Vec::new();
    let mut ours = false;
    for copy in 0..2_u64 {
        let mut bytes = [0; 4096];
        if (copy + 1) * 4096 > map.len() {
            break;
        }
        map.read_checked(copy * 4096, &mut bytes)?;
        ours |= bytes.starts_with(b"TSMITHKV");
        let version = u64_at(&bytes, 8);
        let whole = u64_at(&bytes, 4088) == hash_bytes(&bytes[..4088], 0);
        if !bytes.starts_with(b"TSMITHKV") || !whole {
            report.find(1, format!("copy {copy} of the superblock is not whole"));
        } else if version != 3 {
            return Err(Error::Version { path: path(), found: version as u32 });
        } else {
            let [len, log_bytes, table_at, units, heap_at, seed] =
                [32, 40, 48, 56, 64, 72].map(|at| u64_at(&bytes, at));
            plans.push(Plan { len, log_bytes, table_at, units, heap_at, seed });
        }
    }
    if !ours {
        return Err(Error::Foreign { path: path() });
    }
    if plans.len() == 2 && plans[0] != plans[1] {
        report.find(1, "the two copies of the superblock differ".into());
    }
    Ok(plans.first().copied().filter(|plan| {
        let end = plan.units.checked_mul(UNIT).and_then(|heap| heap.checked_add(plan.heap_at));
        let fits = end.is_some_and(|end| end <= plan.len)
            && plan.len <= map.len()
            && plan.table_at.checked_add(plan.units * 8).is_some_and(|end| end <= plan.heap_at)
            && plan
                .log_bytes
                .checked_mul(2)
                .and_then(|log| log.checked_add(16384))
                .is_some_and(|log| log <= plan.table_at);
        if !fits {
            report.find(1, "the superblock names places outside the medium".into());
        }
        fits
    }))
}

/// Bytes of a slot of class `class`, made anew: steps of 16 to 128, then four to a doubling.
fn class_size(class: u64) -> u64 {
    if class <= 6 {
        return 32 + 16 * class;
    }
    let (doubling, quarter) = ((class - 6) / 4, (class - 6) % 4);
    let base = 128 << doubling;
    base + quarter * (base / 4)
}

/// Units of a slab, bytes before its first slot, and slots, by class.
fn slab(class: u64) -> (u64, u64, u64) {
    let size = class_size(class);
    let units = if size > 8192 { 16 } else { 1 };
    let mut slots = units * UNIT / size;
    loop {
        let header = slots.div_ceil(64).next_multiple_of(8) * 8;
        if header + slots * size <= units * UNIT {
            return (units, header, slots);
        }
        slots -= 1;
    }
}

struct Reader<'a> {
    map: &'a Mapping,
    /// Words that the log changes.
    changed: HashMap<u64, u64>,
    plan: Plan,
}

/// What the unit table says, and what refers to it.
struct Heap {
    plan: Plan,
    /// First unit to class.
    slabs: HashMap<u64, u64>,
    /// First unit to units.
    runs: HashMap<u64, u64>,
    referred: HashSet<u64>,
    /// Nodes of values, with the values' types, still to be walked over.
    nodes: Vec<(u64, u64)>,
    /// Entries that are no strings, or expire.
    others: u64,
}

impl Reader<'_> {
    fn word(&self, at: u64) -> u64 {
        if !at.is_multiple_of(8) || at + 8 > self.plan.len {
            return 0;
        }
        self.changed.get(&at).copied().unwrap_or_else(|| self.map.load_u64(at))
    }

    fn bytes(&self, at: u64, len: u64) -> Vec<u8> {
        if at.checked_add(len).is_none_or(|end| end > self.plan.len) {
            return Vec::new();
        }
        let mut bytes = vec![0; len as usize];
        self.map.read(at, &mut bytes);
        bytes
    }

    /// Applies what the log has; returns the number of the last commit.
    fn apply_log(&mut self) -> u64 {
        let mut records = Vec::new();
        for slot in 0..2 {
            let at = 16384 + slot * self.plan.log_bytes;
            let head = self.bytes(at, 64);
            let (len, elsewhere) = (u64_at(&head, 24), u64_at(&head, 32));
            let body = self
                .bytes(if elsewhere == 0 { at + 64 } else { elsewhere }, len.min(self.plan.len));
            let seed = hash_bytes(&head[..56], self.plan.seed);
            if head.starts_with(b"KVRECORD") && u64_at(&head, 56) == hash_bytes(&body, seed) {
                records.push((u64_at(&head, 8), head, body));
            }
        }
        records.sort();
        let mut last = 0;
        let count = records.len();
        for (index, (number, head, body)) in records.into_iter().enumerate() {
            let lines = u64_at(&head, 16) & 0xffff_ffff;
            let ranges = u64_at(&head, 16) >> 32;
            let ranges_at = body.len().saturating_sub(ranges as usize * 16);
            let hash = (0..ranges as usize).fold(0, |hash, range| {
                let at = ranges_at + range * 16;
                hash_bytes(&self.bytes(u64_at(&body, at), u64_at(&body, at + 8)), hash)
            });
            if index + 1 == count && hash != u64_at(&head, 40) {
                break;
            }
            let mut at = 0;
            for _ in 0..lines {
                let head = u64_at(&body, at);
                at += 8;
                for word in (0..8).filter(|word| head >> word & 1 == 1) {
                    self.changed.insert((head >> 8) * 64 + word * 8, u64_at(&body, at));
                    at += 8;
                }
            }
            last = number;
        }
        last
    }

    fn heap(&self, report: &mut Report) -> Heap {
        let (mut slabs, mut runs) = (HashMap::new(), HashMap::new());
        let mut unit = 0;
        while unit < self.plan.units {
            let word = self.word(self.plan.table_at + unit * 8);
            let (kind, class, units) = (word & 0xff, word >> 8 & 0xff, word >> 32);
            let units = match kind {
                0 if word == 0 => 1,
                1 if class < 47 && units == slab(class).0 && unit.is_multiple_of(units) => {
                    slabs.insert(unit, class);
                    units
                }
                2 if units > 0 => {
                    runs.insert(unit, units);
                    units
                }
                _ => {
                    report.find(2, format!("unit {unit} has the word {word:#x}"));
                    1
                }
            };
            for inner in unit + 1..(unit + units).min(self.plan.units) {
                if self.word(self.plan.table_at + inner * 8) != 0 {
                    report.find(
                        2,
                        format!("unit {inner} is within the run of unit {unit} and has a word"),
                    );
                }
            }
            if units > self.plan.units - unit {
                report.find(2, format!("unit {unit} begins a run that leaves the heap"));
                break;
            }
            unit += units;
        }
        Heap {
            plan: self.plan,
            slabs,
            runs,
            referred: HashSet::new(),
            nodes: Vec::new(),
            others: 0,
        }
    }

    /// Walks over the index of a database or trash node; returns its keys.
    fn walk(&self, base: u64, trash: bool, heap: &mut Heap, report: &mut Report) -> u64 {
        let buckets = self.word(base);
        let (mut keys, mut expiring) = (0, 0);
        if buckets > 24 * 8192 * 1024 {
            report.find(6, format!("the index at {base} has {buckets} buckets"));
            return 0;
        }
        if buckets > 0 && base < 16384 {
            heap.refer(self.word(base + 24), 256, report);
        }
        let chunks = buckets.div_ceil(1024);
        for chunk in 0..chunks {
            let directory = self.word(base + 64 + chunk / 8192 * 8);
            if chunk % 8192 == 0 && !heap.refer_run(directory, report) {
                return keys;
            }
            let first = self.word(directory + chunk % 8192 * 8);
            if !heap.refer_run(first, report) {
                return keys;
            }
            for bucket in chunk * 1024..((chunk + 1) * 1024).min(buckets) {
                let at = first + bucket % 1024 * 64;
                let found = self.bucket(at, (!trash).then_some((bucket, buckets)), heap, report);
                keys += found.0;
                expiring += found.1;
            }
        }
        let said = (self.word(base + 8), self.word(base + 16));
        if !trash && said != (keys, expiring) {
            let (all, some) = said;
            report.find(
                7,
                format!(
                    "the index at {base} says {all} keys, of which {some} expire; it has {keys} \
                     and {expiring}"
                ),
            );
        }
        keys
    }

    /// Looks at the node of a value.
    fn node(&self, node: u64, kind: u64, heap: &mut Heap, report: &mut Report) {
        if kind == 11 {
            return self.stream(node, heap, report);
        }
        let keys = self.walk(node, kind == 5, heap, report);
        let mut elements = Vec::new();
        self.sequence(self.word(node + 32), None, &mut elements, heap, report);
        let (said, found) = (self.word(node + 8), elements.len() as u64);
        let wrong = match kind {
            5 => keys != 0 || said != found,
            9 => keys != found,
            _ => found != 0,
        };
        if wrong {
            report.find(
                7,
                format!("the node at {node} says {said} elements; its sequence has {found}"),
            );
        }
        if kind == 9 {
            self.sorted(node, &elements, heap, report);
        }
        for at in elements.into_iter().filter(|_| kind == 5) {
            self.element(at, heap, report);
        }
    }

    /// Looks whether the sequence of a sorted set has the entries of its index, each once, in
    /// order.
    fn sorted(&self, node: u64, elements: &[u64], heap: &Heap, report: &mut Report) {
        let mut before: Option<(f64, Vec<u8>)> = None;
        let distinct: HashSet<&u64> = elements.iter().collect();
        if distinct.len() != elements.len() {
            report.find(10, format!("the sequence of the node at {node} has an entry twice"));
        }
        for at in elements {
            if !heap.referred.contains(at) {
                report.find(
                    10,
                    format!("the sequence of the node at {node} has {at}, and its index does not"),
                );
                continue;
            }
            let len = self.word(*at) & 0xffff_ffff;
            let member = self.bytes(at + 16, len);
            let score = f64::from_bits(u64_at(&self.bytes(at + 16 + len, 8), 0));
            let now = (score, member);
            if before.as_ref().is_some_and(|before| *before >= now) {
                report.find(10, format!("the entry at {at} is not in order in the node at {node}"));
            }
            before = Some(now);
        }
    }

    /// Looks at an entry that a list has.
    fn element(&self, at: u64, heap: &mut Heap, report: &mut Report) {
        if !at.is_multiple_of(16) {
            return report.find(6, format!("no element can be at {at}"));
        }
        self.entry(at / 16, None, heap, report);
    }

    /// Collects the elements below a node of a sequence; returns how many they are.
    fn sequence(
        &self,
        at: u64,
        level: Option<u64>,
        elements: &mut Vec<u64>,
        heap: &mut Heap,
        report: &mut Report,
    ) -> u64 {
        if at == 0 || !heap.refer(at, 512, report) {
            return 0;
        }
        let head = self.word(at);
        let (of, first, items) = (head & 0xff, head >> 8 & 0xffff, head >> 24);
        let words = if of == 0 { 1 } else { 2 };
        if level.is_some_and(|level| level != of)
            || items == 0
            || (first + items) * words > 63
            || of > 12
        {
            report.find(
                9,
                format!("no node of a sequence can be at {at}: its first word is {head:#x}"),
            );
            return 0;
        }
        let mut count = 0;
        for item in first..first + items {
            let word = self.word(at + 8 + item * words * 8);
            if of == 0 {
                elements.push(word);
                count += 1;
                continue;
            }
            let said = self.word(at + 16 + item * 16);
            let found = self.sequence(word, Some(of - 1), elements, heap, report);
            if found != said {
                report.find(
                    9,
                    format!("the node at {word} has {found} elements; its parent says {said}"),
                );
            }
            count += found;
        }
        count
    }

    fn bucket(
        &self,
        mut at: u64,
        number: Option<(u64, u64)>,
        heap: &mut Heap,
        report: &mut Report,
    ) -> (u64, u64) {
        let (mut keys, mut expiring) = (0, 0);
        let mut seen = HashSet::new();
        loop {
            for word in (0..7).map(|slot| self.word(at + slot * 8)).filter(|word| *word != 0) {
                keys += 1;
                expiring += word >> 44 & 1;
                if let Some(key) = self.entry(word, number, heap, report)
                    && !seen.insert(key)
                {
                    report.find(6, format!("a key is twice in the bucket at {at}"));
                }
            }
            at = self.word(at + 56);
            if at == 0 || !heap.refer(at, 64, report) {
                return (keys, expiring);
            }
        }
    }

    /// Looks at an entry; returns its key.
    fn entry(
        &self,
        word: u64,
        number: Option<(u64, u64)>,
        heap: &mut Heap,
        report: &mut Report,
    ) -> Option<Vec<u8>> {
        let at = (word & ((1 << 44) - 1)) * 16;
        let (first, second) = (self.word(at), self.word(at + 8));
        let (key_len, expires, class) = (first & 0xffff_ffff, first >> 40 & 1, first >> 48);
        let value_len = second & 0xffff_ffff;
        let room = match class {
            0xffff => {
                if !heap.refer_run(at, report) {
                    return None;
                }
                heap.runs.get(&((at - self.plan.heap_at) / UNIT)).map_or(0, |units| units * UNIT)
            }
            class if class < 47 => {
                if !heap.refer(at, class_size(class), report) {
                    return None;
                }
                class_size(class)
            }
            _ => 0,
        };
        let total = 16 + expires * 8 + key_len + value_len;
        let kind = first >> 32 & 0xff;
        // Of a string alone a part may have been written.
        let unknown = if kind == 1 { first >> 42 & 0x3f } else { first >> 41 & 0x7f };
        if total > room || !matches!(kind, 1..=9 | 11) || unknown != 0 {
            report
                .find(6, format!("the entry at {at} cannot be one: its first word is {first:#x}"));
            return None;
        }
        heap.others += u64::from(kind != 1 || expires == 1);
        let key = self.bytes(at + 16, key_len);
        let value = self.bytes(at + 16 + key_len, value_len);
        let time = (expires == 1).then(|| self.word(at + room - 8));
        if second >> 32 != self.checksum(first & !(1 << 40), &key, &value, time) {
            let shown = String::from_utf8_lossy(&key[..key.len().min(64)]).into_owned();
            let shown = shown.escape_debug();
            report.find(8, format!("the entry of \"{shown}\" at {at} does not have its checksum"));
        } else if first >> 32 & 1 == 1 && first >> 32 & 0xff > 1 {
            heap.nodes.push((u64_at(&value, 0), first >> 32 & 0xff));
        }
        let hash = hash_bytes(&key, self.plan.seed);
        if let Some((bucket, buckets)) = number {
            let mut power = 1;
            while power * 2 <= buckets {
                power *= 2;
            }
            let wanted = match hash % (power * 2) {
                wanted if wanted < buckets => wanted,
                wanted => wanted - power,
            };
            if wanted != bucket || word >> 45 != hash >> 12 & 0x7_ffff || word >> 44 & 1 != expires
            {
                report.find(
                    6,
                    format!("the index word {word:#x} in bucket {bucket} is not that of its key"),
                );
            }
        }
        Some(key)
    }
}

impl Reader<'_> {
    /// The checksum of an entry.
    fn checksum(&self, first: u64, key: &[u8], value: &[u8], time: Option<u64>) -> u64 {
        let head = [first.to_le_bytes(), (value.len() as u64).to_le_bytes()].concat();
        let mut all = hash_bytes(&head, hash_bytes(key, self.plan.seed));
        for (number, part) in (0..).zip(value.chunks(4096)) {
            all ^= hash_bytes(part, number);
        }
        if let Some(time) = time {
            all ^= hash_bytes(&time.to_le_bytes(), u64::MAX);
        }
        (all >> 32) ^ (all & 0xffff_ffff)
    }
}

impl Heap {
    /// Something refers to a slot of `size` bytes.
    fn refer(&mut self, at: u64, size: u64, report: &mut Report) -> bool {
        let end = self.plan.heap_at + self.plan.units * UNIT;
        if at < self.plan.heap_at || at >= end {
            report.find(3, format!("something refers to {at}, outside the heap"));
            return false;
        }
        let mut first = (at - self.plan.heap_at) / UNIT;
        if size > 8192 {
            first -= first % 16;
        }
        let slab_at = self.plan.heap_at + first * UNIT;
        let fits = self.slabs.get(&first).is_some_and(|class| {
            let (_, header, slots) = slab(*class);
            class_size(*class) == size
                && at >= slab_at + header
                && (at - slab_at - header).is_multiple_of(size)
                && (at - slab_at - header) / size < slots
        });
        if !fits {
            report.find(
                3,
                format!("something refers to {at} as a slot of {size} bytes, which it is not"),
            );
        } else if !self.referred.insert(at) {
            report.find(3, format!("two things refer to the slot at {at}"));
        }
        fits
    }

    /// Something refers to a run.
    fn refer_run(&mut self, at: u64, report: &mut Report) -> bool {
        let unit = at.wrapping_sub(self.plan.heap_at) / UNIT;
        let fits = at >= self.plan.heap_at
            && (at - self.plan.heap_at).is_multiple_of(UNIT)
            && self.runs.contains_key(&unit);
        if !fits {
            report.find(3, format!("something refers to {at} as a run, which it is not"));
        } else if !self.referred.insert(at) {
            report.find(3, format!("two things refer to the run at {at}"));
        }
        fits
    }

    /// Compares what is referred to with what is in use.
    fn compare(&self, reader: &Reader<'_>, report: &mut Report) {
        let mut used = 0;
        for (unit, units) in &self.runs {
            used += units * UNIT;
            let at = self.plan.heap_at + unit * UNIT;
            if !self.referred.contains(&at) {
                report.find(4, format!("nothing refers to the run of {units} units at {at}"));
            }
        }
        for (unit, class) in &self.slabs {
            let (_, header, slots) = slab(*class);
            let at = self.plan.heap_at + unit * UNIT;
            for slot in 0..header * 8 {
                let in_use = reader.word(at + slot / 64 * 8) >> (slot % 64) & 1 == 1;
                let slot_at = at + header + slot * class_size(*class);
                let referred = slot < slots && self.referred.contains(&slot_at);
                used += if in_use { class_size(*class) } else { 0 };
                if in_use && !referred {
                    report.find(4, format!("nothing refers to the slot at {slot_at}"));
                } else if referred && !in_use {
                    report.find(3, format!("the slot at {slot_at} is referred to and free"));
                }
            }
        }
        report.used = reader.word(8192);
        if report.used != used {
            report.find(5, format!("{} bytes are said to be in use, and {used} are", report.used));
        }
    }
}
