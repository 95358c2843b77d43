//! What was measured, what it is held to, and whether it holds: a table for each group.

use std::fmt::Write as _;

/// What a figure is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing; it is there to be read.
    None,
}

struct Row {
    what: String,
    figure: String,
    target: String,
    verdict: &'static str,
    absolute: String,
}

/// The table of one group.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// A figure with its unit, what it is held to, and the absolute numbers behind it.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        figure: f64,
        unit: &str,
        target: Target,
        absolute: impl Into<String>,
    ) {
        let (target, verdict) = match target {
            Target::AtLeast(least) => (format!("≥ {}{unit}", number(least)), holds(figure >= least)),
            Target::AtMost(most) => (format!("≤ {}{unit}", number(most)), holds(figure <= most)),
            Target::None => (String::new(), ""),
        };
        let (what, absolute) = (what.into(), absolute.into());
        let figure = format!("{}{unit}", number(figure));
        eprintln!("  {what}: {figure} {verdict}");
        self.rows.push(Row { what, figure, target, verdict, absolute });
    }

    /// Something that could not be measured, and why.
    pub(crate) fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let (what, absolute) = (what.into(), why.into());
        eprintln!("  {what}: not measured: {absolute}");
        self.rows.push(Row {
            what,
            figure: "-".into(),
            target: String::new(),
            verdict: "not measured",
            absolute,
        });
    }

    /// How many figures do not hold.
    pub(crate) fn misses(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == holds(false)).count()
    }

    /// The table, in Markdown.
    pub(crate) fn table(&self, group: &str) -> String {
        let head = [group, "figure", "target", "holds", "behind it"].map(str::to_owned);
        let rows = self.rows.iter().map(|row| {
            [
                row.what.clone(),
                row.figure.clone(),
                row.target.clone(),
                row.verdict.to_owned(),
                row.absolute.clone(),
            ]
        });
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
        let mut widths = [3; 5];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for (index, row) in rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if index == 0 {
                for width in widths {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

fn holds(yes: bool) -> &'static str {
    if yes { "yes" } else { "NO" }
}

/// As many digits as tell something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || (size >= 1.0 && value.fract() == 0.0) => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_or_not() {
        let mut report = Report::default();
        report.row("a", 50.0, "×", Target::AtLeast(50.0), "1 to 2");
        report.row("b", 0.3999, "", Target::AtLeast(0.4), "");
        report.row("c", 15.2, " µs", Target::AtMost(15.0), "");
        report.row("d", f64::NAN, "", Target::AtMost(15.0), "");
        report.row("e", 1.0, "", Target::None, "");
        report.missing("f", "not here");
        assert_eq!(report.misses(), 3);
        let table = report.table("g");
        assert!(table.starts_with("| g "), "{table}");
        assert_eq!(table.lines().count(), 8);
        assert!(table.contains("≥ 50×"), "{table}");
    }

    #[test]
    fn numbers() {
        assert_eq!([1234.5, 50.0, 12.34, 0.4, 3.0].map(number), ["1234", "50", "12.3", "0.40", "3"]);
    }
}
