//! Numbers for people: sizes, counts, and tables of them.
//!
//! One place, so that every verb says a size in the same way.
//!
//! Invariant: memory and files are in powers of 1024, with the unit that says so.

/// A size with its unit: `512 B`, `12.0 KiB`, `1.4 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        // What would be written as 1024.0 belongs to the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// A whole number with separators: `32,768`.
#[must_use]
pub fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of weights, as models are named after it: `135 M`, `8.03 B`.
#[must_use]
pub fn weights(number: u64) -> String {
    let (value, unit) = match number {
        0..1_000 => return number.to_string(),
        1_000..1_000_000 => (number as f64 / 1e3, "K"),
        1_000_000..1_000_000_000 => (number as f64 / 1e6, "M"),
        _ => (number as f64 / 1e9, "B"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// Lines of columns: the first to the left, the others to the right, two spaces between them.
#[must_use]
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cell = |(column, text): (usize, &String)| match column {
            0 => format!("{text:<0$}", widths[0]),
            _ => format!("{text:>0$}", widths[column]),
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{size, weights, whole};

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!([0, 1023, 1024, 12_288].map(size), ["0 B", "1023 B", "1.0 KiB", "12.0 KiB"]);
        assert_eq!([(1 << 20) - 1, 1 << 20, u64::MAX].map(size), ["1.0 MiB", "1.0 MiB", "16384.0 PiB"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([42, 75_000, 134_515_008].map(weights), ["42", "75.0 K", "135 M"]);
        assert_eq!([8_030_261_248, 70_600_000_000].map(weights), ["8.03 B", "70.6 B"]);
    }
}
