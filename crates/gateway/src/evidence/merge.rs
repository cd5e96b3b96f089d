//! Several pages of metrics as one: the gateway's own, and those of its engines.
//!
//! OpenMetrics has each family once, with all its samples together
//! (<https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>). Two engines tell the
//! same families with different labels, so their pages cannot just follow each other.
//!
//! Invariant: no sample is lost, and each family is described once.

/// What a page ends with.
const END: &str = "# EOF";

/// A family of metrics.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    head: Vec<&'a str>,
    samples: Vec<&'a str>,
}

/// One page with everything that `pages` tell.
pub(crate) fn merge(pages: &[&str]) -> String {
    let mut families: Vec<Family<'_>> = Vec::new();
    for page in pages {
        let mut at = None;
        for line in page.lines().filter(|line| !line.is_empty() && *line != END) {
            let Some(name) = described(line) else {
                if let Some(family) = at.and_then(|at: usize| families.get_mut(at)) {
                    family.samples.push(line);
                }
                continue;
            };
            let known = families.iter().position(|family| family.name == name);
            let index = known.unwrap_or_else(|| {
                families.push(Family { name, ..Family::default() });
                families.len() - 1
            });
            // What follows these lines are samples of this family.
            at = Some(index);
            if !families[index].head.contains(&line) && families[index].samples.is_empty() {
                families[index].head.push(line);
            }
        }
    }
    let mut out = String::new();
    for line in families.iter().flat_map(|family| family.head.iter().chain(&family.samples)) {
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(END);
    out.push('\n');
    out
}

/// The family that a line is about, if it describes one: `# TYPE name counter`.
fn described(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("# ")?.split(' ');
    matches!(words.next()?, "HELP" | "TYPE" | "UNIT").then(|| words.next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn a_family_that_several_tell_is_told_once() {
        let ours = "# HELP a What.\n# TYPE a counter\na_total 1\n# EOF\n";
        let one = "# HELP b More.\n# TYPE b gauge\nb{m=\"1\"} 2\n# HELP a What.\n# TYPE a counter\na_total{m=\"1\"} 3\n# EOF\n";
        let other = "# HELP b More.\n# TYPE b gauge\nb{m=\"2\"} 4\n# EOF\n";
        let merged = "# HELP a What.\n# TYPE a counter\na_total 1\na_total{m=\"1\"} 3\n\
                      # HELP b More.\n# TYPE b gauge\nb{m=\"1\"} 2\nb{m=\"2\"} 4\n# EOF\n";
        assert_eq!(merge(&[ours, one, other]), merged);
        assert_eq!(merge(&[merged]), merged);
    }

    #[test]
    fn a_page_that_is_none_adds_nothing() {
        let ours = "# TYPE a counter\na_total 1\n# EOF\n";
        assert_eq!(merge(&[ours, "", "<html>\n", "# comment\nx 1"]), ours);
    }
}
