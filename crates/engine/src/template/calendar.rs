//! The date, for templates that tell it to the model.
//!
//! Days are counted in years that begin in March, so that the leap day is the last one (Hinnant, "chrono-
//! Compatible Low-Level Date Algorithms", `civil_from_days`).
//!
//! Invariant: UTC, and a conversion that is not known stays as it is.

/// Seconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixSeconds(pub u64);

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// `format` with the conversions of C's strftime that templates use.
pub(super) fn format(now: UnixSeconds, format: &str) -> String {
    let (days, second) = (now.0 / 86_400, now.0 % 86_400);
    let (year, month, day) = civil(days);
    let month_name =
        usize::try_from(month - 1).ok().and_then(|at| MONTHS.get(at)).copied().unwrap_or_default();
    let day_name = usize::try_from(days % 7).ok().and_then(|at| DAYS.get(at)).copied().unwrap_or_default();
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        match rest.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('H') => out.push_str(&format!("{hour:02}")),
            Some('I') => out.push_str(&format!("{:02}", (hour + 11) % 12 + 1)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('M') => out.push_str(&format!("{minute:02}")),
            Some('S') => out.push_str(&format!("{:02}", second % 60)),
            Some('Z') => out.push_str("UTC"),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Year, month and day from the days since 1970.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = |seconds, how: &str| format(UnixSeconds(seconds), how);
        assert_eq!(shown(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(shown(951_782_400, "%d %b %y"), "29 Feb 00");
        assert_eq!(shown(1_709_251_199, "%a %Y-%m-%d %I:%M %p %Z"), "Thu 2024-02-29 11:59 PM UTC");
        assert_eq!(shown(4_107_542_400, "%Y-%m-%d"), "2100-03-01");
        assert_eq!(shown(0, "100%% %q %"), "100% %q %");
    }
}
