//! [`Link`]: what the hosts tell each other, as lines of JSON over TCP.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long to wait for the other host, each time.
const PATIENCE: Duration = Duration::from_secs(60);
/// In steps, so that a machine that was stopped meanwhile finds one of them used up, not all.
const STEP: Duration = Duration::from_secs(1);

/// A connection to the other host.
#[derive(Debug)]
pub(crate) struct Link {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Link {
    /// Waits for the other host at `at` (`ADDRESS`, `ADDRESS:PORT`, or empty for all addresses).
    pub(crate) fn listen(at: &str, port: u16) -> io::Result<Self> {
        let at = if at.is_empty() { "0.0.0.0" } else { at };
        let (stream, _) = TcpListener::bind(with_port(at, port))?.accept()?;
        Self::over(stream)
    }

    /// Finds the other host, which may be started a little later.
    pub(crate) fn connect(host: &str, port: u16) -> io::Result<Self> {
        let (host, began) = (with_port(host, port), Instant::now());
        loop {
            match TcpStream::connect(&host) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                stream => return Self::over(stream?),
            }
        }
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP))?;
        Ok(Self { writer: stream.try_clone()?, reader: BufReader::new(stream) })
    }

    pub(crate) fn send(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        for _ in 0..PATIENCE.as_secs() / STEP.as_secs() {
            match self.reader.read_until(b'\n', &mut line) {
                // What has come of the line stays in it.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other host has left")),
                read => return read.and_then(|_| Ok(serde_json::from_slice(&line)?)),
            }
        }
        let silent = format!("the other host has said nothing for {PATIENCE:?}");
        Err(io::Error::new(ErrorKind::TimedOut, silent))
    }
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host.to_socket_addrs().is_ok();
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}
