//! Reading and converting traces.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use pindown_core::Access;
use pindown_core::trace::{BinaryReader, BinaryWriter, Event, MAGIC, Op, TraceError, write_json_line};

/// Why a trace file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened, read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is no event.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// The compact form is damaged.
    #[error("{path}: {source}")]
    Binary {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: TraceError,
    },
}

/// The two forms of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON lines.
    Json,
    /// The compact form of [`pindown_core::trace`].
    Binary,
}

impl Format {
    /// By the file's name: `.jsonl` and `.json` are JSON lines, all else is binary.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl" | "json") => Self::Json,
            _ => Self::Binary,
        }
    }
}

/// Reads a trace of either form, told apart by its first bytes. A file whose writer was killed is
/// read up to its last whole event.
///
/// # Errors
///
/// [`ReadError`] says where.
pub fn read(path: &Path) -> Result<Vec<Event>, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    if input.fill_buf().map_err(io)?.starts_with(&MAGIC) {
        return read_binary(path, input);
    }
    let mut events = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        if input.read_line(&mut line).map_err(io)? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        match parse_line(&line) {
            Ok(event) => events.push(event),
            Err(_) if !line.ends_with('\n') => break, // cut off
            Err(what) => return Err(ReadError::Line { path: path.to_owned(), line: number, what }),
        }
    }
    Ok(events)
}

fn read_binary(path: &Path, input: impl BufRead) -> Result<Vec<Event>, ReadError> {
    let binary = |source| ReadError::Binary { path: path.to_owned(), source };
    let mut events = Vec::new();
    for event in BinaryReader::new(input).map_err(binary)? {
        match event {
            Ok(event) => events.push(event),
            Err(TraceError::Truncated { .. }) => break,
            Err(source) => return Err(binary(source)),
        }
    }
    Ok(events)
}

/// Writes a trace. Returns its length in bytes.
///
/// # Errors
///
/// [`ReadError::Io`].
pub fn write(path: &Path, events: &[Event], format: Format) -> Result<u64, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?);
    let file = write_to(out, events, format).and_then(|out| out.into_inner().map_err(|e| e.into_error()));
    Ok(file.and_then(|f| f.metadata()).map_err(io)?.len())
}

fn write_to<W: Write>(mut out: W, events: &[Event], format: Format) -> io::Result<W> {
    if format == Format::Json {
        events.iter().try_for_each(|event| write_json_line(&mut out, event))?;
        return Ok(out);
    }
    let mut writer = BinaryWriter::new(out)?;
    events.iter().try_for_each(|event| writer.write(event))?;
    writer.finish()
}

#[derive(serde::Deserialize)]
struct Line<'a> {
    #[serde(default)]
    t_ns: u64,
    op: &'a str,
    id: Option<u64>,
    addr: Option<Addr<'a>>,
    len: Option<u64>,
    access: Option<&'a str>,
    cost_ns: Option<u64>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Addr<'a> {
    Number(u64),
    Text(&'a str),
}

fn parse_line(line: &str) -> Result<Event, String> {
    let line: Line<'_> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let need = |field: Option<u64>, name: &str| field.ok_or_else(|| format!("{:?} needs {name:?}", line.op));
    let op = match line.op {
        "acquire" => Op::Acquire {
            id: need(line.id, "id")?,
            addr: address(&line)?,
            len: need(line.len, "len")?,
            access: access(line.access)?,
        },
        "put" => Op::Put { id: need(line.id, "id")? },
        "invalidate" => Op::Invalidate { addr: address(&line)?, len: need(line.len, "len")? },
        "registered" => Op::Registered { id: need(line.id, "id")?, cost_ns: need(line.cost_ns, "cost_ns")? },
        other => return Err(format!("unknown op {other:?}: acquire, put, invalidate or registered")),
    };
    Ok(Event { t_ns: line.t_ns, op })
}

fn address(line: &Line<'_>) -> Result<u64, String> {
    match line.addr {
        Some(Addr::Number(n)) => Ok(n),
        Some(Addr::Text(text)) => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            u64::from_str_radix(digits, 16).map_err(|_| format!("addr {text:?} is not a hexadecimal number"))
        }
        None => Err(format!("{:?} needs \"addr\"", line.op)),
    }
}

fn access(letters: Option<&str>) -> Result<Access, String> {
    let Some(letters) = letters else { return Ok(Access::READ_WRITE) };
    Access::from_letters(letters)
        .ok_or_else(|| format!("access {letters:?} is not made of r, w, R, W, A and ~"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Scenario;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pindown-read-{}-{name}", std::process::id()))
    }

    #[test]
    fn both_forms_hold_the_same() {
        let trace = &Scenario::named("mpi").unwrap().trace()[..20_000];
        let sizes = [("a.jsonl", Format::Json), ("a.trace", Format::Binary)].map(|(name, format)| {
            let path = file(name);
            assert_eq!(Format::of(&path), format);
            let bytes = write(&path, trace, format).unwrap();
            assert_eq!(read(&path).unwrap(), trace);
            std::fs::remove_file(path).unwrap();
            bytes
        });
        assert!(sizes[1] * 5 < sizes[0], "{sizes:?}");
    }

    #[test]
    fn a_bad_line_is_named_and_a_cut_one_forgiven() {
        let path = file("bad.jsonl");
        std::fs::write(&path, "{\"op\":\"put\",\"id\":1}\n{\"op\":\"put\"}\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("\"id\""), "{error}");
        std::fs::write(&path, "{\"op\":\"put\",\"id\":1}\n{\"op\":\"pu").unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_documented_example_is_read() {
        let line = r#"{"t_ns":0,"op":"acquire","id":1,"addr":"0x7f0000000000","len":65536,"access":"rw"}"#;
        let op = Op::Acquire { id: 1, addr: 0x7f00_0000_0000, len: 65536, access: Access::READ_WRITE };
        assert_eq!(parse_line(line), Ok(Event { t_ns: 0, op }));
    }
}
