//! Tests of what needs no server: words into decisions, and certificates judged at an instant that
//! stands still.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::collections::BTreeMap;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{ServerName, UnixTime};

use super::super::address::Address;
use super::super::secret::Surroundings;
use super::*;

/// Made for these tests with `openssl`, valid from 2026-11-22 for ten years: an authority, a
/// certificate of it with names, one of version 1 with the common name `db1` alone.
const AUTHORITY: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBhTCCASqgAwIBAgIUUiUcKemBBZukNk7tSsvZRFBIf7EwCgYIKoZIzj0EAwIw\n\
    KDENMAsGA1UECgwEVGVzdDEXMBUGA1UEAwwOVGVzdCBhdXRob3JpdHkwHhcNMjYx\n\
    MTIyMTUzMTUzWhcNMzYxMTE5MTUzMTUzWjAoMQ0wCwYDVQQKDARUZXN0MRcwFQYD\n\
    VQQDDA5UZXN0IGF1dGhvcml0eTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABE7M\n\
    XLdp6E+QWtheEie5de1nvwwekQqHOreifqTXiMyJ2vgurjB0qt1yZNgzJJBP4vju\n\
    wC+enuY2l9EdRDqjkiOjMjAwMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFPWK\n\
    aaOZRa0/XKI+0CpkyQ3zZKanMAoGCCqGSM49BAMCA0kAMEYCIQD4vqKeI8BYjQ17\n\
    dnbun3Vp9izWl7pkw6ykUYpyx+KaJwIhAON0KvbVerhO67d1KLI4jkALzAUvRCst\n\
    vZgGa4tTF3UX\n\
    -----END CERTIFICATE-----";
const NAMED: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBsTCCAVegAwIBAgIBBTAKBggqhkjOPQQDAjAoMQ0wCwYDVQQKDARUZXN0MRcw\n\
    FQYDVQQDDA5UZXN0IGF1dGhvcml0eTAeFw0yNjExMjIxNTMxNTNaFw0zNjExMTkx\n\
    NTMxNTNaMA4xDDAKBgNVBAMMA2RiMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA\n\
    BOPxoI2YiXp7J03zCt49760nHIrrKktnZSljxmCIteDizktb4xZxZvG/YOV2fNdo\n\
    X3DtBtKyNqT6fsJjTMaohDSjgYswgYgwRgYDVR0RBD8wPYIPZGIxLmV4YW1wbGUu\n\
    Y29tghIqLnNob3AuZXhhbXBsZS5jb22HBMAAAgeHECABDbgAAAAAAAAAAAAAAAcw\n\
    HQYDVR0OBBYEFFyXyKf5YgOWHFSMCwsh3ExDu03aMB8GA1UdIwQYMBaAFPWKaaOZ\n\
    Ra0/XKI+0CpkyQ3zZKanMAoGCCqGSM49BAMCA0gAMEUCIQCN90QpzN6Vk/sdd8J8\n\
    IQp5cp1t8CWwcmz22LUNrGhTEwIgP2wNPNU1r9a0CYhijprzk36SBR0lhVWW9rlR\n\
    7uAV09Y=\n\
    -----END CERTIFICATE-----";
const VERSION_1: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBHTCBxAIBBjAKBggqhkjOPQQDAjAoMQ0wCwYDVQQKDARUZXN0MRcwFQYDVQQD\n\
    DA5UZXN0IGF1dGhvcml0eTAeFw0yNjExMjIxNTMxNTNaFw0zNjExMTkxNTMxNTNa\n\
    MA4xDDAKBgNVBAMMA2RiMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOPxoI2Y\n\
    iXp7J03zCt49760nHIrrKktnZSljxmCIteDizktb4xZxZvG/YOV2fNdoX3DtBtKy\n\
    NqT6fsJjTMaohDQwCgYIKoZIzj0EAwIDSAAwRQIhAPc/dpEk6cePsz7Lqe4aBdws\n\
    +gVOJ3qvhlwzyf4Q55XhAiAO+w7r4Jv1F8vV5Z4tVytvoka18K8bfDgD9hlrSiE8\n\
    /A==\n\
    -----END CERTIFICATE-----";

/// Signed with the key of the second, which is no authority's: of version 1 and of version 3.
const BY_NAMED_1: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBAzCBqgIBBzAKBggqhkjOPQQDAjAOMQwwCgYDVQQDDANkYjEwHhcNMjYxMTIy\n\
    MTU0MTA2WhcNMzYwOTMwMTU0MTA2WjAOMQwwCgYDVQQDDANkYjIwWTATBgcqhkjO\n\
    PQIBBggqhkjOPQMBBwNCAAQVnmQhtABlDRg4ZkMsj9/GG0R47ck3ongkeNOrouUX\n\
    KFfdE/fwk0IBje8slxUvo6TeSRxeKyCGRDKnw52KUkPYMAoGCCqGSM49BAMCA0gA\n\
    MEUCIApmn8rL4V7mex2iUjrvAIvhbVxhIHFqBXY0foq6onPOAiEAitlZk7fI2zcF\n\
    6bh9qWTzItPD0st8LNQGgyiLmL8uyRk=\n\
    -----END CERTIFICATE-----";
const BY_NAMED_3: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBXjCCAQOgAwIBAgIBCDAKBggqhkjOPQQDAjAOMQwwCgYDVQQDDANkYjEwHhcN\n\
    MjYxMTIyMTU0MTA2WhcNMzYwOTMwMTU0MTA2WjAOMQwwCgYDVQQDDANkYjIwWTAT\n\
    BgcqhkjOPQIBBggqhkjOPQMBBwNCAAQVnmQhtABlDRg4ZkMsj9/GG0R47ck3ongk\n\
    eNOrouUXKFfdE/fwk0IBje8slxUvo6TeSRxeKyCGRDKnw52KUkPYo1IwUDAOBgNV\n\
    HREEBzAFggNkYjIwHQYDVR0OBBYEFLrh+UIxQsxBHp3LdCH8hiDFL0MSMB8GA1Ud\n\
    IwQYMBaAFFyXyKf5YgOWHFSMCwsh3ExDu03aMAoGCCqGSM49BAMCA0kAMEYCIQDG\n\
    G0U6hjyYuQzUJwcpAk3QCJpl2hDmizRdzQpbKJL4ugIhAJkJEiobVzkEADbzO3a4\n\
    UWs9jnrtILZSyi5ykRTsYGAn\n\
    -----END CERTIFICATE-----";
/// Seconds of an instant at which all of them are valid.
const VALID: u64 = 1_830_000_000;

fn der(text: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(text.as_bytes()).unwrap()
}

/// The verdict on a certificate; `named` tells whether the user named the file of authorities or it
/// is the system's.
fn judged(
    shown: &str,
    verify: Verify,
    trusted: &[&str],
    named: bool,
    host: &str,
    at_s: u64,
) -> Result<(), String> {
    let trusted: Vec<_> = trusted.iter().map(|text| der(text)).collect();
    let mut authorities = files::trusted(trusted, "ca.pem".to_owned(), at_s);
    if !named {
        authorities.named.clear();
    }
    let provider = rustls::crypto::ring::default_provider();
    let verifier = Verifier {
        verify,
        authorities: Some(authorities),
        host: host.to_owned(),
        ways: provider.signature_verification_algorithms,
        words: words_of_mysql(),
    };
    let name = ServerName::try_from("unused").unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at_s));
    let verdict = verifier.verify_server_cert(&der(shown), &[], &name, &[], now);
    verdict.map(|_| ()).map_err(|error| Refusal::behind(&error, words_of_mysql()).unwrap().reason)
}

#[test]
fn a_certificate_is_judged_by_authority_days_and_name_and_the_error_says_which_and_why() {
    let at =
        |shown, verify, trusted: &[&str], host| judged(shown, verify, trusted, true, host, VALID);
    for host in [
        "db1.example.com",
        "DB1.example.COM",
        "db1.example.com.",
        "a.shop.example.com",
        "192.0.2.7",
        "2001:db8::7",
    ] {
        at(NAMED, Verify::Name, &[AUTHORITY], host).unwrap();
    }
    // The common name does not count where names are given; a star is one label.
    for host in [
        "db1",
        "example.com",
        "shop.example.com",
        "a.b.shop.example.com",
        ".shop.example.com",
        "192.0.2.8",
        "",
        "*",
    ] {
        let reason = at(NAMED, Verify::Name, &[AUTHORITY], host).unwrap_err();
        assert!(
            reason.contains(
                "db1.example.com, *.shop.example.com, 192.0.2.7, 2001:db8::7 and not for"
            ),
            "{reason}"
        );
        at(NAMED, Verify::Chain, &[AUTHORITY], host).unwrap();
    }
    let reason = at(NAMED, Verify::Chain, &[], "db1.example.com").unwrap_err();
    assert!(
        reason.contains("`db1`, issued by `Test authority`, valid from 2026-11-22 to 2036-11-19"),
        "{reason}"
    );
    assert!(reason.contains("is of no authority in ca.pem"), "{reason}");
    at(NAMED, Verify::Nothing, &[], "anything").unwrap();
    for verify in [Verify::Chain, Verify::Name] {
        let late = judged(NAMED, verify, &[AUTHORITY], true, "db1.example.com", 2_200_000_000)
            .unwrap_err();
        assert!(late.contains("expired on 2036-11-19"), "{late}");
        let early = judged(NAMED, verify, &[AUTHORITY], true, "db1.example.com", 1_700_000_000)
            .unwrap_err();
        assert!(early.contains("is valid from 2026-11-22 only"), "{early}");
    }
}

#[test]
fn what_the_library_refuses_is_trusted_by_a_named_file_alone_and_then_not_blindly() {
    judged(VERSION_1, Verify::Name, &[AUTHORITY], true, "db1", VALID).unwrap();
    let reason = judged(VERSION_1, Verify::Name, &[AUTHORITY], true, "db2", VALID).unwrap_err();
    assert!(reason.contains("no name but its common name and not for `db2`"), "{reason}");
    assert!(
        judged(VERSION_1, Verify::Chain, &[AUTHORITY], false, "db1", VALID).is_err(),
        "the system's"
    );
    assert!(
        judged(VERSION_1, Verify::Chain, &[NAMED], true, "db1", VALID).is_err(),
        "of another issuer"
    );
    assert!(
        judged(VERSION_1, Verify::Chain, &[AUTHORITY], true, "db1", 2_200_000_000)
            .unwrap_err()
            .contains("expired")
    );
    // The certificate itself in the file, also one that is an authority's.
    judged(AUTHORITY, Verify::Name, &[AUTHORITY], true, "Test authority", VALID).unwrap();
    assert!(
        judged(AUTHORITY, Verify::Chain, &[AUTHORITY], false, "Test authority", VALID).is_err()
    );
    // A server's own certificate is trusted for that server.
    judged(NAMED, Verify::Name, &[NAMED], true, "db1.example.com", VALID).unwrap();
    for one in [BY_NAMED_1, BY_NAMED_3] {
        let reason = judged(one, Verify::Name, &[NAMED], true, "db2", VALID).unwrap_err();
        assert!(reason.contains("is of no authority in ca.pem"), "{reason}");
    }
    // Any other byte in what was signed, and nobody signed it.
    let sound = der(VERSION_1);
    let authority = der(AUTHORITY);
    let authority = Certificate::of(&authority).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let signed = |bytes: &[u8]| {
        Certificate::of(bytes).is_some_and(|one| {
            one.is_signed_by(&authority, provider.signature_verification_algorithms.all)
        })
    };
    assert!(signed(&sound));
    for at in 0..sound.len() {
        let mut damaged = sound.to_vec();
        damaged[at] ^= 1;
        assert!(!signed(&damaged), "byte {at}");
    }
}

#[test]
fn a_server_in_the_files_of_the_system_signs_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bundle.pem");
    std::fs::write(&file, format!("{AUTHORITY}\n{NAMED}\n")).unwrap();
    let found = files::authorities(&Roots::System(vec![file.clone()]), words_of_mysql());
    // The authority is one of some years only; the other is none whenever this runs.
    assert!(found.map_or(0, |found| found.store.len()) <= 1);
    std::fs::write(&file, NAMED).unwrap();
    let error = files::authorities(&Roots::System(vec![file]), words_of_mysql()).unwrap_err();
    assert!(error.reason.contains("no authorities of the system"), "{error}");
}

#[test]
fn no_bytes_make_the_reader_of_certificates_panic() {
    let mut rng = fastrand::Rng::with_seed(5);
    for text in [AUTHORITY, NAMED, VERSION_1, BY_NAMED_1, BY_NAMED_3] {
        let sound = der(text);
        assert!(Certificate::of(&sound).unwrap().binding().is_some_and(|hash| hash.len() == 32));
        let mut read = 0;
        for _ in 0..5_000 {
            let mut damaged = sound.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..damaged.len());
                damaged[at] = rng.u8(..);
            }
            // Most are whole, so that much of what is in them is looked at.
            if rng.u8(..4) == 0 {
                damaged.truncate(rng.usize(..=damaged.len()));
            }
            read += u32::from(take_apart(&damaged));
        }
        assert!(read > 500, "of {read} only was everything looked at");
        // Every byte as every length.
        for at in 0..sound.len() {
            for byte in [0, 1, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0xff] {
                let mut damaged = sound.to_vec();
                damaged[at] = byte;
                take_apart(&damaged);
            }
        }
    }
}

fn postgres(
    url: &str,
    service: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> crate::Result<Encryption> {
    let service: BTreeMap<_, _> =
        service.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let address = Address::parse(url).unwrap();
    let surroundings = Surroundings::of(variables.iter().copied());
    of_postgres(
        &address,
        &service,
        &surroundings,
        address.host.as_deref().is_some_and(|host| host.starts_with('/')),
    )
}

#[test]
fn the_words_of_libpq_mean_what_its_documentation_says() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_str().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, AUTHORITY).unwrap();
    let file = file.to_str().unwrap();
    let decided = |url: &str| {
        postgres(url, &[], &[("HOME", home)]).map(|one| (one.need, one.verify)).unwrap()
    };
    assert_eq!(decided("postgresql://h/d"), (Need::IfOffered, Verify::Nothing));
    assert_eq!(decided("postgresql://h/d?sslmode=disable"), (Need::Never, Verify::Nothing));
    assert_eq!(decided("postgresql://h/d?sslmode=allow"), (Need::IfDemanded, Verify::Nothing));
    assert_eq!(decided("postgresql://h/d?sslmode=require"), (Need::Always, Verify::Nothing));
    assert_eq!(
        decided("postgresql:///d?host=/run/x&sslmode=verify-full"),
        (Need::Never, Verify::Nothing),
        "a socket"
    );
    for (mode, verify) in [
        ("require", Verify::Chain),
        ("prefer", Verify::Chain),
        ("verify-ca", Verify::Chain),
        ("verify-full", Verify::Name),
    ] {
        let one =
            postgres(&format!("postgresql://h/d?sslmode={mode}&sslrootcert={file}"), &[], &[])
                .unwrap();
        assert_eq!((one.verify, one.roots), (verify, Roots::File(PathBuf::from(file))), "{mode}");
    }
    // Which place counts.
    let variables = [("PGSSLMODE", "require"), ("HOME", home)];
    assert_eq!(postgres("postgresql://h/d", &[], &variables).unwrap().need, Need::Always);
    assert_eq!(
        postgres("postgresql://h/d", &[("sslmode", "allow")], &variables).unwrap().need,
        Need::IfDemanded
    );
    assert_eq!(
        postgres("postgresql://h/d?sslmode=disable", &[("sslmode", "allow")], &variables)
            .unwrap()
            .need,
        Need::Never
    );
    // The system's authorities give a certificate to everybody: only names count with them.
    let system =
        postgres("postgresql://h/d", &[], &[("PGSSLROOTCERT", "system"), ("SSL_CERT_FILE", file)])
            .unwrap();
    assert_eq!((system.need, system.verify), (Need::Always, Verify::Name));
    assert_eq!(system.roots, Roots::System(vec![PathBuf::from(file)]));
    for (url, word) in [
        ("postgresql://h/d?sslmode=require&sslrootcert=system", "too weak"),
        ("postgresql://h/d?sslnegotiation=direct", "too weak"),
        ("postgresql://h/d?sslmode=verify-ca", ".postgresql/root.crt is not there"),
        ("postgresql://h/d?sslmode=require&sslrootcert=/no/such", "is not a file"),
        ("postgresql://h/d?sslmode=full", "not one of disable, allow"),
        ("postgresql://h/d?sslmode=require&sslcrl=/x", "revoked"),
        ("postgresql://h/d?sslmode=require&sslcert=/x", "only one is given"),
        ("postgresql://h/d?channel_binding=yes", "not one of disable"),
        ("postgresql://h/d?sslmode=", "its sslmode is ``"),
        ("postgresql://h/d?channel_binding=", "its channel_binding is ``"),
        ("postgresql://h/d?sslmode=require&sslrootcert=", "is not a file"),
    ] {
        let error = postgres(url, &[], &[("HOME", home)]).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("postgresql://h/d:"), "{url}: {error}");
    }
    // The file in the home directory counts as one that is named.
    std::fs::create_dir(dir.path().join(".postgresql")).unwrap();
    std::fs::write(dir.path().join(".postgresql/root.crt"), AUTHORITY).unwrap();
    assert_eq!(decided("postgresql://h/d?sslmode=require"), (Need::Always, Verify::Chain));
    assert_eq!(decided("postgresql://h/d?sslmode=verify-full"), (Need::Always, Verify::Name));
}

/// A home with a file of authorities, and what the words of MySQL and MariaDB mean there.
struct OfMySql(tempfile::TempDir);

impl OfMySql {
    fn new() -> OfMySql {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), AUTHORITY).unwrap();
        OfMySql(dir)
    }

    fn authorities(&self) -> String {
        self.0.path().join("ca.pem").to_str().unwrap().to_owned()
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings::of([("HOME", self.0.path().to_str().unwrap())])
    }

    /// How well a connection is encrypted by a URL, and by options in `~/.my.cnf`.
    fn decided(&self, url: &str, options: &[(&str, &str)]) -> crate::Result<(Need, Verify)> {
        let lines: String =
            options.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        std::fs::write(self.0.path().join(".my.cnf"), format!("[client]\n{lines}")).unwrap();
        let address = Address::parse(url).unwrap();
        let surroundings = self.surroundings();
        let options = surroundings.my_cnf().unwrap();
        of_mysql(&address, &options, &surroundings, address.host.as_deref().unwrap_or_default())
            .map(|one| (one.need, one.verify))
    }
}

#[test]
fn the_words_of_mysql_and_mariadb_mean_what_their_manuals_say() {
    let home = OfMySql::new();
    let file = home.authorities();
    let file = file.as_str();
    let (never, offered) = ((Need::Never, Verify::Nothing), (Need::IfOffered, Verify::Nothing));
    let nothing = (Need::Always, Verify::Nothing);
    let (chain, name) = ((Need::Always, Verify::Chain), (Need::Always, Verify::Name));
    for (url, options, expected) in [
        ("", &[][..], (Need::IfOffered, Verify::Nothing)),
        ("ssl-mode=disabled", &[("ssl-ca", file)], (Need::Never, Verify::Nothing)),
        ("ssl_mode=REQUIRED", &[], nothing),
        ("ssl-mode=VERIFY_CA", &[], chain),
        ("ssl-mode=VERIFY_IDENTITY", &[], name),
        ("", &[("ssl_ca", file)], chain),
        ("", &[("ssl-verify-server-cert", "")], name),
        ("", &[("ssl_verify_server_cert", "1"), ("ssl-mode", "REQUIRED")], name),
        ("ssl-mode=REQUIRED", &[("ssl-verify-server-cert", "")], nothing),
        ("", &[("ssl-verify-server-cert", "OFF"), ("ssl", "")], nothing),
        ("", &[("skip-ssl", "")], (Need::Never, Verify::Nothing)),
        ("", &[("loose-ssl-mode", "VERIFY_CA")], chain),
        ("socket=/run/x", &[], (Need::Never, Verify::Nothing)),
        ("socket=/run/x&ssl-mode=REQUIRED", &[], nothing),
        // What the URL demands is not undone by the file, and what it does not speak of is the
        // file's.
        ("ssl-verify-server-cert=1", &[("ssl-mode", "DISABLED")], name),
        ("ssl-verify-server-cert=1", &[("skip-ssl", "")], name),
        ("ssl-verify-server-cert=1", &[("ssl-mode", "PREFERRED")], name),
        (&format!("ssl-ca={file}"), &[("ssl-mode", "DISABLED")], chain),
        (&format!("ssl-ca={file}"), &[("ssl-mode", "REQUIRED")], chain),
        (&format!("ssl-ca={file}"), &[("skip-ssl", "")], chain),
        (&format!("ssl-ca={file}"), &[("ssl-mode", "VERIFY_IDENTITY")], name),
        ("ssl-verify-server-cert=0", &[("ssl-verify-server-cert", "")], offered),
        ("ssl-verify-server-cert=0", &[("ssl-mode", "VERIFY_IDENTITY")], name),
        ("ssl-mode=DISABLED", &[("ssl-mode", "VERIFY_IDENTITY"), ("ssl-fp", "x")], never),
        ("ssl-mode=DISABLED", &[("skip-ssl", ""), ("ssl-ca", file)], never),
        // The last line of one word, however it is spelt.
        ("", &[("ssl-mode", "VERIFY_IDENTITY"), ("ssl_mode", "DISABLED")], never),
        ("", &[("ssl_mode", "DISABLED"), ("ssl-mode", "VERIFY_IDENTITY")], name),
        (
            "",
            &[("tls-version", "TLSv1.2, TLSv1.3"), ("skip-ssl-crl", ""), ("ssl-fips-mode", "OFF")],
            offered,
        ),
    ] {
        assert_eq!(
            home.decided(&format!("mysql://h/?{url}"), options).unwrap(),
            expected,
            "{url} {options:?}"
        );
    }
}

#[test]
fn words_of_mysql_that_nobody_knows_or_that_contradict_each_other_are_refused() {
    let home = OfMySql::new();
    let file = home.authorities();
    let file = file.as_str();
    for (url, word) in [
        ("ssl-mode=STRICT", "not one of DISABLED"),
        ("ssl-mode=", "the URL has the ssl-mode ``, which is not one of"),
        ("ssl-ca=", "is not a file"),
        ("ssl-ca=/no/such", "is not a file"),
        ("ssl-crl=/x", "revoked"),
        ("ssl-mode=DISABLED&ssl-verify-server-cert=1", "by ssl-verify-server-cert how it is"),
        ("ssl-mode=DISABLED&ssl-ca=/x", "by ssl-ca how it is"),
        ("ssl-mode=VERIFY_IDENTITY&ssl-verify-server-cert=0", "ssl-verify-server-cert is off"),
    ] {
        let error = home.decided(&format!("mysql://h/?{url}"), &[]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    for (options, word) in [
        (
            &[("ssl-mode", "DISABLED"), ("ssl-verify-server-cert", "")][..],
            "by ssl-verify-server-cert how it is",
        ),
        (&[("ssl", "0"), ("ssl-ca", file)], "by ssl-ca how it is"),
        (&[("skip-ssl", ""), ("ssl-mode", "REQUIRED")], "by ssl-mode how it is"),
        (&[("skip-ssl", ""), ("ssl-fp", "x")], "by ssl-fp how it is"),
        (&[("skip-ssl", ""), ("ssl", "")], "both that ssl is on and that it is off"),
        (&[("ssl-fp", "x")], "ssl-fp is given"),
        (&[("ssl_fplist", "/x")], "ssl-fplist is given"),
        (&[("tls-fp", "x")], "tls-fp is given"),
        (&[("ssl-cipher", "x")], "ssl-cipher is given"),
        (&[("ssl-fips-mode", "STRICT")], "ssl-fips-mode is given"),
        (&[("ssl-verify", "1")], "ssl-verify is given"),
        (&[("ssl-verify-server-cert # yes", "1")], "ssl-verify-server-cert # yes is given"),
        (&[("tls-version", "SSLv3")], "some of TLSv1.2"),
        (&[("!includedir /etc/x", "")], "includes other files"),
    ] {
        let error = home.decided("mysql://h/", options).unwrap_err().to_string();
        assert!(error.contains(word), "{options:?}: {error}");
    }
}

#[test]
fn only_tls_1_3_counts_where_tls_version_names_nothing_else() {
    let newest = |versions: &str| {
        let options = BTreeMap::from([("tls-version".to_owned(), versions.to_owned())]);
        let address = Address::parse("mysql://h/").unwrap();
        of_mysql(&address, &options, &Surroundings::default(), "h").unwrap().newest_only
    };
    assert!(newest("tlsv1.3") && newest("TLSv1.3,TLSv1.3") && !newest("TLSv1.2,TLSv1.3"));
}

#[test]
fn the_key_of_a_mysql_server_is_asked_for_where_that_is_said_or_read_from_a_file() {
    let options = BTreeMap::from([("server-public-key-path".to_owned(), "/x".to_owned())]);
    let address = Address::parse("mysql://192.0.2.7/").unwrap();
    let error = of_mysql(&address, &options, &Surroundings::default(), "192.0.2.7")
        .unwrap_err()
        .to_string();
    assert!(error.contains("/x, which is not a file"), "{error}");
    let key = |url: &str, options: &[(&str, &str)]| {
        let options =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of_mysql(&Address::parse(url).unwrap(), &options, &Surroundings::default(), "h")
            .unwrap()
            .server_key
    };
    assert_eq!(key("mysql://h/", &[]), ServerKey::Unknown);
    assert_eq!(key("mysql://h/?get-server-public-key=1&ssl-mode=DISABLED", &[]), ServerKey::Asked);
    assert_eq!(key("mysql://h/?get_server_public_key", &[]), ServerKey::Asked);
    assert_eq!(key("mysql://h/", &[("get-server-public-key", "")]), ServerKey::Asked);
    assert_eq!(key("mysql://h/", &[("skip-get-server-public-key", "")]), ServerKey::Unknown);
    assert_eq!(
        key("mysql://h/?get-server-public-key=0", &[("get-server-public-key", "")]),
        ServerKey::Unknown
    );
    let home = OfMySql::new();
    let file = home.authorities();
    let named = format!("mysql://h/?get-server-public-key=1&server-public-key-path={file}");
    assert_eq!(key(&named, &[]), ServerKey::File(file.into()));
}

#[test]
fn a_my_cnf_that_cannot_be_read_is_an_error_that_says_so() {
    let home = OfMySql::new();
    std::fs::create_dir(home.0.path().join(".my.cnf")).unwrap();
    let asking = super::super::Asking::default();
    let error = super::super::open(
        &Address::parse("mysql://127.0.0.1:1/").unwrap(),
        &asking,
        &home.surroundings(),
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains("~/.my.cnf is there and cannot be read"), "{error}");
}

#[test]
fn what_postgresql_demands_and_is_not_done_here_is_refused_wherever_it_stands() {
    for (key, variable, value, harmless) in [
        ("gssencmode", "PGGSSENCMODE", "require", "prefer"),
        ("sslcertmode", "PGSSLCERTMODE", "require", "allow"),
        ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", "TLSv1.2", "TLSv1.3"),
    ] {
        for (service, variables) in [(&[(key, value)][..], &[][..]), (&[], &[(variable, value)])] {
            let error = postgres("postgresql://h/d", service, variables).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{key} is `{value}`")) && error.contains(variable),
                "{error}"
            );
        }
        postgres("postgresql://h/d", &[(key, harmless)], &[]).unwrap();
        postgres("postgresql://h/d", &[], &[(variable, harmless)]).unwrap();
    }
    let socket = "postgresql:///d?host=/run/x";
    assert!(postgres(socket, &[("requirepeer", "postgres")], &[]).is_err());
    assert!(postgres(socket, &[("require_auth", "scram")], &[]).is_err());
    let required = |url: &str, service: &[(&str, &str)], variables: &[(&str, &str)]| {
        postgres(url, service, variables).unwrap().require_auth
    };
    let scram = RequireAuth::of("scram-sha-256").unwrap();
    let variable = [("PGREQUIREAUTH", "md5")];
    assert_eq!(required("postgresql://h/d?require_auth=scram-sha-256", &[], &variable), scram);
    assert_eq!(
        required("postgresql://h/d", &[("require_auth", "scram-sha-256")], &variable),
        scram
    );
    assert_eq!(required(socket, &[], &[("PGREQUIREAUTH", "scram-sha-256")]), scram);
    assert_eq!(required(socket, &[("require_auth", "")], &[]), RequireAuth::default());
    postgres(socket, &[("gssencmode", "require"), ("sslcertmode", "require")], &[]).unwrap();
    postgres("postgresql://h/d", &[("requirepeer", "postgres")], &[]).unwrap();
    // The old word counts where no new one is.
    let need = |service: &[(&str, &str)]| postgres("postgresql://h/d", service, &[]).unwrap().need;
    assert_eq!(need(&[("requiressl", "1")]), Need::Always);
    assert_eq!(need(&[("requiressl", "0")]), Need::IfOffered);
    assert_eq!(need(&[("requiressl", "1"), ("sslmode", "prefer")]), Need::IfOffered);
    // A certificate of this client that is not to be shown is not.
    let own = [("sslcert", "/x"), ("sslkey", "/y")];
    assert!(postgres("postgresql://h/d", &own, &[]).unwrap().own.is_some());
    assert!(
        postgres("postgresql://h/d", &own, &[("PGSSLCERTMODE", "disable")]).unwrap().own.is_none()
    );
}

#[test]
fn redis_is_verified_unless_the_url_says_otherwise() {
    let decided = |url: &str| {
        let one = of_redis(&Address::parse(url).unwrap(), &Surroundings::default());
        one.map(|one| (one.need, one.verify)).map_err(|error| error.to_string())
    };
    assert_eq!(decided("redis://h").unwrap(), (Need::Never, Verify::Nothing));
    assert_eq!(decided("rediss://h").unwrap(), (Need::Always, Verify::Name));
    assert_eq!(decided("valkeys://h?verify=ca").unwrap(), (Need::Always, Verify::Chain));
    assert_eq!(decided("rediss://h?verify=none").unwrap(), (Need::Always, Verify::Nothing));
    assert!(decided("rediss://h?verify=no").unwrap_err().contains("full, ca, none"));
    assert!(decided("redis://h?cacert=/etc/ssl/x").unwrap_err().contains("rediss://"));
}
