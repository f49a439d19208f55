//! By which names an endpoint may be asked for.
//!
//! A page of a stranger can make a browser ask a name of the stranger's that leads to this machine
//! (DNS rebinding): to the browser the answer is the stranger's own, and it may read it. Such a
//! request says the stranger's name in its `Host` header. So names are answered that the user gave,
//! `localhost`, and addresses in digits, which no name server can lead elsewhere. A request without
//! the header is no browser's.
//!
//! Deliberately absent: looking names up. Invariant: no name is answered that only a name server
//! vouches for.

use std::net::IpAddr;

/// Names that an endpoint answers to besides `localhost` and addresses in digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// These names besides; each as [`Hosts::parse`] gives it.
    pub fn of(names: impl IntoIterator<Item = String>) -> Hosts {
        Hosts { names: names.into_iter().collect() }
    }

    /// Reads a name as a user writes it: without a port, without a scheme.
    ///
    /// # Errors
    /// A sentence, if it is no name of a host.
    pub fn parse(text: &str) -> Result<String, String> {
        let name = plain(text);
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || name.len() > 253 || !name.chars().all(known) {
            return Err(
                "write the name of a host as your monitoring asks for it, without port and \
                        path, for instance db1.example.org"
                    .to_owned(),
            );
        }
        Ok(name)
    }

    /// Whether a request with these `Host` headers is answered. Two of them are a trick.
    pub(super) fn allow(&self, headers: &[&str]) -> bool {
        match headers {
            [] => true,
            [one] => self.allows(one),
            _ => false,
        }
    }

    fn allows(&self, header: &str) -> bool {
        let host = header.trim();
        if let Some(inner) = host.strip_prefix('[') {
            let Some((address, port)) = inner.split_once(']') else { return false };
            return address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port);
        }
        let (name, port) = host.find(':').map_or((host, ""), |at| host.split_at(at));
        let name = plain(name);
        is_port(port)
            && (name == "localhost" || name.parse::<IpAddr>().is_ok() || self.names.contains(&name))
    }
}

/// A dot at the end says that a name is whole; letters are alike.
fn plain(name: &str) -> String {
    let name = name.trim();
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_only_a_name_server_vouches_for_is_refused() {
        let none = Hosts::default();
        for good in [
            "localhost",
            "LocalHost:9756",
            "localhost.",
            "127.0.0.1:9756",
            "10.0.0.5",
            "[::1]:9756",
            "[fe80::1]",
            " localhost ",
        ] {
            assert!(none.allow(&[good]), "{good}");
        }
        assert!(none.allow(&[]), "a request without the header is no browser's");
        let wrong = [
            "",
            "evil.example",
            "evil.example:9756",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:9756:1",
            "localhost:x",
            "[::1",
            "[evil]:1",
            "[127.0.0.1]",
            "::1",
            "127.1",
            "0x7f.1",
            "localhost/",
            "a@localhost",
            "127.0.0.1:99999",
            "db1",
        ];
        for wrong in wrong {
            assert!(!none.allow(&[wrong]), "{wrong}");
        }
        assert!(!none.allow(&["localhost", "localhost"]), "two headers");
        let given = Hosts::of([Hosts::parse("DB1.example.org").expect("a name")]);
        assert!(given.allow(&["db1.example.org:9756"]) && given.allow(&["db1.EXAMPLE.org."]));
        assert!(!given.allow(&["db2.example.org"]) && !given.allow(&["x.db1.example.org"]));
        for wrong in ["", "http://db1", "db1:9756", "db 1", "a/b", &"x".repeat(300)] {
            assert!(Hosts::parse(wrong).expect_err(wrong).contains("for instance"));
        }
    }
}
