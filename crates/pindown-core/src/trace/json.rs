//! The JSON-lines form of a trace.

use std::io::{self, Write};

use super::{Event, Op};
use crate::Access;

/// Writes one event as one line. Access is the flags' letters: `r`, then `w` (the device writes),
/// `R`, `W`, `A` (a peer reads, writes, does atomics), `~` (relaxed ordering).
///
/// # Errors
///
/// Those of `out`.
pub fn write_json_line(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let t_ns = event.t_ns;
    match event.op {
        Op::Acquire { id, addr, len, access } => writeln!(
            out,
            r#"{{"t_ns":{t_ns},"op":"acquire","id":{id},"addr":"{addr:#x}","len":{len},"access":"{}"}}"#,
            AccessLetters(access)
        ),
        Op::Put { id } => writeln!(out, r#"{{"t_ns":{t_ns},"op":"put","id":{id}}}"#),
        Op::Invalidate { addr, len } => {
            writeln!(out, r#"{{"t_ns":{t_ns},"op":"invalidate","addr":"{addr:#x}","len":{len}}}"#)
        }
        Op::Registered { id, cost_ns } => {
            writeln!(out, r#"{{"t_ns":{t_ns},"op":"registered","id":{id},"cost_ns":{cost_ns}}}"#)
        }
    }
}

struct AccessLetters(Access);

const LETTERS: [(Access, char); 5] = [
    (Access::LOCAL_WRITE, 'w'),
    (Access::REMOTE_READ, 'R'),
    (Access::REMOTE_WRITE, 'W'),
    (Access::REMOTE_ATOMIC, 'A'),
    (Access::RELAXED_ORDERING, '~'),
];

impl std::fmt::Display for AccessLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("r")?;
        let set = LETTERS.iter().filter(|(flag, _)| self.0.contains(*flag));
        set.map(|(_, letter)| letter).try_for_each(|letter| write!(f, "{letter}"))
    }
}

impl Access {
    /// Reads the letters that traces use; `None` on any other.
    pub fn from_letters(letters: &str) -> Option<Self> {
        let rest = letters.strip_prefix('r').unwrap_or(letters);
        rest.chars().try_fold(Self::READ, |access, letter| {
            LETTERS.iter().find(|(_, l)| *l == letter).map(|(flag, _)| access | *flag)
        })
    }

    /// The letters that traces use, e.g. `rw`.
    pub fn letters(self) -> String {
        AccessLetters(self).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let line = |op| {
            let mut out = Vec::new();
            write_json_line(&mut out, &Event { t_ns: 9, op }).unwrap();
            String::from_utf8(out).unwrap()
        };
        let acquire = Op::Acquire { id: 1, addr: 0x7f00_0000_0000, len: 65536, access: Access::READ_WRITE };
        assert_eq!(
            line(acquire),
            "{\"t_ns\":9,\"op\":\"acquire\",\"id\":1,\"addr\":\"0x7f0000000000\",\"len\":65536,\"access\":\"rw\"}\n"
        );
        assert_eq!(line(Op::Put { id: 1 }), "{\"t_ns\":9,\"op\":\"put\",\"id\":1}\n");
    }

    #[test]
    fn access_letters_parse_back() {
        for bits in 0..32 {
            let access = Access::from_bits_truncate(bits);
            assert_eq!(Access::from_letters(&access.letters()), Some(access));
        }
        assert_eq!(Access::from_letters("rx"), None);
    }
}
