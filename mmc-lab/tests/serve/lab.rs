//! The program, started and ended.

use mmc_lab::serve::client::Client;
use mmc_lab::serve::socket::Address;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const LAB: &str = env!("CARGO_BIN_EXE_mmc-lab");

/// Status, standard output and standard error of a run that ends by itself.
pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(LAB).args(args).stdin(Stdio::null()).output().expect("the program starts");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("text");
    (out.status.code().expect("a status"), text(out.stdout), text(out.stderr))
}

/// Whether the thread sanitizer looks on (`ci/sanitizers`): memory then is several times what it is, and a signal is kept until the
/// thread that got it comes back from waiting.
pub(crate) fn watched() -> bool {
    std::env::var_os("TSAN_OPTIONS").is_some()
}

/// A file of this test run that does not exist.
pub(crate) fn scratch(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mmc-lab-serve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.join(format!("{n}-{name}")).display().to_string()
}

pub(crate) fn image(path: &str) -> Vec<u8> {
    std::fs::read(path).expect("the image")
}

/// `mmc-lab serve`, killed when this goes.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: Address,
    rest: std::thread::JoinHandle<String>,
}

impl Server {
    /// Started and listening; on a Unix socket if `args` do not say where.
    pub(crate) fn start(args: &[&str]) -> Self {
        let socket = format!("unix:{}", scratch("sock"));
        let mut all = vec!["serve"];
        all.extend(args);
        if !args.contains(&"--listen") {
            all.extend(["--listen", &socket]);
        }
        let mut child = Command::new(LAB)
            .args(&all)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        let _ = said.read_line(&mut line);
        let at = line.split("listening on ").nth(1).and_then(|rest| rest.split(": ").next());
        let at = at.unwrap_or_else(|| panic!("{all:?}: {line}"));
        let address = Address::parse(at).expect("an address");
        // What else it says must not fill the pipe.
        let rest = std::thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = said.read_to_end(&mut rest);
            String::from_utf8_lossy(&rest).into_owned()
        });
        Self { child, address, rest }
    }
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address).expect("the server answers")
    }
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
    /// SIGKILL: the supply goes.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
    /// SIGTERM; its report, of a server with `--json`; `Null` of one without.
    pub(crate) fn stop(mut self) -> serde_json::Value {
        self.terminate();
        let text = self.finished();
        serde_json::from_str(&text).unwrap_or_else(|_| {
            let failed = text.split(" failed").next().and_then(|t| t.rsplit([' ', ';']).next());
            serde_json::json!({"failed": failed.and_then(|n| n.parse::<u64>().ok())})
        })
    }
    /// SIGTERM; its report, and what it said besides.
    pub(crate) fn stop_and_say(mut self) -> (serde_json::Value, String) {
        self.terminate();
        let report = serde_json::from_str(&self.finished()).expect("JSON");
        let rest = std::mem::replace(&mut self.rest, std::thread::spawn(String::new));
        (report, rest.join().expect("text"))
    }
    fn terminate(&self) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        // A visitor that says nothing.
        if watched() {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let _ = self.address.connect();
        }
    }
    /// SIGTERM; its status.
    pub(crate) fn ends_with(mut self) -> Option<i32> {
        self.terminate();
        self.child.wait().expect("it ends").code()
    }
    /// What it printed, when it has ended well.
    pub(crate) fn finished(&mut self) -> String {
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{text}");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
