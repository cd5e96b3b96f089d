//! The golden streams, for the tests that read them all.

use std::fs;
use std::path::{Path, PathBuf};

use firsttoken_wire::Dialect;

/// Every stream in the folders of these dialects, by path: where it is, its dialect and its bytes.
pub(crate) fn golden(dialects: &[(&str, Dialect)]) -> Vec<(PathBuf, Dialect, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut all = Vec::new();
    for &(folder, dialect) in dialects {
        let files = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        for path in files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|x| x == "sse"))
        {
            let bytes = fs::read(&path).unwrap_or_default();
            all.push((path, dialect, bytes));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}
