//! A client of QEMU's `qtest` protocol: lines of text over a socket, one answer each; interrupts come in between.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long QEMU may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory of our own, removed at the end.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("qemu-bench-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug)]
struct Link {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Link {
    fn new(listener: &UnixListener, child: &mut Child) -> Self {
        listener.set_nonblocking(true).expect("a socket that does not block");
        let begun = Instant::now();
        let to = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => {
                    if let Ok(Some(status)) = child.try_wait() {
                        panic!("QEMU ended at once ({status}); what it said is above");
                    }
                    assert!(begun.elapsed() < PATIENCE, "QEMU does not connect");
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        };
        to.set_nonblocking(false).expect("a socket that blocks");
        to.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let from = BufReader::new(to.try_clone().expect("a second handle"));
        Self { to, from }
    }
    fn line(&mut self) -> String {
        let mut line = String::new();
        let n = self.from.read_line(&mut line).expect("an answer of QEMU");
        assert!(n > 0, "QEMU has gone; what it said is above");
        line
    }
}

struct Machine {
    child: Child,
    qtest: Link,
    monitor: Link,
    /// Interrupt lines that are up, by number below 32.
    lines: u32,
    accesses: u64,
    directory: Directory,
}

impl Machine {
    /// The answer to `command`; interrupts may come before it.
    fn answer(&mut self, command: &str) -> String {
        loop {
            let line = self.qtest.line();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("OK") => return words.collect::<Vec<_>>().join(" "),
                Some("IRQ") => {
                    let up = words.next() == Some("raise");
                    let n: u32 = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
                    let bit = 1_u32.checked_shl(n).unwrap_or(0);
                    self.lines = if up { self.lines | bit } else { self.lines & !bit };
                }
                _ => panic!("{command}: {line}"),
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One running QEMU; clones talk to the same. It ends with the last of them.
#[derive(Clone)]
pub struct Qtest(Arc<Mutex<Machine>>);

impl std::fmt::Debug for Qtest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qtest").finish_non_exhaustive()
    }
}

impl Qtest {
    /// Starts `program` with `arguments`, in which `{dir}` becomes a directory for this machine alone; `prepare` fills it
    /// first. The processor executes nothing: it must find firmware that halts it.
    ///
    /// Virtual time is real time: not every build has the accelerator that stops it.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(program: &Path, arguments: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let directory = Directory::new();
        let dir = &directory.0;
        prepare(dir);
        let (qtest, monitor) = (dir.join("qtest"), dir.join("monitor"));
        let listeners = [&qtest, &monitor].map(|p| UnixListener::bind(p).expect("a socket"));
        let [qtest, monitor] = [qtest, monitor].map(|p| format!("unix:{}", p.display()));
        let here = dir.display().to_string();
        let mut child = Command::new(program)
            .args(["-nodefaults", "-display", "none", "-accel", "tcg", "-qtest-log", "/dev/null"])
            .args(["-qtest", &qtest, "-qmp", &monitor])
            .args(arguments.iter().map(|a| a.replace("{dir}", &here)))
            .stdin(Stdio::null())
            .spawn()
            .expect("QEMU starts");
        let [a, b] = &listeners;
        // It connects in an order of its own choice; both sockets are bound already.
        let (qtest, monitor) = (Link::new(a, &mut child), Link::new(b, &mut child));
        let machine = Machine { child, qtest, monitor, lines: 0, accesses: 0, directory };
        let this = Self(Arc::new(Mutex::new(machine)));
        this.monitor("qmp_capabilities", "");
        this
    }

    fn with<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        f(&mut self.0.lock().expect("nobody panicked while talking to QEMU"))
    }

    /// One command of the protocol; what follows the `OK`.
    ///
    /// # Panics
    /// If QEMU refuses it or does not answer.
    pub fn ask(&self, command: &str) -> String {
        self.ask_all(&[command.to_owned()]).pop().unwrap_or_default()
    }

    /// Several commands at once, ten times as fast as one after the other; what follows each `OK`.
    ///
    /// # Panics
    /// If QEMU refuses one or does not answer.
    pub fn ask_all(&self, commands: &[String]) -> Vec<String> {
        self.with(|m| {
            m.accesses += commands.len() as u64;
            m.qtest.to.write_all((commands.join("\n") + "\n").as_bytes()).expect("QEMU listens");
            commands.iter().map(|command| m.answer(command)).collect()
        })
    }

    /// As [`ask`](Self::ask), for an answer that is one number.
    ///
    /// # Panics
    /// If it is not.
    pub fn number(&self, command: &str) -> u32 {
        let answer = self.ask(command);
        let parsed =
            u64::from_str_radix(answer.trim_start_matches("0x"), 16).ok().and_then(|n| u32::try_from(n).ok());
        parsed.unwrap_or_else(|| panic!("{command}: {answer} is not a number of 32 bits"))
    }

    /// Reads memory as the processor sees it.
    #[must_use]
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let hex = self.ask(&format!("read {at:#x} {len:#x}"));
        let digits = hex.trim_start_matches("0x").as_bytes();
        let digit = |d: u8| char::from(d).to_digit(16).expect("a digit") as u8;
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, d| byte << 4 | digit(*d))).collect()
    }

    /// Writes memory as the processor sees it.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        let mut command = format!("write {at:#x} {:#x} 0x", bytes.len());
        for byte in bytes {
            let _ = write!(command, "{byte:02x}");
        }
        self.ask(&command);
    }

    /// One command of the monitor (QMP); `arguments` is the inside of a JSON object. The answer as text.
    ///
    /// # Panics
    /// If QEMU says it is an error.
    pub fn monitor(&self, command: &str, arguments: &str) -> String {
        self.with(|m| {
            let request = format!("{{\"execute\":\"{command}\",\"arguments\":{{{arguments}}}}}\n");
            m.monitor.to.write_all(request.as_bytes()).expect("QEMU listens");
            loop {
                let line = m.monitor.line();
                assert!(!line.contains("\"error\""), "{command} {arguments}: {line}");
                if line.contains("\"return\"") {
                    return line;
                }
            }
        })
    }

    /// One line of the human monitor; it answers nothing when all is well.
    ///
    /// # Panics
    /// If it answers something.
    pub fn human(&self, line: &str) {
        let said = self.monitor("human-monitor-command", &format!("\"command-line\":\"{line}\""));
        assert!(said.contains("\"return\": \"\""), "{line}: {said}");
    }

    /// Interrupt lines that are up, as far as QEMU has said; it says so before its next answer.
    #[must_use]
    pub fn lines(&self) -> u32 {
        self.with(|m| m.lines)
    }

    /// Commands so far.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.with(|m| m.accesses)
    }

    /// A file in the machine's directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.with(|m| m.directory.0.join(name))
    }
}
