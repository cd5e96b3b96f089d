//! What a job is called.
//!
//! Invariant: an id cannot be guessed: it is 128 random bits, and nothing else.

use std::fmt;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// The id of a job, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// A text that is no id of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a job is 32 hexadecimal digits")]
pub struct NoJobId;

impl JobId {
    pub(super) fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        Ok(Self(random))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = NoJobId;

    fn from_str(text: &str) -> Result<Self, NoJobId> {
        // One form each: an id is also compared as text, by callers and in logs.
        let digits = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() != 32 || !text.bytes().all(digits) {
            return Err(NoJobId);
        }
        u128::from_str_radix(text, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| NoJobId)
    }
}

impl ToSql for JobId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for JobId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        FromSql::column_result(value).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::{JobId, NoJobId};

    #[test]
    fn an_id_is_written_and_read_in_one_form() {
        let id = JobId::generate().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("000000000000000000000000000000ff".parse::<JobId>().unwrap().to_string().len(), 32);
        for wrong in ["", "+00000000000000000000000000000ff", "000000000000000000000000000000FF", "ff"] {
            assert_eq!(wrong.parse::<JobId>(), Err(NoJobId), "{wrong}");
        }
        assert_ne!(JobId::generate().unwrap(), id);
    }
}
