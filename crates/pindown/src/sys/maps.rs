//! A parser of `/proc/PID/maps` lines (`proc_pid_maps(5)`), pure so that it can be fuzzed.

/// One line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapsLine<'a> {
    /// First address.
    pub(crate) start: usize,
    /// First address past the end; above `start`.
    pub(crate) end: usize,
    /// The `rwx` columns and whether the fourth is `s`.
    pub(crate) perms: Perms,
    /// Offset into the file, in bytes.
    pub(crate) offset_bytes: u64,
    /// Major and minor device number of the file's file system.
    pub(crate) device: (u32, u32),
    /// Inode number; 0 for memory without a file.
    pub(crate) inode: u64,
    /// The path or `[name]`; empty when there is none.
    pub(crate) name: &'a [u8],
}

/// The permissions column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Perms {
    /// `r`
    pub(crate) readable: bool,
    /// `w`
    pub(crate) writable: bool,
    /// `x`
    pub(crate) executable: bool,
    /// `s` rather than `p`
    pub(crate) shared: bool,
}

/// Parses one line, with or without its newline. `None`: it is not one.
pub(crate) fn parse_line(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut rest = line.strip_suffix(b"\n").unwrap_or(line);
    let mut bounds = field(&mut rest)?.splitn(2, |&b| b == b'-');
    let start = usize::try_from(hex(bounds.next()?)?).ok()?;
    let end = usize::try_from(hex(bounds.next()?)?).ok()?;
    let perms = perms(field(&mut rest)?)?;
    let offset_bytes = hex(field(&mut rest)?)?;
    let mut numbers = field(&mut rest)?.splitn(2, |&b| b == b':');
    let major = u32::try_from(hex(numbers.next()?)?).ok()?;
    let minor = u32::try_from(hex(numbers.next()?)?).ok()?;
    let inode = decimal(field(&mut rest)?)?;
    let name = rest.trim_ascii_start();
    (start < end).then_some(MapsLine { start, end, perms, offset_bytes, device: (major, minor), inode, name })
}

/// Takes the text up to the next blank off the front.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let at = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    let (head, tail) = rest.split_at(at);
    *rest = tail.get(1..).unwrap_or(&[]);
    (!head.is_empty()).then_some(head)
}

fn perms(text: &[u8]) -> Option<Perms> {
    let &[r, w, x, s] = text else { return None };
    let flag = |got: u8, set: u8, unset: u8| match got {
        g if g == set => Some(true),
        g if g == unset => Some(false),
        _ => None,
    };
    Some(Perms {
        readable: flag(r, b'r', b'-')?,
        writable: flag(w, b'w', b'-')?,
        executable: flag(x, b'x', b'-')?,
        shared: flag(s, b's', b'p')?,
    })
}

fn hex(text: &[u8]) -> Option<u64> {
    number(text, 16)
}

fn decimal(text: &[u8]) -> Option<u64> {
    number(text, 10)
}

/// Digits only: `from_str_radix` alone would take a sign.
fn number(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|b| char::from(b).is_digit(radix));
    digits.then(|| u64::from_str_radix(text, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_shape() {
        let line = b"7f0c3c021000-7f0c40000000 ---p 00000000 00:00 0 \n";
        let m = parse_line(line).unwrap();
        assert_eq!((m.start, m.end, m.inode, m.name), (0x7f0c_3c02_1000, 0x7f0c_4000_0000, 0, &b""[..]));
        assert_eq!(m.perms, Perms::default());
        let line = b"7f00-8f00 rw-s 00001000 00:01 1042                       /memfd:my buf (deleted)\n";
        let m = parse_line(line).unwrap();
        assert!(m.perms.shared && m.perms.writable && !m.perms.executable);
        assert_eq!((m.offset_bytes, m.device, m.inode), (0x1000, (0, 1), 1042));
        assert_eq!(m.name, b"/memfd:my buf (deleted)");
        let line = b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]";
        assert_eq!(parse_line(line).unwrap().name, b"[vsyscall]");
    }

    #[test]
    fn what_is_not_a_line_is_refused() {
        let bad: [&[u8]; 8] = [
            b"",
            b"\n",
            b"2000-1000 rw-p 0 00:00 0",
            b"1000-2000 rw-q 0 00:00 0",
            b"1000-2000 rw-p 0 0000 0",
            b"+1000-2000 rw-p 0 00:00 0",
            b"1000-2000 rw-p 0 00:00",
            b"11111111111111111-2 rw-p 0 00:00 0",
        ];
        for line in bad {
            assert_eq!(parse_line(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn this_process() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines: Vec<_> = text.split_inclusive(|&b| b == b'\n').map(|l| parse_line(l).unwrap()).collect();
        let here = &text as *const _ as usize;
        assert!(lines.iter().any(|l| l.start <= here && here < l.end && l.perms.writable));
        assert!(lines.windows(2).all(|w| w[0].end <= w[1].start));
    }
}
