//! The text of ftrace's `trace` file, of `trace-cmd report` and of `perf script`: one event a line, of any kernel from
//! 5.10 to 6.18. (Lines of `blkparse` go to their own reader.)
//!
//! ```text
//!   jbd2/mmcblk0-8-83      [000] ....  1031.720477: block_bio_queue: 179,0 WS 3932160 + 8 [jbd2/mmcblk0-8]
//!   jbd2/mmcblk0-8-83      [000] ....  1031.720483: block_rq_insert: 179,0 WS 4096 () 3932160 + 8 be,0,4 [jbd2/mmcblk0-8]
//!      ksoftirqd/0-7       [000] ..s.  1031.722389: block_rq_complete: 179,0 WS () 3932160 + 8 [0]
//!               dd 29315 [001]  5395.956755:   block:block_bio_queue: 7,0 RM 8742 + 2 [dd]
//! ```
//!
//! (the priority `be,0,4` since 6.x; the last line is perf's). Every line of a block event ends with `]`, so a cut line is
//! never taken for a whole one. No input makes the reader panic, and it keeps one line at a time.

use std::io::{self, BufRead};

use super::blkparse;
use super::model::{Command, Event, Kind, Line, Names};

/// No line of a trace is longer; a longer one is read as several, and skipped.
const LONGEST_LINE: usize = 1 << 16;

/// Reads lines; remembers names, so that an event costs no allocation.
#[derive(Debug, Default)]
pub struct Parser {
    names: Names,
    blkparse: blkparse::Parser,
}

impl Parser {
    /// What `line` (without its end) holds.
    pub fn line(&mut self, line: &[u8]) -> Line {
        let line = blanks(line).trim_ascii();
        let Some(first) = line.first() else { return Line::Other };
        if *first == b'#' {
            return line.get(1..).and_then(clock_name).map_or(Line::Other, Line::Clock);
        }
        if (first.is_ascii_digit() || self.blkparse.has_begun())
            && let Some(found) = self.blkparse.line(line, &mut self.names)
        {
            return found;
        }
        let Some((column, at, rest)) = usual_head(line).or_else(|| any_head(line)) else {
            if let Some(events) = lost(line) {
                return Line::Lost(events);
            }
            // What trace-cmd writes before its first event.
            let begin = line.starts_with(b"cpus=") || line.starts_with(b"version = ");
            return if begin { Line::Other } else { Line::Odd };
        };
        let (kind, body) = match usual_event(rest) {
            Some(found) => found,
            None => {
                let Some((name, body)) = split(rest, b": ") else {
                    // A line of the function tracer, an event without fields, or one that is cut.
                    let bare = rest.ends_with(b":") && !rest.starts_with(b"block_");
                    return if bare || split(rest, b" <-").is_some() { Line::Other } else { Line::Odd };
                };
                let name = event_name(name);
                if let b"mmc_request_start" | b"mmc_request_done" = name {
                    let end = name == b"mmc_request_done";
                    return self.command(at, end, body).map_or(Line::Odd, Line::Command);
                }
                let Some(kind) = kind(name) else { return Line::Other };
                (kind, body)
            }
        };
        self.event(column, at, kind, body.trim_ascii_start()).map_or(Line::Odd, Line::Event)
    }

    /// `mmc0: start struct mmc_request[c669d954]: cmd_opcode=25 cmd_arg=0x47fd98 ...`, or `end` with what came of it: fields
    /// by name, of which each kernel has a few more than the one before.
    fn command(&mut self, at: u64, end: bool, body: &[u8]) -> Option<Command> {
        let (host, rest) = split(body.trim_ascii_start(), b": ")?;
        let (head, rest) = split(rest, b"]:")?;
        if host.is_empty() || !host.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        let value = |name: &[u8]| {
            let mut words = rest.split(|&byte| byte == b' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
        };
        let hex = |text: &[u8]| {
            let text = std::str::from_utf8(text).ok()?;
            u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        };
        let opcode = number(value(b"cmd_opcode")?)?.try_into().ok()?;
        let argument = if end { 0 } else { hex(value(b"cmd_arg")?)?.try_into().ok()? };
        let bytes = if end { number(value(b"bytes_xfered")?)? } else { 0 };
        let errors: [&[u8]; 4] = [b"cmd_err", b"stop_err", b"sbc_err", b"data_err"];
        let failed = end && errors.iter().any(|name| value(name).is_some_and(|error| error != b"0"));
        let request = split(head, b"[").and_then(|(_, address)| hex(address)).unwrap_or(0);
        Some(Command { at, host: self.names.get(host), request, end, opcode, argument, bytes, failed })
    }

    /// The event of `kind` whose fields are in `body`; `column` is the first one: the task that ran.
    fn event(&mut self, column: &[u8], at: u64, kind: Kind, body: &[u8]) -> Option<Event> {
        let mut body = Fields(body);
        let major = body.number()?;
        body.mark(b",")?;
        let dev = (major.try_into().ok()?, body.number()?.try_into().ok()?);
        body.mark(b" ")?;
        let rwbs = body.until_byte(b' ')?;
        if rwbs.is_empty() || !rwbs.iter().all(u8::is_ascii_alphabetic) {
            return None;
        }
        match kind {
            Kind::BioQueue | Kind::GetRq | Kind::BackMerge | Kind::FrontMerge => {}
            Kind::RqMerge | Kind::Insert | Kind::Issue => {
                body.number()?;
                body.mark(b" ")?;
                body.command()?;
            }
            Kind::Requeue | Kind::Complete => body.command()?,
        }
        let sector = body.number()?;
        body.mark(b" + ")?;
        let sectors = body.number()?.try_into().ok()?;
        body.mark(b" ")?;
        // Between the size and the bracket there may be a priority.
        body.until_byte(b'[')?;
        let last = body.0.strip_suffix(b"]")?;
        let (name, pid) = who(column);
        let task = match kind {
            Kind::Requeue | Kind::Complete => name,
            _ => last,
        };
        let (task, rwbs) = (self.names.get(task), self.names.get(rwbs));
        Some(Event { at, kind, dev, pid, task, rwbs, sector, sectors })
    }
}

/// The fields of a line, taken off its front one by one; each method says `None` where the line has something else.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let (value, rest) = leading(self.0)?;
        self.0 = rest;
        Some(value)
    }
    fn mark(&mut self, mark: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(mark)?;
        Some(())
    }
    /// What comes before `mark`, which is taken as well. It is near: a search that wins where it is far would lose.
    fn until_byte(&mut self, mark: u8) -> Option<&'a [u8]> {
        let at = self.0.iter().position(|&byte| byte == mark)?;
        let (before, rest) = self.0.split_at_checked(at)?;
        self.0 = rest.get(1..)?;
        Some(before)
    }
    /// The bytes of a command in round brackets, most often none, and the blank behind.
    fn command(&mut self) -> Option<()> {
        if self.mark(b"() ").is_some() {
            return Some(());
        }
        self.mark(b"(")?;
        self.0 = split(self.0, b") ")?.1;
        Some(())
    }
}

/// The task column, the stamp and what follows `: `, of a line as nearly all are: a CPU in the first square bracket, perhaps
/// a word of flags, the stamp. `None` says nothing but that the line is not like that.
fn usual_head(line: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let (column, rest) = line.split_at_checked(memchr::memchr(b'[', line)?)?;
    if column.last() != Some(&b' ') {
        return None;
    }
    let (_, rest) = leading(rest.get(1..)?)?;
    let mut rest = blanks(rest.strip_prefix(b"] ")?);
    if !rest.first()?.is_ascii_digit() {
        let flags = rest.iter().position(|&byte| byte == b' ' || byte == b':')?;
        rest = blanks(rest.get(flags..)?.strip_prefix(b" ")?);
    }
    let (seconds, fraction) = leading(rest)?;
    let fraction = fraction.strip_prefix(b".")?;
    let (value, rest) = leading(fraction)?;
    let at = nanoseconds(seconds, value, fraction.len() - rest.len())?;
    Some((column.trim_ascii_end(), at, rest.strip_prefix(b": ")?))
}

/// The same of any line: a task may be called anything, and a mark may quote a line, so the event begins after the first
/// stamp that follows a CPU in brackets.
fn any_head(line: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    memchr::memchr_iter(b':', line).find_map(|colon| {
        let (head, rest) = line.split_at_checked(colon)?;
        let rest = rest.strip_prefix(b": ")?;
        let (task, at) = task_and_stamp(head)?;
        Some((task, at, rest))
    })
}

/// Without the blanks it begins with: many, most often.
fn blanks(mut text: &[u8]) -> &[u8] {
    while let Some((b"        ", rest)) = text.split_first_chunk::<8>() {
        text = rest;
    }
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// The block event that `rest` begins with as the kernel prints it, and its fields; `None`: another event, or it is written
/// otherwise.
fn usual_event(rest: &[u8]) -> Option<(Kind, &[u8])> {
    let name = rest.strip_prefix(b"block_")?;
    let (kind, whole): (Kind, &[u8]) = match name.first_chunk::<5>()? {
        b"bio_q" => (Kind::BioQueue, b"bio_queue: "),
        b"bio_b" => (Kind::BackMerge, b"bio_backmerge: "),
        b"bio_f" => (Kind::FrontMerge, b"bio_frontmerge: "),
        b"getrq" => (Kind::GetRq, b"getrq: "),
        b"rq_me" => (Kind::RqMerge, b"rq_merge: "),
        b"rq_in" => (Kind::Insert, b"rq_insert: "),
        b"rq_is" => (Kind::Issue, b"rq_issue: "),
        b"rq_re" => (Kind::Requeue, b"rq_requeue: "),
        b"rq_co" => (Kind::Complete, b"rq_complete: "),
        _ => return None,
    };
    Some((kind, name.strip_prefix(whole)?))
}

/// Reads a whole trace and gives `each` what its lines hold, comments and empty lines too.
///
/// # Errors
/// What the input says, at whatever point: all lines before it have been given (and the last, cut one as well).
pub fn read(input: &mut dyn BufRead, mut each: impl FnMut(Line)) -> io::Result<()> {
    let mut parser = Parser::default();
    // The begin of a line whose end has not been read yet; shorter than the longest line.
    let mut begun = Vec::new();
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                if !begun.is_empty() {
                    each(parser.line(&begun));
                }
                return Err(error);
            }
        };
        let (mut rest, length) = (piece, piece.len());
        if length == 0 {
            if !begun.is_empty() {
                each(parser.line(&begun));
            }
            return Ok(());
        }
        while !rest.is_empty() {
            // Most lines lie in one piece and are read where they are.
            let room = LONGEST_LINE - begun.len();
            let window = rest.get(..room).unwrap_or(rest);
            let end = memchr::memchr(b'\n', window).map(|end| end + 1);
            let (line, after) = rest.split_at(end.unwrap_or(window.len()));
            let whole = end.is_some() || window.len() == room;
            if whole && begun.is_empty() {
                each(parser.line(line));
            } else {
                begun.extend_from_slice(line);
                if whole {
                    each(parser.line(&begun));
                    begun.clear();
                }
            }
            rest = after;
        }
        input.consume(length);
    }
}

/// The name of an event, without perf's group (`block:`, `mmc:`) and without blanks.
fn event_name(name: &[u8]) -> &[u8] {
    let name = name.trim_ascii_start();
    name.strip_prefix(b"block:").or_else(|| name.strip_prefix(b"mmc:")).unwrap_or(name)
}

fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"block_bio_queue" => Kind::BioQueue,
        b"block_getrq" => Kind::GetRq,
        b"block_bio_backmerge" => Kind::BackMerge,
        b"block_bio_frontmerge" => Kind::FrontMerge,
        b"block_rq_merge" => Kind::RqMerge,
        b"block_rq_insert" => Kind::Insert,
        b"block_rq_issue" => Kind::Issue,
        b"block_rq_requeue" => Kind::Requeue,
        b"block_rq_complete" => Kind::Complete,
        _ => return None,
    })
}

/// The two sides of the first `mark`.
pub(super) fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let first = *mark.first()?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(first, text.get(from..)?)?;
        if let Some(rest) = text.get(at..)?.strip_prefix(mark) {
            return Some((text.get(..at)?, rest));
        }
        from = at + 1;
    }
}

/// A decimal number of digits only.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    leading(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The number that `text` begins with, and what follows it.
fn leading(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut rest) = (0_u64, text);
    if let Some((eight, after)) = text.split_first_chunk::<8>() {
        // All eight bytes at once: digits become 0 to 9, and the high bit of the first that is none is found.
        let bytes = u64::from_le_bytes(*eight) ^ 0x3030_3030_3030_3030;
        let others = (bytes.wrapping_add(0x7676_7676_7676_7676) | bytes) & 0x8080_8080_8080_8080;
        let digits = others.trailing_zeros() / 8;
        if digits < 8 {
            let low = bytes.checked_shl(64 - 8 * digits)?;
            return Some((eight_digits(low), text.get(digits as usize..)?));
        }
        (value, rest) = (eight_digits(bytes), after);
    }
    while let Some((byte, after)) = rest.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        // 19 digits fit always.
        value = if text.len() - rest.len() < 19 {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(digit.into())?
        };
        rest = after;
    }
    (rest.len() < text.len()).then_some((value, rest))
}

/// Of eight bytes from 0 to 9, the first digit the lowest byte: pairs, pairs of pairs, and both halves.
fn eight_digits(bytes: u64) -> u64 {
    let pairs = bytes.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// The task column of `task-pid [cpu] flags stamp` (flags may be missing) and the stamp.
fn task_and_stamp(head: &[u8]) -> Option<(&[u8], u64)> {
    let (head, last) = last_word(head)?;
    let at = stamp(last)?;
    let (before, word) = last_word(head)?;
    let (task, cpu) = if is_cpu(word) { (before, word) } else { last_word(before)? };
    is_cpu(cpu).then_some((task, at))
}

/// What stands before the last word, without blanks at its end, and that word.
fn last_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, word) = text.split_at_checked(text.iter().rposition(|&byte| byte == b' ')?)?;
    Some((before.trim_ascii_end(), word.trim_ascii_start()))
}

fn is_cpu(word: &[u8]) -> bool {
    word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")).and_then(number).is_some()
}

/// `seconds.fraction` in nanoseconds.
pub(super) fn stamp(text: &[u8]) -> Option<u64> {
    let (seconds, rest) = leading(text)?;
    let fraction = rest.strip_prefix(b".")?;
    nanoseconds(seconds, number(fraction)?, fraction.len())
}

/// Of seconds and a fraction of so many digits.
fn nanoseconds(seconds: u64, fraction: u64, digits: usize) -> Option<u64> {
    const SCALES: [u64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1000, 100, 10, 1];
    let scale = *SCALES.get(digits.checked_sub(1)?)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction.checked_mul(scale)?)
}

/// Name and process of a first column; the process is 0 if there is none.
fn who(column: &[u8]) -> (&[u8], u32) {
    // The usual column of ftrace, `name-pid`.
    let (mut name, mut pid, mut scale) = (column, 0_u32, 1_u32);
    while let Some((digit @ b'0'..=b'9', before)) = name.split_last() {
        (name, pid) = (before, pid.wrapping_add(scale.wrapping_mul((digit - b'0').into())));
        scale = scale.wrapping_mul(10);
    }
    let digits = column.len() - name.len();
    match name.strip_suffix(b"-") {
        Some(name) if digits <= 9 => (name, pid),
        Some(name) => {
            let long = column.get(column.len() - digits..).and_then(number);
            (name, long.and_then(|n| n.try_into().ok()).unwrap_or(0))
        }
        None => (without_pid(column), pid_of(column)),
    }
}

/// The name in `name-pid` (ftrace, trace-cmd), perhaps with `(tgid)` after it, or in `name pid` or `name pid/tid` (perf).
fn without_pid(task: &[u8]) -> &[u8] {
    let name = || {
        if let Some((name, _)) = perf_column(task) {
            return Some(name);
        }
        let task = match task.strip_suffix(b")") {
            Some(open) => open.get(..open.iter().rposition(|&byte| byte == b'(')?)?.trim_ascii_end(),
            None => task,
        };
        task.get(..task.iter().rposition(|&byte| byte == b'-')?)
    };
    name().unwrap_or(b"?")
}

/// Name and process (of `pid/tid` the second) of perf's first columns.
fn perf_column(column: &[u8]) -> Option<(&[u8], u32)> {
    let (name, word) = last_word(column)?;
    let thread = split(word, b"/").map_or(word, |(_, thread)| thread);
    let all = word.iter().all(|b| b.is_ascii_digit() || *b == b'/');
    (all && !name.is_empty()).then_some((name, number(thread)?.try_into().ok()?))
}

/// The process number at the end of the first column, before a thread group in brackets; 0 if there is none.
fn pid_of(column: &[u8]) -> u32 {
    if let Some((_, pid)) = perf_column(column) {
        return pid;
    }
    let name = without_pid(column).len();
    let digits = column.get(name + 1..).unwrap_or_default();
    let end = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(number).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

/// `CPU:1 [LOST 17 EVENTS]`.
fn lost(line: &[u8]) -> Option<u64> {
    let (_, rest) = split(line, b"LOST ")?;
    let (count, _) = split(rest, b" EVENTS")?;
    number(count)
}

/// The clock in a comment such as `# trace_clock: mono` or, as the kernel lists them, `# trace_clock: local [mono] boot`.
fn clock_name(comment: &[u8]) -> Option<String> {
    let comment = comment.trim_ascii();
    let list = comment.strip_prefix(b"trace_clock:").or_else(|| comment.strip_prefix(b"clock:"))?;
    let chosen = split(list, b"[").and_then(|(_, rest)| split(rest, b"]")).map_or(list, |(name, _)| name);
    let name = String::from_utf8_lossy(chosen.trim_ascii()).into_owned();
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event {
        match Parser::default().line(line.as_bytes()) {
            Line::Event(event) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn show(event: &Event) -> String {
        let Event { at, kind, dev, task, pid: _, rwbs, sector, sectors } = event;
        format!("{at} {kind:?} {dev:?} {task} {rwbs} {sector}+{sectors}")
    }

    #[test]
    fn numbers_of_any_length_are_read_up_to_what_fits() {
        for digits in 1..=20_u32 {
            let all: String = "18446744073709551615".chars().take(digits as usize).collect();
            for after in ["", " ", ".", "x + 8 [a]", "/:::::::::", "\u{ff}\u{ff}\u{ff}\u{ff}"] {
                let text = format!("{all}{after}");
                let found = leading(text.as_bytes());
                assert_eq!(found, all.parse().ok().map(|value| (value, after.as_bytes())), "{text}");
            }
        }
        for text in ["", " 1", "x", "-1", ":0000000", "18446744073709551616", "99999999999999999999 "] {
            assert_eq!(leading(text.as_bytes()), None, "{text}");
        }
        assert_eq!(leading(b"00000000000000000000000007,"), Some((7, &b","[..])));
    }

    #[test]
    fn the_process_number_is_behind_the_last_dash_of_the_first_column() {
        for (column, pid) in
            [("jbd2/mmcblk0-8-83", 83), ("a b-7", 7), ("bash-165     (    160)", 165), ("x", 0)]
        {
            assert_eq!(who(column.as_bytes()).1, pid, "{column}");
        }
    }

    #[test]
    fn lines_of_three_kernels() {
        for (line, expected) in [
            (
                "  jbd2/mmcblk0-8-83      [000] ....  1031.720477: block_bio_queue: 179,0 WS 3932160 + 8 [jbd2/mmcblk0-8]",
                "1031720477000 BioQueue (179, 0) jbd2/mmcblk0-8 WS 3932160+8",
            ),
            (
                "    kworker/u4:0-12      [000] ...1.   124.372204: block_rq_insert: 179,0 W 524288 () 294912 + 1024 be,0,4 [kworker/u4:0]",
                "124372204000 Insert (179, 0) kworker/u4:0 W 294912+1024",
            ),
            (
                "     ksoftirqd/0-14      [000] ..s..  1027.347512: block_rq_complete: 7,7 FF () 18446744073709551615 + 0 none,0,0 [0]",
                "1027347512000 Complete (7, 7) ksoftirqd/0 FF 18446744073709551615+0",
            ),
            (
                "        bonnie++-100     [000] .N..  1212.721087: block_rq_merge: 179,0 WS 4096 () 470376 + 8 [bonnie++]",
                "1212721087000 RqMerge (179, 0) bonnie++ WS 470376+8",
            ),
            (
                "  fio-228     [000] .....   126.754716: block_rq_requeue: 179,0 RA () 103336 + 8 be,0,4 [0]\r\n",
                "126754716000 Requeue (179, 0) fio RA 103336+8",
            ),
        ] {
            assert_eq!(show(&event(line)), expected);
        }
    }

    #[test]
    fn a_task_may_be_called_anything() {
        let queued = |task: &str, inner: &str| {
            event(&format!("{task}-9 [001] d..1. 5.000001: block_getrq: 8,0 R 1 + 2 [{inner}]"))
                .task
                .to_string()
        };
        for name in ["a b", "<...>", "x-1-2", "kworker/0:1H", "[odd] one", "1.5: block_x: y", "4.2: mark: z"]
        {
            assert_eq!(queued(name, name), name);
        }
        assert_eq!(queued("<...>", "the real one"), "the real one");
        for (task, name) in
            [("a b-7", "a b"), ("x-1-22", "x-1"), ("bash-165   (  165)", "bash"), ("nothing", "?")]
        {
            let line = format!("{task} [000] ..s. 5.0: block_rq_complete: 8,0 R () 1 + 2 [-5]");
            assert_eq!(event(&line).task.as_ref(), name);
        }
        let mut parser = Parser::default();
        let bytes = b"\xff\xfe-9 [001] d..1. 5.000001: block_getrq: 8,0 R 1 + 2 [\xff\xfe]";
        assert!(
            matches!(parser.line(bytes), Line::Event(event) if event.task.as_ref() == "\u{fffd}\u{fffd}")
        );
    }

    #[test]
    fn scsi_commands_and_nanosecond_stamps() {
        let line = "x-1 [0] 12.123456789: block_rq_issue: 8,16 WFS 4096 (2a 00 00 01) 64 + 8 [x]";
        assert_eq!(show(&event(line)), "12123456789 Issue (8, 16) x WFS 64+8");
    }

    #[test]
    fn other_lines_are_told_from_odd_ones() {
        let read = |line: &str| Parser::default().line(line.as_bytes());
        for other in [
            "",
            "# tracer: nop",
            "bash-43 [000] .... 1029.277951: tracing_mark_write: MARK start",
            "bash-43 [000] .... 1029.277951: tracing_mark_write: x-1 [000] .... 1.0: block_getrq: 8,0 R 1 + 2 [x]",
            "x-1 [000] .... 1.0: block_plug: [x]",
            "x-1 [000] .... 1.0: blk_start_plug <-submit_bio",
            "x-1 [000] .... 1.0: sched_switch: prev_comm=x ==> next_comm=y",
        ] {
            assert_eq!(read(other), Line::Other, "{other}");
        }
        assert_eq!(read("CPU:1 [LOST 17 EVENTS]"), Line::Lost(17));
        assert_eq!(read("# trace_clock: local global [mono] boot"), Line::Clock("mono".into()));
        assert_eq!(read("# clock: tai"), Line::Clock("tai".into()));
        let whole = "x-1 [000] .... 1.000001: block_rq_insert: 8,0 WS 4096 () 64 + 1024 be,0,4 [x]";
        for cut in 1..whole.len() {
            assert!(!matches!(read(&whole[..cut]), Line::Event(_)), "{}", &whole[..cut]);
        }
        for odd in [
            "hello",
            "x-1 [000] .... 1.0: block_getr",
            "x-1 [000] .... 1.0: block_getrq:",
            "x-1 [000] .... 1.0: block_getrq: 8 R 1 + 2 [x]",
            "x-1 [000] .... 1.0: block_getrq: 8,0 R 99999999999999999999 + 2 [x]",
            "x-1 [000] .... 1.0: block_getrq: 8,0 R 1 + 4294967296 [x]",
            "x-1 [000] .... 1.0: block_getrq: 8,0 R -1 + 2 [x]",
            "x-1 [000] .... 1.0: block_rq_issue: 8,0 R () 1 + 2 [x]",
            "x-1 [000] .... 99999999999999999999.0: block_getrq: 8,0 R 1 + 2 [x]",
            "x-1 [000] .... 1234567890: block_getrq: 8,0 R 1 + 2 [x]",
        ] {
            assert_eq!(read(odd), Line::Odd, "{odd}");
        }
    }

    /// A pair of lines that a user has published (kernel 4.9, a journal write of 270 ms), and the same with the fields that
    /// came later, as perf prints them.
    #[test]
    fn commands_at_the_host_are_read() {
        const START: &str = "mmcqd/0-89   [000] ...1   474.223072: mmc_request_start: mmc0: start struct mmc_request\
            [c669d954]: cmd_opcode=25 cmd_arg=0x47fd98 cmd_flags=0xb5 cmd_retries=0 stop_opcode=12 stop_arg=0x0 \
            stop_flags=0x49d stop_retries=0 sbc_opcode=23 sbc_arg=0x80000008 sbc_flags=0x15 sbc_retires=0 blocks=8 \
            block_size=512 data_flags=0x100 can_retune=0 doing_retune=0 retune_now=0 need_retune=0 hold_retune=1 \
            retune_period=0";
        const END: &str = "<idle>-0     [000] ..s2   474.492701: mmc_request_done: mmc0: end struct mmc_request\
            [c669d954]: cmd_opcode=25 cmd_err=0 cmd_resp=0x900 0x0 0x0 0x0 cmd_retries=0 stop_opcode=12 stop_err=0 \
            stop_resp=0x0 0x0 0x0 0x0 stop_retries=0 sbc_opcode=23 sbc_err=0 sbc_resp=0x0 0x0 0x0 0x0 \
            sbc_retries=0 bytes_xfered=4096 data_err=0 can_retune=0 doing_retune=0 retune_now=0 need_retune=0 \
            hold_retune=1 retune_period=0";
        let read = |line: &str| Parser::default().line(line.as_bytes());
        let command = |line: &str| match read(line) {
            Line::Command(command) => command,
            other => panic!("{line}: {other:?}"),
        };
        let start = Command {
            at: 474_223_072_000,
            host: "mmc0".into(),
            request: 0xc669_d954,
            end: false,
            opcode: 25,
            argument: 0x47_fd98,
            bytes: 0,
            failed: false,
        };
        assert_eq!(command(START), start);
        let end = Command { at: 474_492_701_000, end: true, argument: 0, bytes: 4096, ..start.clone() };
        assert_eq!(command(END), end);
        for error in ["cmd_err=-110", "stop_err=-110", "sbc_err=-84", "data_err=-110"] {
            let (name, _) = error.split_once('=').unwrap();
            let failed = END.replace(&format!(" {name}=0"), &format!(" {error}"));
            assert_eq!(command(&failed), Command { failed: true, ..end.clone() }, "{error}");
        }
        let newer = START
            .replace("mmcqd/0-89   [000] ...1   ", "kworker/0:1H    57 [000]   ")
            .replace("mmc_request_start: ", " mmc:mmc_request_start: ")
            .replace("[c669d954]", "[00000000e4c83a0b]")
            .replace("block_size=512 ", "block_size=512 blk_addr=4717976 ")
            .replace("data_flags=0x100 ", "data_flags=0x100 tag=0 ");
        assert_eq!(command(&newer), Command { request: 0xe4c8_3a0b, ..start.clone() });
        let hidden = START.replace("c669d954", "(____ptrval____)");
        assert_eq!(command(&hidden), Command { request: 0, ..start });
        for odd in [&START[..60], &START[..110], "x-1 [000] .... 1.0: mmc_request_done: mmc0: end"] {
            assert_eq!(read(odd), Line::Odd, "{odd}");
        }
        for cut in 1..END.len() {
            let _ = read(&END[..cut]);
        }
    }

    #[test]
    fn a_line_without_end_is_read_in_pieces() {
        let mut input = io::Cursor::new(vec![b'x'; 200_000]);
        let mut odd = 0;
        read(&mut input, |line| odd += u32::from(line == Line::Odd)).unwrap();
        assert_eq!(odd, 4);
    }
}
