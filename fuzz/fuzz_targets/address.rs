//! Addresses of sources and of endpoints: an error that repeats no password, or an address that is shown and read again; never a panic.

#![no_main]

use tiersmith_awr::sources::Address;

libfuzzer_sys::fuzz_target!(|input: &str| {
    if let Ok(address) = Address::parse(input) {
        let shown = address.shown();
        assert!(!shown.contains('\n') || input.contains('\n'));
    }
    for product in ["postgresql", "mysql", "redis"] {
        // Whatever stands around it, what follows a user's colon is a password.
        let secret: String = input.chars().filter(char::is_ascii_alphanumeric).collect();
        if secret.len() < 12 {
            continue;
        }
        let error = Address::parse(&format!("{product}://u:{input}@host/")).map(|address| address.shown());
        let said = error.unwrap_or_else(|error| error.to_string());
        // Only where a password was seen as one; what is read as host and path is shown as such.
        if said.contains("password") {
            assert!(!said.contains(&secret), "{said}");
        }
    }
});
