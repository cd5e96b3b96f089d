//! Our own keys: who may call, and how a new key is made.
//!
//! Only the SHA-256 of a key is ever stored. The keys are 256 random bits, so a plain hash is
//! enough: there is nothing to guess, and no password hash has to slow every request down.
//!
//! Invariant: a check takes the same time whichever key was presented and however much of it is
//! right. Every configured hash is compared, in constant time, and nothing ends the loop early.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::config::{Key, KeyLimits};

/// What every key starts with, so that one can tell what it is and secret scanners find it.
pub const SECRET_PREFIX: &str = "ft-";

/// Random bytes in a key.
const SECRET_BYTES: usize = 32;

/// Who calls. Cheap to clone: it travels with the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose request it is.
    pub tenant: Arc<str>,
    /// Name of the key, for logs and metrics.
    pub key: Arc<str>,
    /// How much it may ask.
    pub limits: KeyLimits,
}

/// Why a caller was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No key was presented, and one is needed.
    #[error("no API key was presented; send `Authorization: Bearer {SECRET_PREFIX}…` or `x-api-key`")]
    Missing,
    /// The key is none of ours.
    #[error("the API key is not one of this gateway's; `firsttoken key new` makes one")]
    Unknown,
}

/// The keys that are let in.
#[derive(Clone)]
pub struct Keyring {
    entries: Vec<([u8; 32], Caller)>,
    anonymous: Caller,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|(_, caller)| caller)).finish()
    }
}

impl Keyring {
    /// Lets in whoever has one of `keys`; anyone at all if there are none.
    #[must_use]
    pub fn new(keys: &[Key]) -> Self {
        let caller = |key: &Key| Caller {
            tenant: key.tenant.as_str().into(),
            key: key.name.as_str().into(),
            limits: key.limits,
        };
        Self {
            entries: keys.iter().map(|key| (key.sha256, caller(key))).collect(),
            anonymous: Caller {
                tenant: "default".into(),
                key: "anonymous".into(),
                limits: KeyLimits::default(),
            },
        }
    }

    /// Whether anyone is let in without a key.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.entries.is_empty()
    }

    /// Says who presented the key. Without configured keys everyone is `anonymous`, tenant `default`.
    ///
    /// # Errors
    /// If there are keys and none, or a wrong one, was presented.
    pub fn authenticate(&self, presented: Option<&str>) -> Result<Caller, AuthError> {
        if self.is_open() {
            return Ok(self.anonymous.clone());
        }
        let presented = presented.ok_or(AuthError::Missing)?;
        let hash: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        let mut found = u64::MAX;
        for (index, (expected, _)) in (0_u64..).zip(&self.entries) {
            found.conditional_assign(&index, hash.as_slice().ct_eq(expected.as_slice()));
        }
        let found = usize::try_from(found).ok().and_then(|index| self.entries.get(index));
        found.map(|(_, caller)| caller.clone()).ok_or(AuthError::Unknown)
    }
}

/// A key that was just made. It has no `Debug`, so that it does not end up in a log.
pub struct NewKey {
    /// What the caller presents. Shown once, stored nowhere.
    pub secret: String,
    /// What the gateway keeps.
    pub sha256_hex: String,
}

impl NewKey {
    /// The entry for `firsttoken.toml`, which gives nothing away.
    #[must_use]
    pub fn toml(&self, name: &str) -> String {
        let name = toml::Value::from(name);
        format!("[[keys]]\nname = {name}\nsha256 = \"{}\"\n", self.sha256_hex)
    }
}

/// Makes a key of 256 random bits.
///
/// # Errors
/// If the system has no randomness to give.
pub fn generate() -> Result<NewKey, getrandom::Error> {
    let mut random = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut random)?;
    let secret = format!("{SECRET_PREFIX}{}", hex(&random));
    let sha256_hex = hex(&Sha256::digest(secret.as_bytes()));
    Ok(NewKey { secret, sha256_hex })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, tenant: &str, secret: &str) -> Key {
        Key {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            sha256: Sha256::digest(secret.as_bytes()).into(),
            limits: KeyLimits::default(),
        }
    }

    #[test]
    fn each_key_is_its_own_caller() {
        let ring = Keyring::new(&[key("web", "acme", "ft-one"), key("batch", "acme", "ft-two")]);
        let caller = ring.authenticate(Some("ft-two")).unwrap();
        assert_eq!((&*caller.tenant, &*caller.key), ("acme", "batch"));
        assert_eq!(&*ring.authenticate(Some("ft-one")).unwrap().key, "web");
        assert!(!ring.is_open());
    }

    #[test]
    fn who_has_no_key_or_a_wrong_one_stays_out() {
        let ring = Keyring::new(&[key("web", "acme", "ft-one")]);
        assert_eq!(ring.authenticate(None), Err(AuthError::Missing));
        for wrong in ["", "ft-", "ft-on", "ft-one ", "FT-ONE", "ft-onee", "\0"] {
            assert_eq!(ring.authenticate(Some(wrong)), Err(AuthError::Unknown), "{wrong:?}");
        }
    }

    #[test]
    fn without_keys_everyone_is_anonymous() {
        let ring = Keyring::new(&[]);
        let caller = ring.authenticate(Some("whatever")).unwrap();
        assert_eq!((&*caller.tenant, &*caller.key), ("default", "anonymous"));
        assert!(ring.is_open());
    }

    #[test]
    fn a_new_key_opens_the_door_that_its_toml_describes() {
        let (new, other) = (generate().unwrap(), generate().unwrap());
        assert_eq!(new.secret.len(), 3 + 64);
        assert_ne!(new.secret, other.secret);
        let entry = new.toml("an \"odd\" name");
        assert!(!entry.contains(&new.secret));
        let text = format!("{entry}\n[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\nauth = \"none\"\n");
        let config = crate::config::Config::from_toml(&text, "t.toml", &|_| None).unwrap();
        let ring = Keyring::new(&config.keys);
        assert_eq!(&*ring.authenticate(Some(&new.secret)).unwrap().key, "an \"odd\" name");
        assert_eq!(ring.authenticate(Some(&other.secret)), Err(AuthError::Unknown));
    }

    #[test]
    fn a_keyring_shows_no_hash() {
        let ring = Keyring::new(&[key("web", "acme", "ft-one")]);
        assert_eq!(format!("{ring:?}").matches("ft-one").count(), 0);
        assert!(!format!("{ring:?}").contains("sha256"));
    }
}
