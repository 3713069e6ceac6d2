//! Clients: one thread that reads and one that writes for each, and what they may hold.

use super::handshake::{self, Outcome};
use super::socket::{Listener, Stream, Timed};
use super::wire::{self, Errno, Export, MAX_PAYLOAD, Operation, Request};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Clients at one time.
pub const MAX_CLIENTS: u32 = 16;
/// Requests of one client that are not answered; the next is read when one is.
pub const MAX_REQUESTS: usize = 64;
/// Bytes of one client's requests that are not answered.
pub const MAX_BYTES: usize = 2 * MAX_PAYLOAD as usize;
/// A handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A message that has begun takes no longer to come; tests do not wait half a minute.
const MESSAGE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 30_000 });

/// What the worker hears.
#[derive(Debug)]
pub enum Message {
    /// A client has begun.
    Opened,
    /// A request that can be served.
    Request(Incoming),
    /// One that cannot; it was answered.
    Refused(Errno),
    /// A client that had begun is gone.
    Closed,
    /// A client broke the rules and was cut off.
    Broken(String),
    /// Finish what is there and end.
    Stop,
}

/// A request that can be served.
#[derive(Debug)]
pub struct Incoming {
    /// Whose.
    pub client: u32,
    /// As it came.
    pub request: Request,
    /// What it asks for.
    pub op: Operation,
    /// Of a write.
    pub data: Vec<u8>,
    /// Where its answer goes.
    pub reply: Reply,
}

/// The way back to a client, and what the request takes of its budget.
#[derive(Debug)]
pub struct Reply {
    cookie: u64,
    to: Sender<Answer>,
    permit: Permit,
}

impl Reply {
    /// Answers; `data` only of a read that went well. A client that is gone does not hear it.
    pub fn send(self, error: Option<Errno>, data: Vec<u8>) {
        let answer = Answer { head: wire::reply(self.cookie, error), data, permit: self.permit };
        let _ = self.to.send(answer);
    }
}

#[derive(Debug)]
struct Answer {
    head: [u8; 16],
    data: Vec<u8>,
    permit: Permit,
}

/// What a client may hold.
#[derive(Debug, Default)]
struct Budget {
    held: Mutex<(usize, usize)>,
    freed: Condvar,
}

impl Budget {
    /// Waits until there is room; a client that holds nothing may always have one.
    fn take(self: &Arc<Self>, bytes: usize) -> Permit {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |(requests, held): &mut (usize, usize)| {
            *requests >= MAX_REQUESTS || *requests > 0 && *held + bytes > MAX_BYTES
        };
        let mut held = self.freed.wait_while(held, full).unwrap_or_else(PoisonError::into_inner);
        held.0 += 1;
        held.1 += bytes;
        Permit { budget: Arc::clone(self), bytes }
    }
}

/// A part of a budget, until it is dropped.
#[derive(Debug)]
struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 -= 1;
        held.1 -= self.bytes;
        self.budget.freed.notify_one();
    }
}

/// What every client is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The disk.
    pub export: Export,
    /// A line about it.
    pub description: String,
}

/// Takes in clients for ever, in a thread of its own.
pub fn accept(listener: Listener, told: Told, to: Sender<Message>) {
    let open = Arc::new(AtomicU32::new(0));
    thread::spawn(move || {
        let mut number = 0;
        loop {
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(e) => {
                    // Out of descriptors, or a client that was gone at once: later again.
                    if to.send(Message::Broken(format!("cannot take in a client: {e}"))).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            number += 1;
            if open.load(Ordering::Relaxed) >= MAX_CLIENTS {
                // Counted before it hears so.
                let said = format!("client {number}: turned away, there are {MAX_CLIENTS} already");
                let told = to.send(Message::Broken(said));
                stream.close();
                if told.is_err() {
                    return;
                }
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (open, told, to) = (Arc::clone(&open), told.clone(), to.clone());
            thread::spawn(move || {
                serve(stream, number, &told, &to);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

/// One client, from its handshake to its end.
fn serve(stream: Stream, client: u32, told: &Told, to: &Sender<Message>) {
    // Who is cut off is counted before that is seen from outside, whatever the others do then.
    let broke = |why: String| {
        // The worker has ended, or it hears this.
        let _ = to.send(Message::Broken(format!("client {client}: {why}")));
    };
    // Heard before the client hears it: with `--once` another one may go in that moment, and is not the last.
    let mut opened = None;
    if let Err(e) = begin(stream, client, told, to, &mut opened, &broke) {
        broke(e.to_string());
    }
}

/// The same, once it is known who hears of it.
///
/// # Errors
/// Its socket cannot be set up.
fn begin<'a>(
    stream: Stream,
    client: u32,
    told: &Told,
    to: &'a Sender<Message>,
    opened: &mut Option<Open<'a>>,
    broke: &impl Fn(String),
) -> std::io::Result<()> {
    let writer = stream.try_clone()?;
    stream.set_write_timeout(Some(HANDSHAKE))?;
    let mut stream = Timed::new(stream);
    stream.limit(Some(HANDSHAKE));
    let begun =
        handshake::negotiate(&mut stream, &told.export, &told.description, || *opened = Some(Open::new(to)));
    match begun {
        Ok(Outcome::Transmission) => {}
        Ok(Outcome::Gone) => return Ok(()),
        Err(e) => {
            broke(e.to_string());
            writer.close();
            return Ok(());
        }
    }
    // From now on a client that does not read only holds its own budget.
    writer.set_write_timeout(None)?;
    let end = writer.try_clone()?;
    let (answers, sent) = channel();
    let gone = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let gone = Arc::clone(&gone);
        move || write(writer, &sent, &gone)
    });
    let ended = read(BufReader::new(stream), client, &told.export, to, &answers, &gone);
    drop(answers);
    if let Err(why) = ended {
        broke(why);
        end.close();
    }
    // Ends when the last answer is out.
    let _ = writer.join();
    end.close();
    Ok(())
}

/// A client that has begun, until it is gone. A worker that has ended hears neither.
struct Open<'a>(&'a Sender<Message>);

impl<'a> Open<'a> {
    fn new(to: &'a Sender<Message>) -> Self {
        let _ = to.send(Message::Opened);
        Self(to)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Closed);
    }
}

/// Sends answers until there will be no more; notes when the client is `gone`.
fn write(mut stream: Stream, answers: &Receiver<Answer>, gone: &AtomicBool) {
    while let Ok(Answer { head, data, permit }) = answers.recv() {
        if !gone.load(Ordering::Relaxed) {
            // One piece for small ones; the data of a large one are not copied.
            let sent = if data.len() <= 65536 {
                stream.write_all(&[&head[..], &data].concat())
            } else {
                stream.write_all(&head).and_then(|()| stream.write_all(&data))
            };
            if sent.is_err() {
                // Its reader shall not wait for more, nor go on with what has come.
                gone.store(true, Ordering::Relaxed);
                stream.close();
            }
        }
        drop(permit);
    }
}

/// Reads requests until the client goes.
///
/// # Errors
/// It broke the rules: what it did.
fn read(
    mut stream: BufReader<Timed>,
    client: u32,
    export: &Export,
    to: &Sender<Message>,
    answers: &Sender<Answer>,
    gone: &AtomicBool,
) -> Result<(), String> {
    let budget = Arc::new(Budget::default());
    loop {
        stream.get_mut().limit(None);
        match stream.fill_buf() {
            // It should have said so, but it is not the server's loss.
            Ok([]) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
        stream.get_mut().limit(Some(MESSAGE));
        let mut head = [0; Request::LEN];
        stream.read_exact(&mut head).map_err(|e| format!("half a request: {e}"))?;
        let Some(request) = Request::parse(&head) else {
            let magic = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            return Err(format!("{magic:#010x} where a request begins with {:#010x}", wire::REQUEST_MAGIC));
        };
        if request.command == wire::command::DISC {
            return Ok(());
        }
        if request.payload() > MAX_PAYLOAD {
            return Err(format!("a write of {} bytes; {MAX_PAYLOAD} are the most", request.length));
        }
        let checked = request.check(export);
        // What is refused moves nothing to the client.
        let moves = if checked.is_ok() { request.moves() } else { request.payload() };
        let permit = budget.take(moves as usize);
        // The client is not to blame for that wait.
        stream.get_mut().limit(Some(MESSAGE));
        if gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reply = Reply { cookie: request.cookie, to: answers.clone(), permit };
        let mut data = Vec::new();
        if request.payload() > 0 {
            // Memory only for what has come.
            let payload = u64::from(request.payload());
            let came = stream.by_ref().take(payload).read_to_end(&mut data);
            let came = came.map_err(|e| format!("half a write: {e}"))? as u64;
            if came < payload {
                return Err(format!("half a write: {came} of {payload} bytes"));
            }
        }
        let message = match checked {
            Ok(op) => Message::Request(Incoming { client, request, op, data, reply }),
            Err(e) => {
                reply.send(Some(e), Vec::new());
                Message::Refused(e)
            }
        };
        if to.send(message).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_client_waits_for_its_own_answers_only() {
        let (a, b) = (Arc::new(Budget::default()), Arc::new(Budget::default()));
        let mut held: Vec<Permit> = (0..MAX_REQUESTS).map(|_| a.take(512)).collect();
        drop(b.take(MAX_BYTES));
        let waits = thread::spawn({
            let a = Arc::clone(&a);
            move || drop(a.take(512))
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        held.pop();
        waits.join().unwrap();
        held.clear();
        // One that is larger than all of it would wait for ever.
        drop(a.take(MAX_BYTES + 1));
        assert_eq!(*a.held.lock().unwrap(), (0, 0));
    }

    #[test]
    fn a_message_is_not_late_because_the_server_was() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = Stream::Unix(theirs);
        let (to, messages) = channel();
        let reader = thread::spawn(move || {
            let export = Export { size: 1 << 20, min_block: 512, read_only: false };
            let (answers, _sent) = channel();
            let stream = BufReader::new(Timed::new(Stream::Unix(ours)));
            read(stream, 1, &export, &to, &answers, &AtomicBool::new(false))
        });
        let ask = |command, cookie| Request { flags: 0, command, cookie, offset: 0, length: 512 }.bytes();
        for cookie in 0..MAX_REQUESTS as u64 {
            client.write_all(&ask(wire::command::READ, cookie)).unwrap();
        }
        let mut held: Vec<Message> = messages.iter().take(MAX_REQUESTS).collect();
        client.write_all(&ask(wire::command::WRITE, 99)).unwrap();
        thread::sleep(MESSAGE + MESSAGE / 2);
        client.write_all(&[7; 512]).unwrap();
        assert!(messages.try_recv().is_err(), "it has no room yet");
        held.pop();
        match messages.recv() {
            Ok(Message::Request(incoming)) => {
                assert_eq!((incoming.request.cookie, incoming.data), (99, vec![7; 512]))
            }
            other => panic!("{other:?}: {:?}", reader.join()),
        }
        drop(client);
        assert_eq!(reader.join().unwrap(), Ok(()));
    }
}
