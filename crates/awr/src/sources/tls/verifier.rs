//! Whether a server's certificate is one that the user trusts: the chain, the days, the name.
//!
//! Chains are judged by the TLS library (rustls-webpki, after RFC 5280). Two forms that it refuses
//! and that are common with databases are accepted besides, and only where the user named a file of
//! authorities:
//!
//! - the server's certificate itself is in that file, byte by byte (one that signed itself);
//! - it is of version 1, which `openssl x509 -req` makes, and an authority in that file signed it
//!   directly.
//!
//! A certificate in that file that is no authority's is trusted for the server that shows it and
//! signs for nobody.
//!
//! Where nothing is to be verified, a server still proves that it has the key of the certificate
//! that it shows.
//!
//! Deliberately absent: revocation lists, stapled answers.
//!
//! Invariant: a certificate that is out of its days, of no authority that is trusted, or of another
//! name where names count is refused.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use super::certificate::Certificate;
use super::refusal::Refusal;
use super::{Verify, Words};

/// Who is trusted.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) store: RootCertStore,
    /// The certificates of a file that the user named; none of those of the system.
    pub(super) named: Vec<CertificateDer<'static>>,
    /// Where they are from, for messages.
    pub(super) from: String,
}

/// Judges certificates.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) verify: Verify,
    pub(super) authorities: Option<Authorities>,
    pub(super) host: String,
    pub(super) ways: WebPkiSupportedAlgorithms,
    pub(super) words: &'static Words,
}

fn refused(refusal: Refusal) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal))))
}

impl Verifier {
    fn judge(
        &self,
        bytes: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let Some(authorities) =
            self.authorities.as_ref().filter(|_| self.verify != Verify::Nothing)
        else {
            return Ok(());
        };
        let Some(certificate) = Certificate::of(bytes) else {
            return Err(Refusal::new(
                "what the server shows is not a certificate that can be read",
                "Give the server another certificate",
            ));
        };
        let about = |what: &str| {
            format!("the certificate of the server ({}) {what}", certificate.described())
        };
        if now.as_secs() > certificate.until.unix_s {
            let remedy = "Renew the certificate of the server, or set the clock of this machine if \
                          that is wrong";
            return Err(Refusal::new(about(&format!("expired on {}", certificate.until)), remedy));
        }
        if now.as_secs() < certificate.from.unix_s {
            let remedy = "Set the clock of this machine or of the one that made the certificate";
            return Err(Refusal::new(
                about(&format!("is valid from {} only", certificate.from)),
                remedy,
            ));
        }
        if let Err(reason) = self.chain(&certificate, bytes, between, authorities, now) {
            let reason = match reason {
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    format!("is of no authority in {}", authorities.from)
                }
                rustls::Error::InvalidCertificate(reason) => {
                    format!(
                        "is not accepted with the authorities in {}: {reason}",
                        authorities.from
                    )
                }
                reason => format!(
                    "is not accepted with the authorities in {}: {reason}",
                    authorities.from
                ),
            };
            return Err(Refusal::new(about(&reason), self.words.root));
        }
        if self.verify == Verify::Name {
            // Authorities of the system put names where they belong. One whose names are limited
            // must not evade that by a common name.
            let limited = |bytes: &CertificateDer<'_>| {
                Certificate::of(bytes).is_none_or(|one| one.constrains_names())
            };
            let common = !authorities.named.is_empty()
                && !authorities.named.iter().chain(between).any(limited);
            if !certificate.is_for(&self.host, common) {
                let host = crate::figure::visible(&self.host);
                let reason = about(&format!("is for {} and not for `{host}`", certificate.names()));
                return Err(Refusal::new(reason, self.words.name));
            }
        }
        Ok(())
    }

    fn chain(
        &self,
        certificate: &Certificate<'_>,
        bytes: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        authorities: &Authorities,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if authorities.named.iter().any(|one| certificate.is(one)) {
            return Ok(());
        }
        if certificate.version == 1 {
            let signed =
                authorities.named.iter().filter_map(|one| Certificate::of(one)).any(|authority| {
                    authority.may_sign()
                        && !authority.constrains_names()
                        && certificate.is_signed_by(&authority, self.ways.all)
                });
            return if signed { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) };
        }
        let parsed = ParsedCertificate::try_from(bytes)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &authorities.store,
            between,
            now,
            self.ways.all,
        )
        // The library has another word for one that is an authority's.
        .map_err(|error| {
            if certificate.is_by_itself() { CertificateError::UnknownIssuer.into() } else { error }
        })
    }

    /// Whether the owner of the certificate signed the handshake, for certificates that the library
    /// does not read.
    fn signed(
        &self,
        message: &[u8],
        bytes: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
        of_13: bool,
    ) -> Option<HandshakeSignatureValid> {
        let certificate = Certificate::of(bytes).filter(|certificate| certificate.version < 3)?;
        let (_, ways) = self.ways.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme)?;
        // TLS 1.3 knows no signatures of RSA in the old form, and each scheme has one curve.
        let old = [
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ];
        let ways = match of_13 {
            true if old.contains(&signature.scheme) => &[],
            true => ways.get(..1)?,
            false => ways,
        };
        let valid =
            ways.iter().any(|way| certificate.has_signed(*way, message, signature.signature()));
        valid.then(HandshakeSignatureValid::assertion)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge(end_entity, intermediates, now).map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.ways)
            .or_else(|error| self.signed(message, cert, dss, false).ok_or(error))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.ways)
            .or_else(|error| self.signed(message, cert, dss, true).ok_or(error))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.ways.supported_schemes()
    }
}
