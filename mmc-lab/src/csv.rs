//! bonnie++'s CSV rows as they are met in the wild, from 1.03 and from 1.96 to 2.00, read without loss.
//!
//! It is not bonnie++: `bonnie_csv` prints the rows of our own runs. Facts: `spec/bonnie.md` §1, checked against rows of
//! bonnie++ itself.
//!
//! A row keeps its fields as they were written and prints them again byte for byte; [`Row::phase`] and
//! [`Row::latency_us`] say what they mean. Columns are found by the number of fields, never by a header: the header of
//! 2.00a has 48 names, its rows have 50 fields.

use crate::workload::bonnie::PHASES;

/// Which layout a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 27 fields, no version: 1.03 and 1.04.
    V1_03,
    /// 48 fields: 1.96 and 1.97, without the number of seeks and seekers.
    V1_96,
    /// 50 fields: 1.98 to 2.00.
    V2,
}

impl Format {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_03 => "1.03",
            Self::V1_96 => "1.96",
            Self::V2 => "2.x",
        }
    }
    /// Where the machine, the size, the I/O phases, the number of files and the file phases are; latencies, if any.
    fn places(self) -> [usize; 5] {
        match self {
            Self::V1_03 => [0, 1, 2, 14, 15],
            Self::V1_96 => [2, 5, 7, 19, 24],
            Self::V2 => [2, 5, 9, 21, 26],
        }
    }
}

/// A value of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The phase was not run, or took no time.
    Absent,
    /// `+++++`: too short for bonnie++ to trust.
    TooShort,
    /// KiB/s, or seeks or files per second.
    Value(f64),
}

/// Why a line is no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRow {
    /// Not 27, 48 or 50 fields.
    #[error("{0} fields: a row of bonnie++ has 27 (1.03), 48 (1.96) or 50 (2.x)")]
    Fields(usize),
    /// Right number of fields, but a value is none.
    #[error("field {field} (`{text}`) is no {what}")]
    Value {
        /// From 1.
        field: usize,
        /// What is there.
        text: String,
        /// What is expected.
        what: &'static str,
    },
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    format: Format,
    fields: Vec<String>,
}

impl Row {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`BadRow`].
    pub fn parse(line: &str) -> Result<Self, BadRow> {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let format = match fields.len() {
            27 => Format::V1_03,
            48 => Format::V1_96,
            50 => Format::V2,
            n => return Err(BadRow::Fields(n)),
        };
        let row = Self { format, fields };
        for phase in 0..PHASES.len() {
            let at = row.place(phase);
            let bad =
                |field: usize, what| BadRow::Value { field: field + 1, text: row.field(field).into(), what };
            rate(row.field(at)).ok_or_else(|| bad(at, "rate"))?;
            rate(row.field(at + 1)).ok_or_else(|| bad(at + 1, "share of the processor"))?;
            if let Some(at) = row.latency_place(phase) {
                latency(row.field(at)).ok_or_else(|| bad(at, "latency"))?;
            }
        }
        Ok(row)
    }
    fn field(&self, i: usize) -> &str {
        self.fields.get(i).map_or("", String::as_str)
    }
    fn place(&self, phase: usize) -> usize {
        let [_, _, io, _, files] = self.format.places();
        if phase < 6 { io + 2 * phase } else { files + 2 * (phase - 6) }
    }
    fn latency_place(&self, phase: usize) -> Option<usize> {
        let [.., files] = self.format.places();
        (self.format != Format::V1_03).then_some(files + 12 + phase)
    }
    /// The layout.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }
    /// The row as it was, byte for byte.
    #[must_use]
    pub fn print(&self) -> String {
        self.fields.join(",")
    }
    /// Name of the machine.
    #[must_use]
    pub fn machine(&self) -> &str {
        self.field(self.format.places()[0])
    }
    /// Version of the program; 1.03 does not say.
    #[must_use]
    pub fn version(&self) -> &str {
        if self.format == Format::V1_03 { "1.03" } else { self.field(1) }
    }
    /// Size of the file as written (`512M`, `1G:4k`); empty if the I/O phases were not run.
    #[must_use]
    pub fn size(&self) -> &str {
        self.field(self.format.places()[1])
    }
    /// Number of files as written (`16`, `16:1024:10/2`).
    #[must_use]
    pub fn files(&self) -> &str {
        self.field(self.format.places()[3])
    }
    /// Directories of the file phases. 2.00a prints them one column late when there are several.
    #[must_use]
    pub fn directories(&self) -> u32 {
        let number = |text: &str| text.parse().ok();
        let several = match self.format {
            Format::V1_03 => self.files().split_once('/').and_then(|(_, n)| number(n)),
            Format::V1_96 | Format::V2 => {
                let at = self.format.places()[3];
                number(self.field(at + 3)).or_else(|| number(self.field(at + 4)))
            }
        };
        several.unwrap_or(1)
    }
    /// What phase number `phase` of [`PHASES`] reached.
    #[must_use]
    pub fn phase(&self, phase: usize) -> Rate {
        rate(self.field(self.place(phase))).unwrap_or(Rate::Absent)
    }
    /// Percent of a processor it took.
    #[must_use]
    pub fn cpu(&self, phase: usize) -> Rate {
        rate(self.field(self.place(phase) + 1)).unwrap_or(Rate::Absent)
    }
    /// Its longest single operation in microseconds, as exact as it was printed; 1.03 has none.
    #[must_use]
    pub fn latency_us(&self, phase: usize) -> Option<u64> {
        self.latency_place(phase).and_then(|at| latency(self.field(at))).flatten()
    }
}

/// A rate; `None`: it is none.
fn rate(text: &str) -> Option<Rate> {
    match text {
        "" => Some(Rate::Absent),
        _ if text.bytes().all(|b| b == b'+') => Some(Rate::TooShort),
        _ => {
            let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            text.parse().ok().filter(|_| plain).map(Rate::Value)
        }
    }
}

/// A latency in microseconds, or nothing; `None`: it is neither.
fn latency(text: &str) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let units = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))?;
    number.parse::<u64>().ok()?.checked_mul(scale).map(Some)
}

/// A row found in a line: the line itself, the 2.x row of our text report, or that of an object of
/// `mmc-lab bonnie --json` (then with the name of its scheduler).
#[must_use]
pub fn find(line: &str) -> Option<(Result<Row, BadRow>, Option<String>)> {
    let line = line.trim_end_matches(['\r', '\n']);
    if line.starts_with('{') {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        let row = object.get("csv_2")?.as_str()?;
        let name = object.get("scheduler").and_then(|p| p.as_str()).map(str::to_owned);
        return Some((Row::parse(row), name));
    }
    let trimmed = line.trim_start();
    if trimmed.starts_with("1.03: ") {
        // The same run as in the line that follows it in our report.
        return None;
    }
    let row = trimmed.strip_prefix("2.x:  ").unwrap_or(line);
    let commas = row.matches(',').count();
    // A header is as long as a row; the text table has no commas.
    let header = row.starts_with("name,") || row.starts_with("format_version,");
    (commas >= 20 && !header).then(|| (Row::parse(row), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REAL: &str = "1.98,2.00a,QemuSD,1,1796042154,512M,,8192,5,,,5979,3,5996,3,,,392560,99,305.9,4,4,,,,,2584,29,+++++,+++,5015,53,4716,51,+++++,+++,4159,44,,13101ms,10742ms,,31us,32030us,586us,2354us,2715us,556us,14us,154us";

    #[test]
    fn a_real_row_says_what_bonnie_measured() {
        let row = Row::parse(REAL).unwrap();
        assert_eq!((row.machine(), row.version(), row.size(), row.files()), ("QemuSD", "2.00a", "512M", "4"));
        assert_eq!(
            (row.phase(0), row.phase(1), row.cpu(1)),
            (Rate::Absent, Rate::Value(5979.0), Rate::Value(3.0))
        );
        assert_eq!((row.phase(5), row.phase(7)), (Rate::Value(305.9), Rate::TooShort));
        assert_eq!(
            (row.latency_us(0), row.latency_us(1), row.latency_us(11)),
            (None, Some(13_101_000), Some(154))
        );
        assert_eq!(row.print(), REAL);
    }

    #[test]
    fn the_older_layouts_are_known_by_their_length() {
        let old = Row::parse("box,1G:4k,,,5979,3,,,,,,,305.9,4,16:1024:10/3,,,+++++,+++,,,,,,,,").unwrap();
        assert_eq!((old.format(), old.size(), old.directories()), (Format::V1_03, "1G:4k", 3));
        assert_eq!((old.phase(1), old.latency_us(1)), (Rate::Value(5979.0), None));
        let fields: Vec<&str> = REAL.split(',').collect();
        let middle = [&fields[..7], &fields[9..]].concat().join(",");
        let row = Row::parse(&middle).unwrap();
        assert_eq!(
            (row.format(), row.phase(1), row.latency_us(1)),
            (Format::V1_96, Rate::Value(5979.0), Some(13_101_000))
        );
        // 2.00a prints the directories one column late.
        let late = REAL.replace(",4,4,,,,,2584", ",4,1,1024,10,,2,2584");
        assert_eq!(Row::parse(&late).unwrap().directories(), 2);
        assert_eq!(
            Row::parse(&REAL.replace(",4,4,,,,,2584", ",4,1,link,,,,2584"))
                .unwrap()
                .print()
                .matches("link")
                .count(),
            1
        );
    }

    #[test]
    fn rows_are_found_among_other_lines() {
        let found = |line: &str| find(line).map(|(row, _)| row.is_ok());
        assert_eq!(found(REAL), Some(true));
        assert_eq!(found(&format!("  2.x:  {REAL}\r\n")), Some(true));
        assert_eq!(found("QemuSD         512M           5979k   3 5996k   3"), None);
        assert_eq!(
            found(
                "format_version,bonnie_version,name,concurrency,seed,file_size,io_chunk_size,putc,putc_cpu,a,b,c,d,e,f,g,h,i,j,k,l"
            ),
            None
        );
        assert_eq!(found(&REAL.replace("5979", "59x9")), Some(false));
        assert_eq!(found(&format!("{REAL},1")), Some(false));
        let ours = serde_json::json!({"scheduler": "bfq", "csv_2": REAL}).to_string();
        assert_eq!(find(&ours).unwrap().1.as_deref(), Some("bfq"));
    }

    proptest! {
        /// Whatever is read as a row is printed as it was.
        #[test]
        fn a_row_is_printed_as_it_was(fields in proptest::collection::vec("[0-9.+a-z]{0,4}", 20..60)) {
            let line = fields.join(",");
            if let Ok(row) = Row::parse(&line) {
                prop_assert_eq!(row.print(), line);
            }
        }
        #[test]
        fn rows_of_numbers_are_read(n in prop_oneof![Just(27_usize), Just(50)], value in 0_u32..100_000) {
            let mut fields = vec![String::new(); n];
            fields[if n == 27 { 4 } else { 11 }] = value.to_string();
            let line = fields.join(",");
            let row = Row::parse(&line).unwrap();
            prop_assert_eq!(row.phase(1), Rate::Value(f64::from(value)));
            prop_assert_eq!(row.print(), line);
        }
    }
}
