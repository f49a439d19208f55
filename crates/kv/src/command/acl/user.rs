//! A user: flags, passwords, and what it may do, as rules say it and as they are written down.

use sha2::{Digest, Sha256};

use super::super::{Arguments, glob};
use super::catalogue::{CATEGORIES, Command, READS, WRITES, catalogue};

/// Commands at most, of which a selector has a bit each.
const WORDS: usize = 8;
/// Letters of a hash.
const HASH_LEN: usize = 64;

/// Why a rule means nothing, in Redis's words.
pub(super) type Wrong = &'static str;

const UNKNOWN: Wrong = "Unknown command or category name in ACL";
const SYNTAX: Wrong = "Syntax error";
const ALL_KEYS: Wrong = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid \
                         and does \
                         not have any effect. Try 'resetkeys' to start with an empty list of \
                         patterns";
const ALL_CHANNELS: Wrong = "Adding a pattern after the * pattern (or the 'allchannels' flag) is \
                             not valid \
                             and does not have any effect. Try 'resetchannels' to start with an \
                             empty list \
                             of channels";
const NO_PASSWORD: Wrong = "The password you are trying to remove from the user does not exist";
const NO_HASH: Wrong = "The password hash must be exactly 64 characters and contain only lowercase \
                        hexadecimal characters";
const NO_FIRST: Wrong = "Allowing first-arg of a subcommand is not supported";

/// The bits of commands.
type Bits = [u64; WORDS];

/// Whether a rule, a name or a pattern has what parts it from others.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, 0 | b' ' | 9..=13))
}

/// A password as it is kept.
pub(super) fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Equality in a time that does not tell where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

/// What a selector does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Denied {
    Command,
    /// The key at this place.
    Key(usize),
    /// The channel at this place.
    Channel(usize),
}

/// Commands, keys and channels that are allowed together.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    commands: Bits,
    all_commands: bool,
    /// First arguments with which a command is allowed that otherwise is not.
    firsts: Vec<(usize, Vec<u8>)>,
    pub(super) all_keys: bool,
    /// Patterns with what is allowed.
    keys: Vec<(Vec<u8>, u8)>,
    pub(super) all_channels: bool,
    channels: Vec<Vec<u8>>,
}

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(super) on: bool,
    pub(super) no_password: bool,
    /// Whether what it RESTOREs is looked at, if that was said: here it always is.
    sanitize: Option<bool>,
    pub(super) passwords: Vec<String>,
    /// The first one is the user's own.
    pub(super) selectors: Vec<Selector>,
}

impl Selector {
    pub(super) fn is_open(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    fn has(&self, place: usize) -> bool {
        self.commands[place / 64] >> (place % 64) & 1 == 1
    }

    fn put(&mut self, place: usize, allow: bool) {
        let bit = 1 << (place % 64);
        match allow {
            true => self.commands[place / 64] |= bit,
            false => self.commands[place / 64] &= !bit,
        }
    }

    fn put_with_children(&mut self, place: usize, allow: bool) {
        self.put(place, allow);
        self.firsts.retain(|(of, _)| *of != place);
        catalogue().all[place].children.iter().for_each(|child| self.put(*child, allow));
        if !allow {
            // One command less is not all.
            self.all_commands = false;
        }
    }

    fn put_category(&mut self, category: usize, allow: bool) {
        for (place, command) in catalogue().all.iter().enumerate() {
            if command.is_in(category) {
                self.put_with_children(place, allow);
            }
        }
    }

    fn put_all(&mut self, allow: bool) {
        self.commands = [if allow { u64::MAX } else { 0 }; WORDS];
        self.all_commands = allow;
        self.firsts.clear();
    }

    /// Applies a rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" | b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"allcommands" | b"+@all" => self.put_all(true),
            b"nocommands" | b"-@all" => self.put_all(false),
            [b'~' | b'%', ..] => self.add_keys(rule)?,
            [b'&', ..] => {
                if self.all_channels {
                    return Err(ALL_CHANNELS);
                }
                if has_spaces(rule) {
                    return Err(SYNTAX);
                }
                if !self.channels.iter().any(|known| known == &rule[1..]) {
                    self.channels.push(rule[1..].to_vec());
                }
            }
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let known = CATEGORIES.iter().position(|known| known.as_bytes() == name);
                self.put_category(known.ok_or(UNKNOWN)?, *sign == b'+');
            }
            [b'+', name @ ..] => self.allow(name)?,
            [b'-', name @ ..] => {
                let name = std::str::from_utf8(name).map_err(|_| UNKNOWN)?;
                self.put_with_children(catalogue().find(name).ok_or(UNKNOWN)?, false);
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        if self.all_keys {
            return Err(ALL_KEYS);
        }
        let (mut access, mut at) = (READS | WRITES, 1);
        if rule[0] == b'%' {
            access = 0;
            loop {
                let bit = match rule.get(at).map(u8::to_ascii_lowercase) {
                    Some(b'r') => READS,
                    Some(b'w') => WRITES,
                    Some(b'~') if access != 0 => break at += 1,
                    None => break,
                    _ => return Err(SYNTAX),
                };
                if access & bit != 0 {
                    return Err(SYNTAX);
                }
                (access, at) = (access | bit, at + 1);
            }
        }
        let pattern = &rule[at..];
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|(known, _)| known == pattern) {
            Some((_, known)) => *known |= access,
            None => self.keys.push((pattern.to_vec(), access)),
        }
        Ok(())
    }

    fn allow(&mut self, name: &[u8]) -> Result<(), Wrong> {
        let text = std::str::from_utf8(name).map_err(|_| UNKNOWN)?;
        let all = catalogue();
        let Some((command, first)) = text.rsplit_once('|') else {
            self.put_with_children(all.find(text).ok_or(UNKNOWN)?, true);
            return Ok(());
        };
        let place = all.find(command).ok_or(UNKNOWN)?;
        if command.contains('|') {
            return Err(NO_FIRST);
        }
        if first.is_empty() {
            return Err(SYNTAX);
        }
        if !all.all[place].children.is_empty() {
            self.put_with_children(all.find(text).ok_or(UNKNOWN)?, true);
        } else if !self.firsts.iter().any(|(of, known)| *of == place && known == first.as_bytes()) {
            self.firsts.push((place, first.as_bytes().to_vec()));
        }
        Ok(())
    }

    /// Whether this allows a command; `free`: everybody may run it.
    pub(super) fn check(
        &self,
        place: usize,
        free: bool,
        args: &Arguments<'_>,
    ) -> Result<(), Denied> {
        let command = &catalogue().all[place];
        if !self.all_commands && !free && !self.has(place) {
            let first = |(of, known): &(usize, Vec<u8>)| {
                *of == place && args.get(1).is_some_and(|one| one.eq_ignore_ascii_case(known))
            };
            if !self.firsts.iter().any(first) {
                return Err(Denied::Command);
            }
        }
        if !self.all_keys {
            for (at, access) in command.keys(args) {
                let fits = |(pattern, allowed): &(Vec<u8>, u8)| {
                    allowed & access == access && glob(pattern, args[at], false)
                };
                if !self.keys.iter().any(fits) {
                    return Err(Denied::Key(at));
                }
            }
        }
        if !self.all_channels {
            self.check_channels(command, args)?;
        }
        Ok(())
    }

    fn check_channels(&self, command: &Command, args: &Arguments<'_>) -> Result<(), Denied> {
        let (last, pattern) = match command.name {
            "publish" | "spublish" => (2, false),
            "subscribe" | "ssubscribe" => (args.len(), false),
            "psubscribe" => (args.len(), true),
            _ => return Ok(()),
        };
        match (1..last.min(args.len())).find(|at| !self.has_channel(args[*at], pattern)) {
            Some(at) => Err(Denied::Channel(at)),
            None => Ok(()),
        }
    }

    /// Whether a channel is allowed, or a pattern, which must be one of the user's own.
    pub(super) fn has_channel(&self, channel: &[u8], pattern: bool) -> bool {
        let fits = |own: &Vec<u8>| if pattern { own == channel } else { glob(own, channel, false) };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// The patterns of keys, as rules.
    pub(super) fn key_rules(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let one = |(pattern, access): &(Vec<u8>, u8)| {
            let sign: &[u8] = match *access {
                READS => b"%R~",
                WRITES => b"%W~",
                _ => b"~",
            };
            [sign, pattern].concat()
        };
        self.keys.iter().map(one).collect()
    }

    /// The patterns of channels, as rules.
    pub(super) fn channel_rules(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        self.channels.iter().map(|channel| [b"&", channel.as_slice()].concat()).collect()
    }

    /// The rules of commands: the categories that fit best, then single commands, as Redis puts
    /// them together.
    pub(super) fn command_rules(&self) -> String {
        let all = catalogue();
        let add = !self.can_run_future_ones();
        let mut rules = vec![if add { "-@all" } else { "+@all" }.to_owned()];
        let mut told = Selector::default();
        told.put_all(!add);
        let mut left = Selector { commands: self.commands, ..Selector::default() };
        let mut applied = [false; CATEGORIES.len()];
        loop {
            let mut best: Option<(usize, usize, usize)> = None;
            for category in (0..CATEGORIES.len()).filter(|category| !applied[*category]) {
                let of = || all.all.iter().enumerate().filter(|(_, one)| one.is_in(category));
                let on = of().filter(|(place, _)| left.has(*place)).count();
                let off = of().count() - on;
                let (different, same) = if add { (off, on) } else { (on, off) };
                let better = best.is_none_or(|(_, least, most)| {
                    different < least || different == least && same > most
                });
                if same > different && better {
                    best = Some((category, different, same));
                }
            }
            let Some((category, ..)) = best else { break };
            told.put_category(category, add);
            left.put_category(category, !add);
            rules.push(format!("{}@{}", if add { '+' } else { '-' }, CATEGORIES[category]));
            applied[category] = true;
        }
        for (place, command) in all.all.iter().enumerate() {
            let allowed = self.has(place);
            if allowed != told.has(place) {
                rules.push(format!("{}{}", if allowed { '+' } else { '-' }, command.name));
                told.put_with_children(place, allowed);
            }
            for (_, first) in self.firsts.iter().filter(|(of, _)| *of == place && !allowed) {
                rules.push(format!("+{}|{}", command.name, String::from_utf8_lossy(first)));
            }
        }
        rules.join(" ")
    }

    /// Whether it began with all commands: then the bits beyond the last command are set.
    fn can_run_future_ones(&self) -> bool {
        self.has(WORDS * 64 - 1)
    }

    fn describe(&self) -> Vec<u8> {
        let mut words = self.key_rules();
        if !self.all_channels {
            words.push(b"resetchannels".to_vec());
        }
        words.extend(self.channel_rules());
        words.push(self.command_rules().into_bytes());
        words.join(&b' ')
    }
}

impl User {
    /// One that may do nothing.
    pub(super) fn new() -> User {
        User {
            on: false,
            no_password: false,
            sanitize: None,
            passwords: Vec::new(),
            selectors: vec![Selector::default()],
        }
    }

    /// The one that everybody is at first.
    pub(super) fn default_user() -> User {
        let mut user = User::new();
        for rule in ["allcommands", "allkeys", "allchannels", "on", "nopass"] {
            let applied = user.apply(rule.as_bytes());
            debug_assert!(applied.is_ok(), "BUG: {rule}");
        }
        user
    }

    /// Whether it may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.selectors.first().is_some_and(Selector::is_open)
    }

    /// Applies a rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"skip-sanitize-payload" => self.sanitize = Some(false),
            b"sanitize-payload" => self.sanitize = Some(true),
            b"nopass" => (self.no_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.no_password, self.passwords) = (false, Vec::new()),
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = User { sanitize: Some(true), ..User::new() },
            [sign @ (b'>' | b'#' | b'<' | b'!'), ..] => self.change_passwords(*sign, &rule[1..])?,
            [b'(', .., b')'] => {
                let mut selector = Selector::default();
                for rule in rule[1..rule.len() - 1].split(u8::is_ascii_whitespace) {
                    if !rule.is_empty() {
                        selector.apply(rule)?;
                    }
                }
                self.selectors.push(selector);
            }
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    fn change_passwords(&mut self, sign: u8, text: &[u8]) -> Result<(), Wrong> {
        let kept = match sign {
            b'>' | b'<' => hash(text),
            _ => {
                let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                if text.len() != HASH_LEN || !text.iter().all(is_digit) {
                    return Err(NO_HASH);
                }
                String::from_utf8_lossy(text).into_owned()
            }
        };
        let known = self.passwords.iter().position(|one| *one == kept);
        match (sign, known) {
            (b'>' | b'#', known) => {
                if known.is_none() {
                    self.passwords.push(kept);
                }
                self.no_password = false;
            }
            (_, Some(at)) => {
                self.passwords.remove(at);
            }
            (_, None) => return Err(NO_PASSWORD),
        }
        Ok(())
    }

    /// Whether somebody with this password may be this user.
    pub(super) fn lets_in(&self, password: &[u8]) -> bool {
        let given = hash(password);
        // All are compared, in a time that does not tell which fits.
        let fits = self
            .passwords
            .iter()
            .fold(false, |fits, one| fits | same(one.as_bytes(), given.as_bytes()));
        self.on && (self.no_password || fits)
    }

    /// Whether it may run a command; of what several selectors do not allow, the last key or
    /// channel.
    pub(super) fn check(
        &self,
        place: usize,
        free: bool,
        args: &Arguments<'_>,
    ) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in &self.selectors {
            match selector.check(place, free, args) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.max(other),
            }
        }
        Err(denied)
    }

    /// Whether it may run a command, and read any key with it.
    pub(super) fn reads_all_keys(&self, place: usize, free: bool, args: &Arguments<'_>) -> bool {
        let reads_all = |one: &Selector| {
            let all = |(pattern, allowed): &(Vec<u8>, u8)| pattern == b"*" && allowed & READS != 0;
            one.all_keys || one.keys.iter().any(all)
        };
        self.selectors.iter().any(|one| reads_all(one) && one.check(place, free, args).is_ok())
    }

    /// Its flags, in Redis's order.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut all = vec![if self.on { "on" } else { "off" }];
        if self.no_password {
            all.push("nopass");
        }
        all.extend(
            self.sanitize.map(|yes| if yes { "sanitize-payload" } else { "skip-sanitize-payload" }),
        );
        all
    }

    /// All of it, as rules.
    pub(super) fn describe(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> =
            self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords.iter().map(|one| format!("#{one}").into_bytes()));
        for (number, selector) in self.selectors.iter().enumerate() {
            let rules = selector.describe();
            words.push(if number == 0 { rules } else { [b"(", rules.as_slice(), b")"].concat() });
        }
        words.join(&b' ')
    }
}
